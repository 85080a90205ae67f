//! A limit as written in a limits file or a request, and the bounds of its numbers.
//!
//! The algorithms use these types: each checks a [`LimitSpec`] in its own file and derives its
//! arithmetic from it. So nothing here depends on an algorithm.

use std::fmt;

use crate::period::Unit;

/// 2^53 - 1, the largest integer up to which a double is exact, because Lua computes in doubles.
/// Hits, limits and states saturate here.
pub const HITS_MAX: u64 = (1 << 53) - 1;

/// The longest period: 36,500 days.
pub const PERIOD_MAX_MS: u64 = 36_500 * Unit::Day.ms();

/// How hits are counted. The numbers are those of the enum `Algorithm` in `tidegate.proto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Counts in windows aligned to the epoch.
    #[default]
    FixedWindow = 1,
    /// Records every hit of the last period.
    SlidingWindowLog = 2,
    /// Counts in sub-windows of the period.
    SlidingWindowCounter = 3,
    /// Refills at the limit's rate and admits a burst at once.
    TokenBucket = 4,
    /// A token bucket that gives each admitted request a delay.
    LeakyBucket = 5,
    /// A token bucket whose burst is one hit unless configured.
    Gcra = 6,
}

/// A limit as written. [`Limit::new`](crate::limit::Limit::new) checks it.
#[derive(Clone, Debug, Default)]
pub struct LimitSpec {
    /// How hits are counted.
    pub algorithm: Algorithm,
    /// Hits per period.
    pub hits: u64,
    /// The period in milliseconds.
    pub period_ms: u64,
    /// Buckets: hits admitted at once. Unset: the limit; for `gcra`, 1.
    pub burst: Option<u64>,
    /// Sliding window counter: sub-windows per period. Unset: 10.
    pub sub_windows: Option<u32>,
    /// Sliding window counter: count the oldest sub-window by its overlap only.
    pub weighted: Option<bool>,
    /// Test for one hit and take all of them, even into debt.
    pub overdraft: bool,
}

impl LimitSpec {
    /// The names of the fields that only some algorithms have.
    pub const OPTIONAL_FIELDS: [&'static str; 3] = ["burst", "sub_windows", "weighted"];

    /// The names of the optional fields that are set.
    pub(super) fn optional_fields(&self) -> impl Iterator<Item = &'static str> {
        let set = [self.burst.is_some(), self.sub_windows.is_some(), self.weighted.is_some()];
        Self::OPTIONAL_FIELDS.into_iter().zip(set).filter_map(|(name, set)| set.then_some(name))
    }
}

/// What happens with hits that do not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Excess {
    /// They are not taken.
    #[default]
    Refused,
    /// They are taken, even into debt: one hit is tested, and all are taken.
    Overdraft,
    /// They are taken even if the request is rejected, by this limit or another, as in
    /// envoyproxy/ratelimit.
    Counted,
}

/// Why a limit is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    /// The field's name in a limits file.
    pub field: &'static str,
    /// What is wrong with it, and what is allowed.
    pub message: String,
}

impl LimitError {
    /// An error of one field.
    pub fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self { field, message: message.into() }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for LimitError {}
