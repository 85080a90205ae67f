//! What each algorithm admits: pure integer arithmetic on a state and a moment.
//!
//! Each file here has all that is special about an algorithm, or about a family that shares its
//! arithmetic: its names, the check of a limit, and the operations on a state. This file lists them,
//! `limit.rs` calls them through `dispatch!`, and no other code asks which algorithm a limit has.
//!
//! Nothing here reads a clock, waits or allocates, except for a state's own records. The same
//! formulas are in `lua/`, and a test runs both side by side and compares answers and stored bytes.
//! Times are milliseconds since the epoch, and hits saturate at `HITS_MAX`.
//!
//! A state never runs before the moment of the last hit that it took: if the clock steps back, each
//! algorithm reads its state at that moment instead.

mod bucket;
mod cost;
mod fixed_window;
mod operations;
mod record;
mod sliding_window_counter;
mod sliding_window_log;
mod state;

pub use cost::RUN_COST_MAX;
pub use operations::{KeyName, ScriptArguments};
pub use record::Record;
pub use sliding_window_counter::{SUB_WINDOWS_DEFAULT, SUB_WINDOWS_MAX};
pub use sliding_window_log::{LOG_HITS_MAX, LOG_RECORDS_BOUNDED, log::Log};
pub use state::{Debt, FORMAT, State, Water};

use crate::limit_spec::{Algorithm, LimitError, LimitSpec};
use bucket::Bucket;
use fixed_window::FixedWindow;
use operations::Declaration;
pub(crate) use operations::Operations;
use sliding_window_counter::SubWindows;
use sliding_window_log::SlidingWindowLog;

/// The arithmetic of a limit. Algorithms that share theirs share a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Arithmetic {
    FixedWindow(FixedWindow),
    SlidingWindowLog(SlidingWindowLog),
    SlidingWindowCounter(SubWindows),
    Bucket(Bucket),
}

/// Evaluates an expression with the value of whichever variant an [`Arithmetic`] is.
macro_rules! dispatch {
    ($arithmetic:expr, $one:ident => $result:expr) => {
        match $arithmetic {
            $crate::algorithm::Arithmetic::FixedWindow($one) => $result,
            $crate::algorithm::Arithmetic::SlidingWindowLog($one) => $result,
            $crate::algorithm::Arithmetic::SlidingWindowCounter($one) => $result,
            $crate::algorithm::Arithmetic::Bucket($one) => $result,
        }
    };
}
pub(crate) use dispatch;

impl Algorithm {
    /// All algorithms, in the order in which messages list them.
    pub const ALL: [Self; 6] = [
        Self::FixedWindow,
        Self::SlidingWindowLog,
        Self::SlidingWindowCounter,
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::Gcra,
    ];

    const fn declaration(self) -> &'static Declaration {
        match self {
            Self::FixedWindow => &fixed_window::DECLARATION,
            Self::SlidingWindowLog => &sliding_window_log::DECLARATION,
            Self::SlidingWindowCounter => &sliding_window_counter::DECLARATION,
            Self::TokenBucket => &bucket::TOKEN_BUCKET,
            Self::LeakyBucket => &bucket::LEAKY_BUCKET,
            Self::Gcra => &bucket::GCRA,
        }
    }
}

impl Algorithm {
    /// The name in limits files.
    pub const fn name(self) -> &'static str {
        self.declaration().name
    }

    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The name in keys.
    pub(crate) const fn key_name(self) -> &'static str {
        self.declaration().key_name
    }

    /// Whether limits of this algorithm can have this field of
    /// [`LimitSpec::OPTIONAL_FIELDS`].
    pub fn has_field(self, field: &str) -> bool {
        self.declaration().fields.contains(&field)
    }

    /// Checks that limits of this algorithm can have this optional field.
    ///
    /// # Errors
    /// They cannot; the message names algorithms whose limits can.
    pub fn check_field(self, field: &'static str) -> Result<(), LimitError> {
        if self.has_field(field) {
            return Ok(());
        }
        let others = Self::ALL.into_iter().filter(|other| other.has_field(field));
        let others = alternatives(&others.map(Self::name).collect::<Vec<_>>());
        Err(LimitError::new(field, format!("{} has none; use {others}", self.name())))
    }

    /// Checks a limit whose hits and period are within their bounds, and prepares its arithmetic.
    pub(crate) fn prepare(self, spec: &LimitSpec) -> Result<Arithmetic, LimitError> {
        Ok(match self {
            Self::FixedWindow => Arithmetic::FixedWindow(FixedWindow::new(spec)),
            Self::SlidingWindowLog => Arithmetic::SlidingWindowLog(SlidingWindowLog::new(spec)?),
            Self::SlidingWindowCounter => Arithmetic::SlidingWindowCounter(SubWindows::new(spec)?),
            Self::TokenBucket => Arithmetic::Bucket(Bucket::token(spec)?),
            Self::LeakyBucket => Arithmetic::Bucket(Bucket::leaky(spec)?),
            Self::Gcra => Arithmetic::Bucket(Bucket::gcra(spec)?),
        })
    }
}

/// `a, b or c`.
fn alternatives(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
