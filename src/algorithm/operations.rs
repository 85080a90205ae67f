//! What every algorithm defines in its own file: a [`Declaration`] of its names, and the
//! [`Operations`] on its states.

use std::fmt;

use super::cost::AMOUNT_COST;
use super::state::State;
use crate::limit_spec::{Excess, HITS_MAX, LimitSpec};

/// An algorithm's names and optional fields.
pub(super) struct Declaration {
    /// The name in limits files.
    pub(super) name: &'static str,
    /// The name in keys.
    pub(super) key_name: &'static str,
    /// The optional fields of [`LimitSpec`] that it has.
    pub(super) fields: &'static [&'static str],
}

/// What every algorithm computes for a limit. Moments are milliseconds since the epoch.
pub(crate) trait Operations {
    /// The most hits that fit at once.
    fn capacity(&self) -> u64;

    /// Takes `hits`, whether they fit or not.
    fn take(&self, state: &mut State, now_ms: u64, hits: u64);

    /// Refunds `hits`. Called only while some are used.
    fn refund(&self, state: &mut State, now_ms: u64, hits: u64);

    /// Hits that count at `now_ms`.
    fn used(&self, state: &State, now_ms: u64) -> u64;

    /// Single hits that fit at `now_ms`.
    fn remaining(&self, state: &State, now_ms: u64) -> u64 {
        self.capacity().saturating_sub(self.used(state, now_ms))
    }

    /// Milliseconds until all hits are free again.
    fn reset_after_ms(&self, state: &State, now_ms: u64) -> u64;

    /// Milliseconds, at least 1, until `hits` fit. Called only if they do not fit now and are at most
    /// the capacity.
    fn retry_after_ms(&self, state: &State, now_ms: u64, hits: u64) -> u64;

    /// Milliseconds that an admitted request is to wait.
    fn delay_ms(&self, _state: &State, _now_ms: u64) -> u64 {
        0
    }

    /// The code of the algorithm in the script, and two numbers that it needs.
    fn script_arguments(&self) -> ScriptArguments;

    /// Whether the script reads the state as a whole. `false`: its keys follow the others in KEYS.
    fn is_read_whole(&self) -> bool {
        true
    }

    /// The maximum cost of a decision, in units of about a microsecond.
    fn run_cost(&self, _excess: Excess) -> usize {
        AMOUNT_COST
    }

    /// The most records that a log can hold.
    fn log_records_max(&self, _excess: Excess) -> u64 {
        0
    }

    /// A number that determines the layout of the state and is part of the key: with another one, a
    /// counter starts empty.
    fn grid(&self) -> Option<u32> {
        None
    }

    /// Whether all hits are free again at one moment, when the current window ends.
    fn ends_with_window(&self) -> bool {
        false
    }

    /// Sets the algorithm's optional fields.
    fn set_fields(&self, _spec: &mut LimitSpec) {}
}

/// What the script is sent about the algorithm of a limit; `lua/contract.lua` has the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptArguments {
    /// ALGORITHM in the script.
    pub code: u8,
    /// A, at most 7 bytes.
    pub a: u64,
    /// B, at most 6 bytes.
    pub b: u64,
}

/// What a key says about how its state is stored: `log`, or `counter10` with a grid of 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyName {
    /// The algorithm's name in keys.
    pub algorithm: &'static str,
    /// The number that determines the layout of the state.
    pub grid: Option<u32>,
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm)?;
        self.grid.map_or(Ok(()), |grid| write!(f, "{grid}"))
    }
}

/// `a + b`, at most [`HITS_MAX`].
pub(super) const fn add(a: u64, b: u64) -> u64 {
    let sum = a.saturating_add(b);
    if sum > HITS_MAX { HITS_MAX } else { sum }
}
