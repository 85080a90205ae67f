//! The state of a counter, and the bytes that Redis stores for it.
//!
//! Every state is a sequence of records of 13 bytes: a moment in 6 and an amount in 7, little-endian.
//! A log has a header before them. Lua reads and writes the same bytes with `struct`.

use super::record::{Record, push_record};
use super::sliding_window_log::log::Log;
use crate::limit_spec::HITS_MAX;

/// The format of stored bytes and of script calls that this build writes. It reads all formats from
/// 1 on.
///
/// 1. The first.
/// 2. Buckets in debt by more than 2^53 - 1 units have 32 bytes; logs may have a moves record.
///
/// A test compares it with `tests/golden/format`, which holds states, calls and the script of each.
pub const FORMAT: u32 = 2;

/// The content of a bucket at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Water {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// Units; a hit is `weight` units.
    pub units: u64,
    /// Units per hit when they were counted. A limit that has changed since converts them.
    pub weight: u64,
}

/// The content of a bucket with more than 2^53 - 1 units, which only overdrafts reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// Whole hits, at most [`HITS_MAX`].
    pub hits: u64,
    /// The remaining units, fewer than one hit weighs.
    pub units: u64,
    /// Units per hit when they were counted.
    pub weight: u64,
}

/// The state of one counter; each algorithm has its own variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing used.
    #[default]
    Fresh,
    /// A fixed window: where it starts, and its count.
    Window(Record),
    /// A sliding window log.
    Log(Box<Log>),
    /// The non-empty sub-windows of a sliding window counter by their start, oldest first.
    SubWindows(Vec<Record>),
    /// A bucket.
    Water(Water),
    /// A bucket with more than 2^53 - 1 units of water, boxed because it is rare: it would make every
    /// other state larger.
    Debt(Box<Debt>),
}

impl State {
    /// The bytes that Redis stores; none for a fresh state.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Fresh => {}
            Self::Window(record) => push_record(&mut bytes, *record),
            Self::SubWindows(records) => {
                records.iter().for_each(|record| push_record(&mut bytes, *record));
            }
            Self::Water(water) => {
                push_record(&mut bytes, Record { at_ms: water.at_ms, amount: water.units });
                bytes.extend_from_slice(&water.weight.to_le_bytes()[..6]);
            }
            // As a bucket that is as full as units can say, which is how versions that know no debts read it.
            Self::Debt(debt) => {
                push_record(&mut bytes, Record { at_ms: debt.at_ms, amount: HITS_MAX });
                bytes.extend_from_slice(&debt.weight.to_le_bytes()[..6]);
                bytes.extend_from_slice(&debt.hits.to_le_bytes()[..7]);
                bytes.extend_from_slice(&debt.units.to_le_bytes()[..6]);
            }
            Self::Log(log) => log.encode(&mut bytes),
        }
        bytes
    }

    /// The moment of the state: earlier clock readings count as this moment.
    pub(crate) fn moment_ms(&self) -> u64 {
        match self {
            Self::Fresh => 0,
            Self::Window(record) => record.at_ms,
            Self::Log(log) => log.moment_ms(),
            Self::SubWindows(records) => records.last().map_or(0, |newest| newest.at_ms),
            Self::Water(water) => water.at_ms,
            Self::Debt(debt) => debt.at_ms,
        }
    }

    pub(super) fn window(&self) -> Option<Record> {
        if let Self::Window(record) = self { Some(*record) } else { None }
    }

    pub(super) fn records(&self) -> &[Record] {
        if let Self::SubWindows(records) = self { records } else { &[] }
    }

    pub(super) fn log(&self) -> Option<&Log> {
        if let Self::Log(log) = self { Some(log) } else { None }
    }

    /// The sub-windows; a state of another kind is replaced by an empty one.
    pub(super) fn records_mut(&mut self) -> &mut Vec<Record> {
        if !matches!(self, Self::SubWindows(_)) {
            *self = Self::SubWindows(Vec::new());
        }
        match self {
            Self::SubWindows(records) => records,
            Self::Fresh | Self::Window(_) | Self::Log(_) | Self::Water(_) | Self::Debt(_) => {
                unreachable!()
            }
        }
    }

    /// The log; a state of another kind is replaced by an empty one.
    pub(super) fn log_mut(&mut self) -> &mut Log {
        if !matches!(self, Self::Log(_)) {
            *self = Self::Log(Box::default());
        }
        match self {
            Self::Log(log) => log,
            Self::Fresh
            | Self::Window(_)
            | Self::SubWindows(_)
            | Self::Water(_)
            | Self::Debt(_) => unreachable!(),
        }
    }
}
