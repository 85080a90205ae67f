//! The record that most states are made of, and the addition of hits.

use crate::limit::HITS_MAX;

/// An amount at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// Hits, or units of water.
    pub amount: u64,
}

/// Appends the 13 bytes of a record.
pub(super) fn push_record(bytes: &mut Vec<u8>, record: Record) {
    bytes.extend_from_slice(&record.at_ms.to_le_bytes()[..6]);
    bytes.extend_from_slice(&record.amount.to_le_bytes()[..7]);
}

/// `a + b`, at most [`HITS_MAX`].
pub(super) const fn add(a: u64, b: u64) -> u64 {
    let sum = a.saturating_add(b);
    if sum > HITS_MAX { HITS_MAX } else { sum }
}
