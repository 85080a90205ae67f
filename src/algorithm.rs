//! What each algorithm admits: pure integer arithmetic on a state and a moment.
//!
//! Nothing here reads a clock, waits or allocates beyond a state's own records; the same formulas
//! stand in `lua/`, and a test runs both side by side and compares answers and stored bytes.
//! Times are milliseconds since the epoch, and hits saturate at [`HITS_MAX`](crate::limit::HITS_MAX).
//!
//! A state never runs before the moment of the last hit that it took: where the clock steps
//! back, each algorithm reads its state at that moment instead.

mod bucket;
mod fixed_window;
mod record;
mod sliding_window_counter;
mod sliding_window_log;
mod state;

pub use record::Record;
pub use sliding_window_log::Log;
pub use state::{Debt, FORMAT, State, Water};

use crate::limit::{Limit, Shape};

impl Limit {
    /// Whether `hits` more fit at `now_ms`.
    pub fn admits(&self, state: &State, now_ms: u64, hits: u64) -> bool {
        hits <= self.remaining(state, now_ms)
    }

    /// Takes `hits`, whether they fit or not.
    pub fn take(&self, state: &mut State, now_ms: u64, hits: u64) {
        match self.shape() {
            Shape::FixedWindow => fixed_window::take(self.period_ms(), state, now_ms, hits),
            Shape::SlidingWindowLog => {
                state.log_mut().take(self.period_ms(), now_ms, hits);
            }
            Shape::SlidingWindowCounter(windows) => {
                windows.take(state.records_mut(), now_ms, hits);
            }
            Shape::Bucket(bucket) => bucket.take(state, now_ms, hits),
        }
    }

    /// Gives `hits` back, down to nothing used; a state with nothing used is fresh.
    pub fn refund(&self, state: &mut State, now_ms: u64, hits: u64) {
        if self.is_unused(state, now_ms) {
            return;
        }
        match self.shape() {
            Shape::FixedWindow => fixed_window::refund(state, hits),
            Shape::SlidingWindowLog => state.log_mut().refund(self.period_ms(), now_ms, hits),
            Shape::SlidingWindowCounter(windows) => {
                windows.refund(state.records_mut(), now_ms, hits);
            }
            Shape::Bucket(bucket) => bucket.refund(state, now_ms, hits),
        }
        if self.is_unused(state, now_ms) {
            *state = State::Fresh;
        }
    }

    /// Single hits that fit at `now_ms`.
    pub fn remaining(&self, state: &State, now_ms: u64) -> u64 {
        match self.shape() {
            Shape::Bucket(bucket) => bucket.remaining(state, now_ms),
            Shape::FixedWindow | Shape::SlidingWindowLog | Shape::SlidingWindowCounter(_) => {
                self.hits().saturating_sub(self.used_hits(state, now_ms))
            }
        }
    }

    /// Hits that count at `now_ms`; a started one of a bucket counts as whole.
    pub fn used_hits(&self, state: &State, now_ms: u64) -> u64 {
        match self.shape() {
            Shape::FixedWindow => fixed_window::used(self.period_ms(), state.window(), now_ms),
            Shape::SlidingWindowLog => {
                state.log().map_or(0, |log| log.used(self.period_ms(), now_ms))
            }
            Shape::SlidingWindowCounter(windows) => windows.used(state.records(), now_ms),
            Shape::Bucket(bucket) => bucket.used(state, now_ms),
        }
    }

    /// Milliseconds from `now_ms` until all hits are free again; 0 where nothing is used, but for a
    /// fixed window, which tells what is left of it.
    pub fn reset_after_ms(&self, state: &State, now_ms: u64) -> u64 {
        match self.shape() {
            Shape::FixedWindow => {
                fixed_window::reset_after_ms(self.period_ms(), state.window(), now_ms)
            }
            Shape::SlidingWindowLog => {
                state.log().map_or(0, |log| log.reset_after_ms(self.period_ms(), now_ms))
            }
            Shape::SlidingWindowCounter(windows) => windows.reset_after_ms(state.records(), now_ms),
            Shape::Bucket(bucket) => bucket.reset_after_ms(state, now_ms),
        }
    }

    /// The smallest wait in milliseconds, at least 1, after which `hits` that do not fit at
    /// `now_ms` would, if nothing else came; `None` where no wait suffices.
    pub fn retry_after_ms(&self, state: &State, now_ms: u64, hits: u64) -> Option<u64> {
        if hits > self.capacity() {
            return None;
        }
        Some(match self.shape() {
            Shape::FixedWindow => {
                fixed_window::reset_after_ms(self.period_ms(), state.window(), now_ms)
            }
            Shape::SlidingWindowLog => {
                let room = self.hits() - hits;
                state.log().map_or(1, |log| log.retry_after_ms(self.period_ms(), now_ms, room))
            }
            Shape::SlidingWindowCounter(windows) => {
                windows.retry_after_ms(state.records(), now_ms, self.hits() - hits)
            }
            Shape::Bucket(bucket) => bucket.retry_after_ms(state, now_ms, hits),
        })
    }

    /// Milliseconds that a hit taken at `now_ms` waits for the water ahead of it.
    pub fn delay_ms(&self, state: &State, now_ms: u64) -> u64 {
        self.reset_after_ms(state, now_ms)
    }

    /// Milliseconds from `now_ms` for which the state matters: where the clock has stepped back,
    /// also those until it is where it was.
    pub fn keep_ms(&self, state: &State, now_ms: u64) -> u64 {
        let ahead_ms = state.moment_ms().saturating_sub(now_ms);
        self.reset_after_ms(state, now_ms) + ahead_ms
    }

    fn is_unused(&self, state: &State, now_ms: u64) -> bool {
        matches!(state, State::Fresh) || self.used_hits(state, now_ms) == 0
    }
}
