//! The maximum cost of a decision for the store, so that no request and no batch of them holds it
//! for long.
//!
//! A script run holds Redis, and in memory a decision holds its shards. The costs follow the worst
//! case measured for each algorithm in Redis 7.0: a log that is searched after a pause and drops its
//! expired records, a counter with a hit in every sub-window that refunds some.
//! The unit is about a microsecond on a slow machine.

/// The most that one request may cost: below 2 ms of Redis, with a margin of about two.
pub const RUN_COST_MAX: usize = 1_024;

/// The cost of a state with a single amount.
pub(super) const AMOUNT_COST: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Algorithm, LOG_HITS_MAX, Limit, LimitSpec, SUB_WINDOWS_MAX};

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
