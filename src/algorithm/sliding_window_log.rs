//! Records every hit of the last period, so that no period of any start admits more than the limit.

pub(super) mod log;

use super::operations::{Declaration, Operations, ScriptArguments};
use super::state::State;
use crate::limit_spec::{Excess, LimitError, LimitSpec};
use log::SMALL_MAX;

/// The largest limit of a sliding window log, which stores every hit.
pub const LOG_HITS_MAX: u64 = 1 << 20;

/// Above this many records, a log can hold Redis for more than 2 ms: not while it is used, but when
/// its bytes outgrow their allocation and are copied to a larger one.
pub const LOG_RECORDS_BOUNDED: u64 = 16_384;

/// The cost of a log of up to [`SMALL_MAX`] records.
const SMALL_COST: usize = 12;

/// The cost added by each doubling of a log's records: a search reads one more record.
const DOUBLING_COST: usize = 3;

pub(super) const DECLARATION: Declaration =
    Declaration { name: "sliding_window_log", key_name: "log", fields: &[] };

/// Hits per period, every one of which is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlidingWindowLog {
    hits: u64,
    period_ms: u64,
}

impl SlidingWindowLog {
    pub(super) fn new(spec: &LimitSpec) -> Result<Self, LimitError> {
        if spec.hits > LOG_HITS_MAX {
            let message = format!(
                "{} is too large for a log, which stores every hit; the maximum is {LOG_HITS_MAX}; \
                 use sliding_window_counter",
                spec.hits
            );
            return Err(LimitError::new("limit", message));
        }
        Ok(Self { hits: spec.hits, period_ms: spec.period_ms })
    }
}

impl Operations for SlidingWindowLog {
    fn capacity(&self) -> u64 {
        self.hits
    }

    fn take(&self, state: &mut State, now_ms: u64, hits: u64) {
        state.log_mut().take(self.period_ms, now_ms, hits);
    }

    fn refund(&self, state: &mut State, now_ms: u64, hits: u64) {
        state.log_mut().refund(self.period_ms, now_ms, hits);
    }

    fn used(&self, state: &State, now_ms: u64) -> u64 {
        state.log().map_or(0, |log| log.used(self.period_ms, now_ms))
    }

    fn reset_after_ms(&self, state: &State, now_ms: u64) -> u64 {
        state.log().map_or(0, |log| log.reset_after_ms(self.period_ms, now_ms))
    }

    fn retry_after_ms(&self, state: &State, now_ms: u64, hits: u64) -> u64 {
        let room = self.hits - hits;
        state.log().map_or(1, |log| log.retry_after_ms(self.period_ms, now_ms, room))
    }

    fn script_arguments(&self) -> ScriptArguments {
        ScriptArguments { code: 2, a: 0, b: 0 }
    }

    fn is_read_whole(&self) -> bool {
        false
    }

    fn run_cost(&self, excess: Excess) -> usize {
        let records = self.log_records_max(excess);
        if records <= SMALL_MAX as u64 {
            return SMALL_COST;
        }
        let doublings = u64::BITS - records.leading_zeros();
        SMALL_COST + doublings as usize * DOUBLING_COST
    }

    /// One per hit, unless the limit allows debt, and at most one per millisecond.
    fn log_records_max(&self, excess: Excess) -> u64 {
        let hits = if excess == Excess::Overdraft { LOG_HITS_MAX } else { self.hits };
        hits.min(self.period_ms)
    }
}
