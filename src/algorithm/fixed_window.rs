//! Windows of one period, aligned to the epoch, with a count each.

use super::record::{Record, add};
use super::state::State;

/// The window that `now_ms` falls into, or the stored one where the clock has stepped back.
fn current(period_ms: u64, window: Option<Record>, now_ms: u64) -> Record {
    let start_ms = now_ms - now_ms % period_ms;
    match window {
        Some(window) if window.at_ms >= start_ms => window,
        Some(_) | None => Record { at_ms: start_ms, amount: 0 },
    }
}

pub(super) fn used(period_ms: u64, window: Option<Record>, now_ms: u64) -> u64 {
    current(period_ms, window, now_ms).amount
}

pub(super) fn take(period_ms: u64, state: &mut State, now_ms: u64, hits: u64) {
    let window = current(period_ms, state.window(), now_ms);
    *state = State::Window(Record { amount: add(window.amount, hits), ..window });
}

/// Refunds to the stored window, which is the current one.
pub(super) fn refund(state: &mut State, hits: u64) {
    if let State::Window(window) = state {
        window.amount = window.amount.saturating_sub(hits);
    }
}

pub(super) fn reset_after_ms(period_ms: u64, window: Option<Record>, now_ms: u64) -> u64 {
    let window = current(period_ms, window, now_ms);
    window.at_ms + period_ms - now_ms.max(window.at_ms)
}
