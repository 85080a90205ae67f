//! How often a connection is replaced that leads to a replica: at once at first, then ever more rarely
//! while the new ones lead to a replica too, but often enough that a new primary is found within a
//! second.

use parking_lot::Mutex;

/// The least and the greatest pause from one replacement to the next. Each is shortened at random by up
/// to a half, so that threads and replicas do not all reconnect at the same moment.
const PAUSE_MIN_US: u64 = 50_000;
const PAUSE_MAX_US: u64 = 400_000;

/// When the next replacement may begin.
#[derive(Debug, Default)]
pub(super) struct Backoff(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    under_way: bool,
    /// The pause after the last replacement; 0 where there was none.
    pause_us: u64,
    not_before_us: u64,
}

impl Backoff {
    /// Whether a replacement may begin at `now_us`; then it is under way until [`Backoff::end`].
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

    /// The replacement is done, or failed.
    pub(super) fn end(&self) {
        self.0.lock().under_way = false;
    }

    /// The connection leads to a primary: the next replacement may begin at once.
    pub(super) fn reset(&self) {
        let mut inner = self.0.lock();
        (inner.pause_us, inner.not_before_us) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When replacements begin that are wanted every millisecond of a second and end at once.
    fn begun_ms(backoff: &Backoff) -> Vec<u64> {
        let begins = |ms: &u64| {
            let begins = backoff.begin(ms * 1_000);
            backoff.end();
            begins
        };
        (0..1_000).filter(begins).collect()
    }

    #[test]
    fn replacements_come_at_once_and_then_ever_more_rarely() {
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
    fn one_replacement_is_under_way_at_once() {
        let backoff = Backoff::default();
        assert!(backoff.begin(0));
        assert!(!backoff.begin(1_000_000), "it is not over");
        backoff.end();
        assert!(backoff.begin(1_000_000));
    }

    #[test]
    fn a_server_that_decided_is_left_at_once() {
        let backoff = Backoff::default();
        begun_ms(&backoff);
        backoff.reset();
        assert!(backoff.begin(1_000_000));
        backoff.end();
        assert!(!backoff.begin(1_000_000), "and not twice");
    }
}
