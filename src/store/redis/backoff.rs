//! Exponential backoff between replacements of a connection that leads to a replica.
//!
//! After a failover, a connection may lead to a server that is now a replica. Replacing it resolves
//! the host name and queries the sentinels again. The first replacement is made at once. While the new
//! connections lead to a replica too, the pauses double, but stay short enough that a new primary
//! is found within a second.

use parking_lot::Mutex;

/// The shortest and the longest pause between two replacements. Each pause is shortened at random
/// by up to a half, so that threads and replicas do not all reconnect at the same moment.
const PAUSE_MIN_US: u64 = 50_000;
const PAUSE_MAX_US: u64 = 400_000;

/// The moment of the next replacement, and whether one is under way.
#[derive(Debug, Default)]
pub(super) struct Backoff(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    under_way: bool,
    /// The pause after the last replacement; 0 if there was none.
    pause_us: u64,
    not_before_us: u64,
}

impl Backoff {
    /// Whether a replacement may begin at `now_us`. If so, it is under way until [`Backoff::end`].
    pub(super) fn begin(&self, now_us: u64) -> bool {
        let mut inner = self.0.lock();
        if inner.under_way || now_us < inner.not_before_us {
            return false;
        }
        inner.under_way = true;
        inner.pause_us = (2 * inner.pause_us).clamp(PAUSE_MIN_US, PAUSE_MAX_US);
        inner.not_before_us = now_us + fastrand::u64(inner.pause_us / 2..=inner.pause_us);
        true
    }

    /// Ends a replacement, which succeeded or failed.
    pub(super) fn end(&self) {
        self.0.lock().under_way = false;
    }

    /// Lets the next replacement begin at once, because the connection leads to a primary.
    pub(super) fn reset(&self) {
        let mut inner = self.0.lock();
        (inner.pause_us, inner.not_before_us) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The moments at which replacements begin if one is wanted in every millisecond of a second
    /// and each ends at once.
    fn begun_ms(backoff: &Backoff) -> Vec<u64> {
        let begins = |ms: &u64| {
            let begins = backoff.begin(ms * 1_000);
            backoff.end();
            begins
        };
        (0..1_000).filter(begins).collect()
    }

    #[test]
    fn the_first_replacement_is_made_at_once_and_then_pauses_double() {
        for seed in 0..1_000 {
            fastrand::seed(seed);
            let backoff = Backoff::default();
            let begun = begun_ms(&backoff);
            assert_eq!(begun[0], 0);
            assert!((4..=8).contains(&begun.len()), "{begun:?}");
            let pauses: Vec<u64> = begun.windows(2).map(|pair| pair[1] - pair[0]).collect();
            for (pause, longest) in pauses.iter().zip([50, 100, 200, 400, 400, 400, 400]) {
                assert!((longest / 2..=longest).contains(pause), "{begun:?}");
            }
        }
    }

    #[test]
    fn one_replacement_is_under_way_at_a_time() {
        let backoff = Backoff::default();
        assert!(backoff.begin(0));
        assert!(!backoff.begin(1_000_000), "the first has not ended");
        backoff.end();
        assert!(backoff.begin(1_000_000));
    }

    #[test]
    fn after_a_decision_a_connection_is_replaced_at_once() {
        let backoff = Backoff::default();
        begun_ms(&backoff);
        backoff.reset();
        assert!(backoff.begin(1_000_000));
        backoff.end();
        assert!(!backoff.begin(1_000_000), "but only once");
    }
}
