//! The end of a key: algorithm, period, and a number where one rule has several such limits.

use smallvec::SmallVec;

use crate::limit::{Algorithm, Limit, Shape};
use crate::period;

/// What follows the path in the keys of one limit; spelled once, when the limit loads.
#[derive(Clone, Debug)]
pub struct KeySuffix(SmallVec<[u8; 24]>);

impl KeySuffix {
    /// The suffix for a limit. `ordinal` distinguishes limits of one rule with the same algorithm
    /// and period.
    pub fn of(limit: &Limit, ordinal: u8) -> Self {
        let mut tail = SmallVec::new();
        tail.push(b':');
        tail.extend_from_slice(algorithm_name(limit).as_bytes());
        // Parameters that shape the state: another number of sub-windows starts with an empty
        // state.
        if let Shape::SlidingWindowCounter(windows) = limit.shape() {
            tail.extend_from_slice(windows.count.to_string().as_bytes());
        }
        tail.push(b':');
        tail.extend_from_slice(period::format(limit.period_ms()).as_bytes());
        if ordinal > 0 {
            tail.push(b'#');
            tail.extend_from_slice(ordinal.to_string().as_bytes());
        }
        Self(tail)
    }
    /// The end of a key.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

const fn algorithm_name(limit: &Limit) -> &'static str {
    match limit.algorithm() {
        Algorithm::FixedWindow => "fixed",
        Algorithm::SlidingWindowLog => "log",
        Algorithm::SlidingWindowCounter => "counter",
        Algorithm::TokenBucket => "token",
        Algorithm::LeakyBucket => "leaky",
        Algorithm::Gcra => "gcra",
    }
}
