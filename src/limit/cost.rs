//! What a decision costs the store at most, so that no request and no batch of them holds it for long.
//!
//! A script run holds Redis, and in memory a decision holds its shards. The costs follow the worst
//! that was measured of each algorithm in Redis 7.0, not what is usual: a log that is searched after a
//! pause and drops what has left the period, a counter with a hit in every sub-window that gives some
//! back. The unit is about a microsecond on a slow machine.

use super::{Algorithm, LOG_HITS_MAX, Limit, Shape};

/// The most that one request may cost: below 2 ms of Redis, with a margin of about two.
pub const RUN_COST_MAX: usize = 1_024;

/// Records beyond which a log can hold Redis for more than 2 ms: not when it is used, but when its
/// bytes outgrow their place and are copied to another.
pub const LOG_RECORDS_BOUNDED: u64 = 16_384;

/// A log of no more hits is read and written whole.
const SHORT_LOG_RECORDS: u64 = 24;

const WINDOW_COST: usize = 4;
const SHORT_LOG_COST: usize = 12;
/// Of each doubling of a log's records: a search reads one more.
const LOG_DOUBLING_COST: usize = 3;
/// Sub-windows that are summed in one unit.
const SUB_WINDOWS_PER_UNIT: usize = 4;

impl Limit {
    /// What deciding this limit costs at most, in units of about a microsecond.
    pub const fn run_cost(&self) -> usize {
        match self.shape {
            Shape::FixedWindow | Shape::Bucket(_) => WINDOW_COST,
            Shape::SlidingWindowCounter(windows) => {
                WINDOW_COST + windows.count as usize / SUB_WINDOWS_PER_UNIT
            }
            Shape::SlidingWindowLog => {
                let records = self.log_records_max();
                if records <= SHORT_LOG_RECORDS {
                    return SHORT_LOG_COST;
                }
                let doublings = u64::BITS - records.leading_zeros();
                SHORT_LOG_COST + doublings as usize * LOG_DOUBLING_COST
            }
        }
    }

    /// The most records that a log can hold: one a hit, unless it goes into debt, and one a millisecond.
    pub const fn log_records_max(&self) -> u64 {
        if !matches!(self.algorithm, Algorithm::SlidingWindowLog) {
            return 0;
        }
        let hits = if self.overdraft() { LOG_HITS_MAX } else { self.hits };
        if hits < self.period_ms { hits } else { self.period_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{LimitSpec, SUB_WINDOWS_MAX};

    fn cost(algorithm: Algorithm, hits: u64, sub_windows: Option<u32>, overdraft: bool) -> usize {
        let period_ms = 3_600_000;
        let spec = LimitSpec {
            algorithm,
            hits,
            period_ms,
            sub_windows,
            overdraft,
            ..LimitSpec::default()
        };
        Limit::new(&spec).unwrap().run_cost()
    }

    #[test]
    fn the_cost_follows_what_a_decision_may_read_and_write() {
        let window = cost(Algorithm::FixedWindow, 9, None, false);
        assert_eq!(window * 256, RUN_COST_MAX, "a window for each of the most descriptors");
        let log = |hits, overdraft| cost(Algorithm::SlidingWindowLog, hits, None, overdraft);
        assert!(log(10, false) < log(100, false) && log(100, false) < log(10_000, false));
        assert_eq!(log(10, true), log(LOG_HITS_MAX, false), "debt is not bounded by the limit");
        let counter = |count| cost(Algorithm::SlidingWindowCounter, 9, Some(count), false);
        assert!(counter(10) < counter(100) && counter(SUB_WINDOWS_MAX) * 4 <= RUN_COST_MAX);
    }
}
