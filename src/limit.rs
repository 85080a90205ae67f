//! A limit: hits per period under an algorithm, checked once when it is made.
//!
//! Every number that the algorithms can reach from a [`Limit`] stays below 2^53, so that Lua's
//! doubles and Rust's integers compute the same. A limit whose arithmetic would not fit is
//! refused here, when limits load, and never at a request.
//!
//! A [`Limit`] computes nothing itself. It adds what all algorithms have in common and calls the
//! one that it was made for. Only the file of an algorithm knows what is special about it.

pub mod display;

pub use crate::algorithm::{
    KeyName, LOG_HITS_MAX, LOG_RECORDS_BOUNDED, RUN_COST_MAX, SUB_WINDOWS_DEFAULT, SUB_WINDOWS_MAX,
    ScriptArguments,
};
pub use crate::limit_spec::{Algorithm, Excess, HITS_MAX, LimitError, LimitSpec, PERIOD_MAX_MS};

use crate::algorithm::{Arithmetic, Operations, State, dispatch};

/// Hits per period under an algorithm, with everything that its arithmetic needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    algorithm: Algorithm,
    hits: u64,
    period_ms: u64,
    arithmetic: Arithmetic,
    excess: Excess,
}

impl Limit {
    /// Checks a limit and prepares its arithmetic.
    ///
    /// # Errors
    /// A field that its algorithm does not have, or a number whose arithmetic would not fit
    /// 53 bits.
    pub fn new(spec: &LimitSpec) -> Result<Self, LimitError> {
        if spec.hits > HITS_MAX {
            let message = format!("{} is too large; the maximum is {HITS_MAX}", spec.hits);
            return Err(LimitError::new("limit", message));
        }
        if spec.period_ms == 0 || spec.period_ms > PERIOD_MAX_MS {
            return Err(LimitError::new("period", "must be from 1ms to 36500d"));
        }
        for field in spec.optional_fields() {
            spec.algorithm.check_field(field)?;
        }
        Ok(Self {
            algorithm: spec.algorithm,
            hits: spec.hits,
            period_ms: spec.period_ms,
            arithmetic: spec.algorithm.prepare(spec)?,
            excess: if spec.overdraft { Excess::Overdraft } else { Excess::Refused },
        })
    }

    /// How hits are counted.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Hits per period: L.
    pub const fn hits(&self) -> u64 {
        self.hits
    }

    /// The period in milliseconds: P.
    pub const fn period_ms(&self) -> u64 {
        self.period_ms
    }

    /// Whether the limit is tested for one hit and takes all of them, even into debt.
    pub const fn overdraft(&self) -> bool {
        matches!(self.excess, Excess::Overdraft)
    }

    /// What happens with hits that do not fit.
    pub const fn excess(&self) -> Excess {
        self.excess
    }

    /// The limit as it would be written down, with all defaults filled in.
    pub fn spec(&self) -> LimitSpec {
        let mut spec = LimitSpec {
            algorithm: self.algorithm,
            hits: self.hits,
            period_ms: self.period_ms,
            overdraft: self.overdraft(),
            ..LimitSpec::default()
        };
        dispatch!(&self.arithmetic, one => one.set_fields(&mut spec));
        spec
    }

    /// The share of each of `replicas`: hits and burst divided and rounded up, so that together
    /// they admit this limit, and at most one hit more each. A limit whose share would not fit
    /// 53 bits stays whole.
    #[must_use]
    pub fn share_of(&self, replicas: u32) -> Self {
        if replicas <= 1 {
            return *self;
        }
        let share = |hits: u64| hits.div_ceil(u64::from(replicas));
        let whole = self.spec();
        let spec = LimitSpec { hits: share(whole.hits), burst: whole.burst.map(share), ..whole };
        Self::new(&spec).map_or(*self, |limit| Self { excess: self.excess, ..limit })
    }

    /// The same limit, taking hits also where they do not fit.
    #[must_use]
    pub const fn into_overdraft(self) -> Self {
        Self { excess: Excess::Overdraft, ..self }
    }

    /// The same limit, also counting the hits of rejected requests, and what they give back.
    /// Applies only to limits without overdraft whose counts end with a window. Any other limit
    /// would keep a debt.
    #[must_use]
    pub fn into_counted(self) -> Self {
        if self.excess == Excess::Refused && self.ends_with_window() {
            return Self { excess: Excess::Counted, ..self };
        }
        self
    }

    /// Whether all hits are free again at one moment, when the current window ends.
    pub fn ends_with_window(&self) -> bool {
        dispatch!(&self.arithmetic, one => one.ends_with_window())
    }

    /// The most hits that fit at once: the burst of a bucket, else the limit.
    pub fn capacity(&self) -> u64 {
        dispatch!(&self.arithmetic, one => one.capacity())
    }

    /// The maximum cost of deciding this limit, in units of about a microsecond.
    pub fn run_cost(&self) -> usize {
        dispatch!(&self.arithmetic, one => one.run_cost(self.excess))
    }

    /// The most records that a log can hold; 0 for other algorithms.
    pub fn log_records_max(&self) -> u64 {
        dispatch!(&self.arithmetic, one => one.log_records_max(self.excess))
    }

    /// What the names of its counters' keys say about how the state is stored.
    pub fn key_name(&self) -> KeyName {
        let grid = dispatch!(&self.arithmetic, one => one.grid());
        KeyName { algorithm: self.algorithm.key_name(), grid }
    }

    /// Whether the script reads a state as a whole, and not only the parts that it needs.
    pub fn is_read_whole(&self) -> bool {
        dispatch!(&self.arithmetic, one => one.is_read_whole())
    }

    /// What the script needs to know of the algorithm.
    pub fn script_arguments(&self) -> ScriptArguments {
        dispatch!(&self.arithmetic, one => one.script_arguments())
    }
}

/// The arithmetic on a state at a moment.
impl Limit {
    /// Whether `hits` more fit at `now_ms`.
    pub fn admits(&self, state: &State, now_ms: u64, hits: u64) -> bool {
        hits <= self.remaining(state, now_ms)
    }

    /// Takes `hits`, whether they fit or not.
    pub fn take(&self, state: &mut State, now_ms: u64, hits: u64) {
        dispatch!(&self.arithmetic, one => one.take(state, now_ms, hits));
    }

    /// Gives `hits` back, down to nothing used; a state with nothing used is fresh.
    pub fn refund(&self, state: &mut State, now_ms: u64, hits: u64) {
        if self.is_unused(state, now_ms) {
            return;
        }
        dispatch!(&self.arithmetic, one => one.refund(state, now_ms, hits));
        if self.is_unused(state, now_ms) {
            *state = State::Fresh;
        }
    }

    /// Single hits that fit at `now_ms`.
    pub fn remaining(&self, state: &State, now_ms: u64) -> u64 {
        dispatch!(&self.arithmetic, one => one.remaining(state, now_ms))
    }

    /// Hits that count at `now_ms`; a started one of a bucket counts as whole.
    pub fn used_hits(&self, state: &State, now_ms: u64) -> u64 {
        dispatch!(&self.arithmetic, one => one.used(state, now_ms))
    }

    /// Milliseconds from `now_ms` until all hits are free again. 0 if nothing is used, except for
    /// a fixed window, which returns the rest of the window.
    pub fn reset_after_ms(&self, state: &State, now_ms: u64) -> u64 {
        dispatch!(&self.arithmetic, one => one.reset_after_ms(state, now_ms))
    }

    /// The smallest wait in milliseconds, at least 1, after which `hits` that do not fit at
    /// `now_ms` would fit, if no others came; `None` if no wait is long enough.
    pub fn retry_after_ms(&self, state: &State, now_ms: u64, hits: u64) -> Option<u64> {
        if hits > self.capacity() {
            return None;
        }
        Some(dispatch!(&self.arithmetic, one => one.retry_after_ms(state, now_ms, hits)))
    }

    /// Milliseconds that a request admitted at `now_ms` is to wait; 0 if the algorithm does not
    /// delay requests.
    pub fn delay_ms(&self, state: &State, now_ms: u64) -> u64 {
        dispatch!(&self.arithmetic, one => one.delay_ms(state, now_ms))
    }

    /// Milliseconds from `now_ms` for which the state matters. If the clock has stepped back, this
    /// includes the time until it is where it was.
    pub fn keep_ms(&self, state: &State, now_ms: u64) -> u64 {
        let ahead_ms = state.moment_ms().saturating_sub(now_ms);
        self.reset_after_ms(state, now_ms) + ahead_ms
    }

    fn is_unused(&self, state: &State, now_ms: u64) -> bool {
        matches!(state, State::Fresh) || self.used_hits(state, now_ms) == 0
    }
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
        let arguments = limit.script_arguments();
        assert_eq!((limit.capacity(), arguments.a, arguments.b), (100, 1, 600));
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
