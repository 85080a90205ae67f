//! Counts answers, failures and latencies.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::call::Failure;

/// Significant digits of the histogram: 3 make every latency exact to a thousandth.
const FIGURES: u8 = 3;

/// Longer latencies count as this.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// The counts of one load.
pub(super) struct Tally {
    pub(super) allowed: u64,
    pub(super) over_limit: u64,
    /// Failures by cause.
    pub(super) errors: BTreeMap<String, u64>,
    /// Requests that the service answered, with a decision or an error.
    pub(super) answered: u64,
    /// Nanoseconds per decided request.
    pub(super) latencies: Histogram<u64>,
    /// When the last request ended.
    pub(super) last: Duration,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            allowed: 0,
            over_limit: 0,
            errors: BTreeMap::new(),
            answered: 0,
            latencies: histogram(),
            last: Duration::ZERO,
        }
    }
}

#[allow(clippy::expect_used)] // it refuses only bounds in the wrong order and more than 5 figures
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, FIGURES).expect("bounds and figures fit")
}

impl Tally {
    /// Records a request that ran from `start` to `end`.
    pub(super) fn count(&mut self, outcome: Result<bool, Failure>, start: Duration, end: Duration) {
        self.last = self.last.max(end);
        self.answered += u64::from(!matches!(outcome, Err(Failure::Lost(_))));
        match outcome {
            Ok(true) => self.allowed += 1,
            Ok(false) => self.over_limit += 1,
            Err(Failure::Call(why)) => return self.fail(why.into_owned(), 1),
            Err(Failure::Lost(why)) => return self.fail(format!("connection lost: {why}"), 1),
            Err(Failure::Closing) => return self.fail("connection closed".to_owned(), 1),
        }
        let ns = u64::try_from(end.saturating_sub(start).as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(ns);
    }

    /// Records requests without a decision.
    pub(super) fn fail(&mut self, why: String, count: u64) {
        *self.errors.entry(why).or_default() += count;
    }

    /// Requests that were decided or failed.
    pub(super) fn requests(&self) -> u64 {
        self.allowed + self.over_limit + self.errors.values().sum::<u64>()
    }
}
