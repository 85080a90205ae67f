//! A limit: hits per period under an algorithm, checked once when it is made.
//!
//! Every number that the algorithms can reach from a [`Limit`] stays below 2^53, so that Lua's
//! doubles and Rust's integers compute the same. A limit whose arithmetic would not fit is
//! refused here, when limits load, and never at a request.

use std::fmt;

use crate::period::Unit;

pub mod cost;

/// The largest whole number that a double holds with all its predecessors: 2^53 - 1.
/// Hits, limits and states saturate here.
pub const HITS_MAX: u64 = (1 << 53) - 1;

/// The longest period: 36,500 days.
pub const PERIOD_MAX_MS: u64 = 36_500 * Unit::Day.ms();

/// The most sub-windows of a sliding window counter.
pub const SUB_WINDOWS_MAX: u32 = 1_000;

/// Sub-windows where the configuration names none.
pub const SUB_WINDOWS_DEFAULT: u32 = 10;

/// The most hits of a sliding window log, which stores every one of them.
pub const LOG_HITS_MAX: u64 = 1 << 20;

/// How hits are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Counts in windows aligned to the epoch.
    #[default]
    FixedWindow,
    /// Remembers every hit of the last period.
    SlidingWindowLog,
    /// Counts in sub-windows of the period.
    SlidingWindowCounter,
    /// Refills at the rate and lets a burst through at once.
    TokenBucket,
    /// A token bucket that tells each admitted request how long to wait.
    LeakyBucket,
    /// A token bucket whose burst is one hit unless configured.
    Gcra,
}

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

    /// The name in limits files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindowLog => "sliding_window_log",
            Self::SlidingWindowCounter => "sliding_window_counter",
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
            Self::Gcra => "gcra",
        }
    }

    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    const fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket | Self::Gcra)
    }
}

/// A limit as somebody wrote it down; [`Limit::new`] checks it.
#[derive(Clone, Debug, Default)]
pub struct LimitSpec {
    /// How hits are counted.
    pub algorithm: Algorithm,
    /// Hits a period.
    pub hits: u64,
    /// The period in milliseconds.
    pub period_ms: u64,
    /// Buckets: hits at once. Unset: the limit, for `gcra` 1.
    pub burst: Option<u64>,
    /// Sliding window counter: sub-windows of the period. Unset: 10.
    pub sub_windows: Option<u32>,
    /// Sliding window counter: count the oldest sub-window by its overlap only.
    pub weighted: Option<bool>,
    /// Test for one hit and take all of them, even into debt.
    pub overdraft: bool,
}

/// Hits per period under an algorithm, with everything its arithmetic needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    algorithm: Algorithm,
    hits: u64,
    period_ms: u64,
    shape: Shape,
    excess: Excess,
}

/// What happens with hits that do not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Excess {
    /// They are not taken.
    #[default]
    Refused,
    /// They are taken, even into debt: one hit is tested, and all are taken.
    Overdraft,
    /// They are taken though the request is rejected, whichever limit rejects it: what
    /// envoyproxy/ratelimit does.
    Counted,
}

/// The arithmetic of a limit; algorithms that share one share a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// One count a window.
    FixedWindow,
    /// A record a hit.
    SlidingWindowLog,
    /// A count a sub-window.
    SlidingWindowCounter(SubWindows),
    /// Water that drains.
    Bucket(Bucket),
}

/// How a sliding window counter divides its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubWindows {
    /// Sub-windows a period.
    pub count: u32,
    /// The length of one, in milliseconds: T.
    pub length_ms: u64,
    /// Whether the oldest counts by its overlap only.
    pub weighted: bool,
}

/// A bucket in integers: it drains `drain` units a millisecond and a hit weighs `weight` units.
///
/// With g = gcd(L, P): `drain` = L/g and `weight` = P/g, so that L hits drain in exactly P
/// milliseconds and no fraction of a hit is ever rounded away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Hits that fit at once: B; 0 where the limit is 0.
    pub burst: u64,
    /// Units a millisecond: R, at least 1.
    pub drain: u64,
    /// Units a hit: W, at least 1.
    pub weight: u64,
}

/// Why a limit cannot be: the field of the limits file, and what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    /// The field's name in a limits file.
    pub field: &'static str,
    /// What is wrong with it, and what is allowed.
    pub message: String,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for LimitError {}

impl Bucket {
    /// Whether a debt of any size is counted exactly. The arithmetic splits it into `drain` hits,
    /// which drain in `weight` milliseconds, and a rest of less than `drain * weight` units.
    pub(crate) const fn counts_debts(&self) -> bool {
        self.drain as u128 * self.weight as u128 <= HITS_MAX as u128
    }
}

fn refuse<T>(field: &'static str, message: impl Into<String>) -> Result<T, LimitError> {
    Err(LimitError { field, message: message.into() })
}

impl Limit {
    /// Checks a limit and prepares its arithmetic.
    ///
    /// # Errors
    /// A field that its algorithm does not have, or a number whose arithmetic would not fit
    /// 53 bits.
    pub fn new(spec: &LimitSpec) -> Result<Self, LimitError> {
        if spec.hits > HITS_MAX {
            return refuse("limit", format!("{} is over the most, {HITS_MAX}", spec.hits));
        }
        if spec.period_ms == 0 || spec.period_ms > PERIOD_MAX_MS {
            return refuse("period", "must be from 1ms to 36500d");
        }
        refuse_foreign_fields(spec)?;
        let shape = match spec.algorithm {
            Algorithm::FixedWindow => Shape::FixedWindow,
            Algorithm::SlidingWindowLog => log_shape(spec)?,
            Algorithm::SlidingWindowCounter => counter_shape(spec)?,
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra => {
                bucket_shape(spec)?
            }
        };
        Ok(Self {
            algorithm: spec.algorithm,
            hits: spec.hits,
            period_ms: spec.period_ms,
            shape,
            excess: if spec.overdraft { Excess::Overdraft } else { Excess::Refused },
        })
    }

    /// How hits are counted.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Hits a period: L.
    pub const fn hits(&self) -> u64 {
        self.hits
    }

    /// The period in milliseconds: P.
    pub const fn period_ms(&self) -> u64 {
        self.period_ms
    }

    /// The arithmetic.
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether the limit is tested for one hit and takes all of them, even into debt.
    pub const fn overdraft(&self) -> bool {
        matches!(self.excess, Excess::Overdraft)
    }

    /// What happens with hits that do not fit.
    pub const fn excess(&self) -> Excess {
        self.excess
    }

    /// What each of `replicas` may admit so that together they admit this limit, and a hit more each
    /// at most: hits and burst divided and rounded up. A limit whose share would not fit 53 bits
    /// stays whole.
    #[must_use]
    pub fn share_of(&self, replicas: u32) -> Self {
        let share = |hits: u64| hits.div_ceil(u64::from(replicas.max(1)));
        let mut spec = LimitSpec {
            algorithm: self.algorithm,
            hits: share(self.hits),
            period_ms: self.period_ms,
            overdraft: self.overdraft(),
            ..LimitSpec::default()
        };
        match self.shape {
            Shape::FixedWindow | Shape::SlidingWindowLog => {}
            Shape::SlidingWindowCounter(windows) => {
                (spec.sub_windows, spec.weighted) = (Some(windows.count), Some(windows.weighted));
            }
            Shape::Bucket(bucket) => spec.burst = Some(share(bucket.burst)),
        }
        let part = Self::new(&spec).map(|limit| Self { excess: self.excess, ..limit });
        if replicas <= 1 { *self } else { part.unwrap_or(*self) }
    }

    /// The same limit, taking hits also where they do not fit.
    #[must_use]
    pub const fn into_overdraft(self) -> Self {
        Self { excess: Excess::Overdraft, ..self }
    }

    /// The same limit, also counting the hits of rejected requests, and what they give back: of a
    /// fixed window without overdraft, whose counts end with the window. Any other would hold a debt
    /// for it.
    #[must_use]
    pub const fn into_counted(self) -> Self {
        match (self.shape, self.excess) {
            (Shape::FixedWindow, Excess::Refused) => Self { excess: Excess::Counted, ..self },
            _ => self,
        }
    }

    /// The most hits that fit at once: the burst of a bucket, else the limit.
    pub const fn capacity(&self) -> u64 {
        match self.shape {
            Shape::Bucket(bucket) => bucket.burst,
            Shape::FixedWindow | Shape::SlidingWindowLog | Shape::SlidingWindowCounter(_) => {
                self.hits
            }
        }
    }
}

fn refuse_foreign_fields(spec: &LimitSpec) -> Result<(), LimitError> {
    let name = spec.algorithm.name();
    if spec.burst.is_some() && !spec.algorithm.is_bucket() {
        let message = format!("{name} has none; use token_bucket, leaky_bucket or gcra");
        return refuse("burst", message);
    }
    let counter = spec.algorithm == Algorithm::SlidingWindowCounter;
    let message = format!("{name} has none; use sliding_window_counter");
    if spec.sub_windows.is_some() && !counter {
        return refuse("sub_windows", message);
    }
    if spec.weighted.is_some() && !counter {
        return refuse("weighted", message);
    }
    Ok(())
}

fn log_shape(spec: &LimitSpec) -> Result<Shape, LimitError> {
    if spec.hits > LOG_HITS_MAX {
        let message = format!(
            "{} is over the most of a log, which stores every hit: {LOG_HITS_MAX}; \
             use sliding_window_counter",
            spec.hits
        );
        return refuse("limit", message);
    }
    Ok(Shape::SlidingWindowLog)
}

fn counter_shape(spec: &LimitSpec) -> Result<Shape, LimitError> {
    let count = spec.sub_windows.unwrap_or(SUB_WINDOWS_DEFAULT);
    if count == 0 || count > SUB_WINDOWS_MAX {
        return refuse("sub_windows", format!("{count} is not from 1 to {SUB_WINDOWS_MAX}"));
    }
    if !spec.period_ms.is_multiple_of(u64::from(count)) {
        let message =
            format!("{count} does not divide the period of {} milliseconds", spec.period_ms);
        return refuse("sub_windows", message);
    }
    let weighted = spec.weighted.unwrap_or(false);
    let length_ms = spec.period_ms / u64::from(count);
    if weighted && !weighted_fits(spec, length_ms) {
        let message = "with sub-windows this long the arithmetic does not fit 53 bits; \
                       use more sub_windows";
        return refuse("weighted", message);
    }
    Ok(Shape::SlidingWindowCounter(SubWindows { count, length_ms, weighted }))
}

/// A sub-window's overlap is computed as c * T / T: exact where T * T fits, and where c * T fits
/// for every count c that a limit without overdraft can reach.
fn weighted_fits(spec: &LimitSpec, length_ms: u64) -> bool {
    let fits = |a: u64, b: u64| u128::from(a) * u128::from(b) <= u128::from(HITS_MAX);
    fits(length_ms, length_ms) || (!spec.overdraft && fits(spec.hits, length_ms))
}

fn bucket_shape(spec: &LimitSpec) -> Result<Shape, LimitError> {
    if spec.hits == 0 {
        if spec.overdraft {
            return refuse("overdraft", "with limit 0 the debt would never be worked off");
        }
        return Ok(Shape::Bucket(Bucket { burst: 0, drain: 1, weight: 1 }));
    }
    let default = if spec.algorithm == Algorithm::Gcra { 1 } else { spec.hits };
    let burst = spec.burst.unwrap_or(default);
    let divisor = gcd(spec.hits, spec.period_ms);
    let (drain, weight) = (spec.hits / divisor, spec.period_ms / divisor);
    if u128::from(burst) * u128::from(weight) > u128::from(HITS_MAX) {
        let message = format!("{burst} times {weight}, the weight of a hit, does not fit 53 bits");
        return refuse("burst", message);
    }
    let bucket = Bucket { burst, drain, weight };
    if spec.overdraft && !bucket.counts_debts() {
        let message = format!(
            "a debt would not be counted exactly: limit and period, divided by what they have in \
             common, are {drain} and {weight}, and their product does not fit 53 bits; use a rounder \
             limit or period"
        );
        return refuse("overdraft", message);
    }
    Ok(Shape::Bucket(bucket))
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(algorithm: Algorithm, hits: u64, period_ms: u64) -> LimitSpec {
        LimitSpec { algorithm, hits, period_ms, ..LimitSpec::default() }
    }

    #[test]
    fn a_bucket_is_reduced_by_the_greatest_common_divisor() {
        let limit = Limit::new(&spec(Algorithm::TokenBucket, 100, 60_000)).unwrap();
        let bucket = Bucket { burst: 100, drain: 1, weight: 600 };
        assert_eq!(limit.shape(), &Shape::Bucket(bucket));
    }

    #[test]
    fn gcra_lets_one_hit_through_at_once() {
        let limit = Limit::new(&spec(Algorithm::Gcra, 100, 60_000)).unwrap();
        assert_eq!(limit.capacity(), 1);
    }

    #[test]
    fn a_field_of_another_algorithm_is_refused() {
        let error =
            Limit::new(&LimitSpec { burst: Some(2), ..spec(Algorithm::FixedWindow, 1, 1_000) });
        assert_eq!(error.unwrap_err().field, "burst");
    }

    #[test]
    fn numbers_that_do_not_fit_53_bits_are_refused() {
        for wide in [
            spec(Algorithm::FixedWindow, 1 << 53, 1_000),
            spec(Algorithm::TokenBucket, HITS_MAX, 1_000),
            spec(Algorithm::SlidingWindowLog, LOG_HITS_MAX + 1, 1_000),
            spec(Algorithm::FixedWindow, 1, PERIOD_MAX_MS + 1),
            spec(Algorithm::FixedWindow, 1, 0),
        ] {
            assert!(Limit::new(&wide).is_err(), "{wide:?}");
        }
    }

    #[test]
    fn a_period_that_sub_windows_do_not_divide_is_refused() {
        let error = Limit::new(&spec(Algorithm::SlidingWindowCounter, 5, 1_001)).unwrap_err();
        assert_eq!(error.field, "sub_windows");
    }
}
