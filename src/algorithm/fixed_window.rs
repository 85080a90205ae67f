//! Windows of one period, aligned to the epoch, with a count each.

use super::operations::{Declaration, Operations, ScriptArguments, add};
use super::record::Record;
use super::state::State;
use crate::limit_spec::LimitSpec;

pub(super) const DECLARATION: Declaration =
    Declaration { name: "fixed_window", key_name: "fixed", fields: &[] };

/// Hits per window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FixedWindow {
    hits: u64,
    period_ms: u64,
}

impl FixedWindow {
    pub(super) const fn new(spec: &LimitSpec) -> Self {
        Self { hits: spec.hits, period_ms: spec.period_ms }
    }

    /// The window that `now_ms` falls into, or the stored one where the clock has stepped back.
    fn current(&self, state: &State, now_ms: u64) -> Record {
        let start_ms = now_ms - now_ms % self.period_ms;
        match state.window() {
            Some(window) if window.at_ms >= start_ms => window,
            Some(_) | None => Record { at_ms: start_ms, amount: 0 },
        }
    }
}

impl Operations for FixedWindow {
    fn capacity(&self) -> u64 {
        self.hits
    }

    fn take(&self, state: &mut State, now_ms: u64, hits: u64) {
        let window = self.current(state, now_ms);
        *state = State::Window(Record { amount: add(window.amount, hits), ..window });
    }

    /// Refunds to the stored window, which is the current one.
    fn refund(&self, state: &mut State, _now_ms: u64, hits: u64) {
        if let State::Window(window) = state {
            window.amount = window.amount.saturating_sub(hits);
        }
    }

    fn used(&self, state: &State, now_ms: u64) -> u64 {
        self.current(state, now_ms).amount
    }

    fn reset_after_ms(&self, state: &State, now_ms: u64) -> u64 {
        let window = self.current(state, now_ms);
        window.at_ms + self.period_ms - now_ms.max(window.at_ms)
    }

    fn retry_after_ms(&self, state: &State, now_ms: u64, _hits: u64) -> u64 {
        self.reset_after_ms(state, now_ms)
    }

    fn script_arguments(&self) -> ScriptArguments {
        ScriptArguments { code: 1, a: 0, b: 0 }
    }

    fn ends_with_window(&self) -> bool {
        true
    }
}
