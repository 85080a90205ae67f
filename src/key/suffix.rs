//! The end of a key: algorithm, period, and a number where one rule has several such limits.

use smallvec::SmallVec;

use crate::limit::{KeyName, Limit};
use crate::period;

/// What follows the path in the keys of one limit; spelled once, when the limit loads.
#[derive(Clone, Debug)]
pub struct KeySuffix(SmallVec<[u8; 24]>);

impl KeySuffix {
    /// The suffix for a limit. `ordinal` distinguishes limits of one rule with the same algorithm,
    /// period and sub-windows: 0 for the first of them.
    pub fn of(limit: &Limit, ordinal: u8) -> Self {
        let mut tail = SmallVec::new();
        tail.push(b':');
        let KeyName { algorithm, grid } = limit.key_name();
        tail.extend_from_slice(algorithm.as_bytes());
        // Another grid, such as another number of sub-windows, starts with an empty state.
        if let Some(grid) = grid {
            tail.extend_from_slice(grid.to_string().as_bytes());
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
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
