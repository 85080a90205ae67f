//! Token bucket, leaky bucket and GCRA: water that drains at the rate.
//!
//! Up to 2^53 - 1 units of water are stored as units. A bucket without overdraft never holds more
//! (`Limit::new` checks B * W). With an overdraft it can: such a debt is stored as whole hits and the
//! remaining units, so that it is exact up to 2^53 - 1 hits. Sums have 128 bits here; `bucket.lua`
//! splits them.

use super::operations::{Declaration, Operations, ScriptArguments};
use super::state::{Debt, State, Water};
use crate::limit_spec::{HITS_MAX, LimitError, LimitSpec};

pub(super) const TOKEN_BUCKET: Declaration =
    Declaration { name: "token_bucket", key_name: "token", fields: &["burst"] };

pub(super) const LEAKY_BUCKET: Declaration =
    Declaration { name: "leaky_bucket", key_name: "leaky", fields: &["burst"] };

pub(super) const GCRA: Declaration =
    Declaration { name: "gcra", key_name: "gcra", fields: &["burst"] };

/// A bucket in integers: it drains `drain` units per millisecond and a hit weighs `weight` units.
///
/// With g = gcd(L, P): `drain` = L/g and `weight` = P/g, so that L hits drain in exactly P
/// milliseconds and no fraction of a hit is ever rounded away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bucket {
    /// Hits that fit at once: B; 0 where the limit is 0.
    burst: u64,
    /// Units per millisecond: R, at least 1.
    drain: u64,
    /// Units per hit: W, at least 1.
    weight: u64,
    /// Whether an admitted request is delayed until the water ahead of it has drained.
    delays: bool,
}

/// The water in the bucket's own units at a moment.
#[derive(Clone, Copy)]
struct Level {
    at_ms: u64,
    units: u128,
}

impl Bucket {
    /// The default burst is the limit.
    pub(super) fn token(spec: &LimitSpec) -> Result<Self, LimitError> {
        Self::new(spec, spec.hits)
    }

    /// A token bucket that also delays.
    pub(super) fn leaky(spec: &LimitSpec) -> Result<Self, LimitError> {
        Ok(Self { delays: true, ..Self::token(spec)? })
    }

    /// The default burst is 1.
    pub(super) fn gcra(spec: &LimitSpec) -> Result<Self, LimitError> {
        Self::new(spec, 1)
    }

    fn new(spec: &LimitSpec, default_burst: u64) -> Result<Self, LimitError> {
        if spec.hits == 0 {
            if spec.overdraft {
                let message = "with limit 0 a debt would never be paid off";
                return Err(LimitError::new("overdraft", message));
            }
            return Ok(Self { burst: 0, drain: 1, weight: 1, delays: false });
        }
        let burst = spec.burst.unwrap_or(default_burst);
        let divisor = gcd(spec.hits, spec.period_ms);
        let (drain, weight) = (spec.hits / divisor, spec.period_ms / divisor);
        if u128::from(burst) * u128::from(weight) > u128::from(HITS_MAX) {
            let message =
                format!("{burst} times {weight}, the weight of a hit, does not fit 53 bits");
            return Err(LimitError::new("burst", message));
        }
        let bucket = Self { burst, drain, weight, delays: false };
        if spec.overdraft && !bucket.counts_debts() {
            let message = format!(
                "a debt would not be counted exactly: limit and period, divided by their greatest \
                 common divisor, are {drain} and {weight}, and their product does not fit 53 bits; use \
                 a rounder limit or period"
            );
            return Err(LimitError::new("overdraft", message));
        }
        Ok(bucket)
    }

    /// Whether a debt of any size is counted exactly. The arithmetic splits it into `drain` hits,
    /// which drain in `weight` milliseconds, and a rest of less than `drain * weight` units.
    const fn counts_debts(&self) -> bool {
        self.drain as u128 * self.weight as u128 <= HITS_MAX as u128
    }

    /// The water at `now_ms`.
    fn level(&self, state: &State, now_ms: u64) -> Level {
        let (at_ms, units) = match state {
            State::Water(water) => (water.at_ms, self.own_units(water)),
            State::Debt(debt) => (debt.at_ms, self.own_units_of_debt(debt)),
            State::Fresh | State::Window(_) | State::Log(_) | State::SubWindows(_) => (now_ms, 0),
        };
        let elapsed_ms = now_ms.saturating_sub(at_ms);
        let drained = u128::from(elapsed_ms) * u128::from(self.drain);
        Level { at_ms: at_ms.max(now_ms), units: units.saturating_sub(drained) }
    }

    /// If the limit has changed since, hits are kept and a started one counts as a whole one.
    fn own_units(&self, water: &Water) -> u128 {
        if water.weight == self.weight {
            return water.units.into();
        }
        self.storable(self.weigh(water.units.div_ceil(water.weight.max(1))))
    }

    /// The same of a debt.
    fn own_units_of_debt(&self, debt: &Debt) -> u128 {
        let units = if debt.weight == self.weight {
            self.weigh(debt.hits) + u128::from(debt.units)
        } else {
            self.weigh((debt.hits + u64::from(debt.units > 0)).min(HITS_MAX))
        };
        self.storable(units)
    }

    fn weigh(&self, hits: u64) -> u128 {
        u128::from(hits) * u128::from(self.weight)
    }

    /// Water that a state of this bucket can hold.
    fn storable(&self, units: u128) -> u128 {
        if self.counts_debts() { units } else { units.min(HITS_MAX.into()) }
    }

    fn state(&self, Level { at_ms, units }: Level) -> State {
        let weight = self.weight;
        match u64::try_from(self.storable(units)) {
            Ok(units @ ..=HITS_MAX) => State::Water(Water { at_ms, units, weight }),
            Ok(_) | Err(_) => {
                let whole =
                    |number: u128| u64::try_from(number).map_or(HITS_MAX, |n| n.min(HITS_MAX));
                let (hits, units) = (units / u128::from(weight), units % u128::from(weight));
                let (hits, units) = (whole(hits), whole(units));
                State::Debt(Box::new(Debt { at_ms, hits, units, weight }))
            }
        }
    }
}

impl Operations for Bucket {
    fn capacity(&self) -> u64 {
        self.burst
    }

    fn take(&self, state: &mut State, now_ms: u64, hits: u64) {
        let level = self.level(state, now_ms);
        *state = self.state(Level { units: level.units + self.weigh(hits), ..level });
    }

    fn refund(&self, state: &mut State, now_ms: u64, hits: u64) {
        let level = self.level(state, now_ms);
        *state = self.state(Level { units: level.units.saturating_sub(self.weigh(hits)), ..level });
    }

    /// Hits in the water; a started one counts as a whole one.
    fn used(&self, state: &State, now_ms: u64) -> u64 {
        div_ceil(self.level(state, now_ms).units, self.weight)
    }

    fn remaining(&self, state: &State, now_ms: u64) -> u64 {
        let capacity = self.burst * self.weight;
        let units = u64::try_from(self.level(state, now_ms).units);
        units.map_or(0, |units| capacity.saturating_sub(units) / self.weight)
    }

    fn reset_after_ms(&self, state: &State, now_ms: u64) -> u64 {
        div_ceil(self.level(state, now_ms).units, self.drain)
    }

    /// `hits` is at most the burst.
    fn retry_after_ms(&self, state: &State, now_ms: u64, hits: u64) -> u64 {
        let room = self.weigh(self.burst - hits);
        div_ceil(self.level(state, now_ms).units.saturating_sub(room), self.drain).max(1)
    }

    fn delay_ms(&self, state: &State, now_ms: u64) -> u64 {
        if self.delays { self.reset_after_ms(state, now_ms) } else { 0 }
    }

    fn script_arguments(&self) -> ScriptArguments {
        let code = if self.delays { 6 } else { 5 };
        ScriptArguments { code, a: self.drain, b: self.weight }
    }

    fn set_fields(&self, spec: &mut LimitSpec) {
        spec.burst = Some(self.burst);
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The quotient rounded up, at most [`HITS_MAX`]. Nearly always both fit 64 bits, whose division is
/// fast.
fn div_ceil(units: u128, by: u64) -> u64 {
    let quotient = match u64::try_from(units) {
        Ok(units) => units.div_ceil(by),
        Err(_) => u64::try_from(units.div_ceil(by.into())).unwrap_or(HITS_MAX),
    };
    quotient.min(HITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_MS: u64 = 1_700_000_000_000;

    /// 1,000,003 per 30 days.
    const BUCKET: Bucket =
        Bucket { burst: 1_000_003, drain: 1_000_003, weight: 2_592_000_000, delays: false };

    fn after(hits: u64) -> State {
        let mut state = State::Fresh;
        BUCKET.take(&mut state, AT_MS, hits);
        state
    }

    #[test]
    fn a_debt_is_stored_as_a_full_bucket_with_more_behind_it() {
        let most = HITS_MAX / BUCKET.weight;
        let (water, debt) = (after(most).encode(), after(most + 1).encode());
        assert_eq!((water.len(), debt.len()), (19, 32));
        let full = State::Water(Water { at_ms: AT_MS, units: HITS_MAX, weight: BUCKET.weight });
        assert_eq!(debt[..19], full.encode(), "what versions read that know no debts");
        assert_eq!(debt[19..26], (most + 1).to_le_bytes()[..7]);
        assert_eq!(debt[26..], [0; 6]);
    }

    #[test]
    fn a_debt_ends_at_2_to_the_53_hits() {
        let mut state = after(HITS_MAX);
        BUCKET.take(&mut state, AT_MS, HITS_MAX);
        assert_eq!(BUCKET.used(&state, AT_MS), HITS_MAX);
        BUCKET.refund(&mut state, AT_MS, HITS_MAX);
        assert_eq!(BUCKET.used(&state, AT_MS), 0);
    }

    #[test]
    fn a_state_is_no_larger_for_debts() {
        assert_eq!(size_of::<State>(), 32, "a slot of the memory store is a cache line");
    }
}
