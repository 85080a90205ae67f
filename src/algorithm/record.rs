//! The record that all stored states are made of.

/// An amount at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// Hits, or units of water.
    pub amount: u64,
}

pub(super) fn push_record(bytes: &mut Vec<u8>, record: Record) {
    bytes.extend_from_slice(&record.at_ms.to_le_bytes()[..6]);
    bytes.extend_from_slice(&record.amount.to_le_bytes()[..7]);
}
