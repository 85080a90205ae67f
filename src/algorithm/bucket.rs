//! Token bucket, leaky bucket and GCRA: water that drains at the rate.
//!
//! Water up to 2^53 - 1 units is stored as units, and what fits a bucket always is (`Limit::new`
//! checks B * W). An overdraft can make it more: such a debt is stored as whole hits and the units
//! beside them, so that it counts exactly up to 2^53 - 1 hits. Sums are of 128 bits here; Lua has
//! `bucket.lua`, which splits them.

use super::state::{Debt, State, Water};
use crate::limit::{Bucket, HITS_MAX};

/// How much water there is, in the bucket's own units, and when.
#[derive(Clone, Copy)]
struct Level {
    at_ms: u64,
    units: u128,
}

impl Bucket {
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

    /// Of a limit that was changed since: whole hits stay, a started one counts as whole.
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

    pub(super) fn take(&self, state: &mut State, now_ms: u64, hits: u64) {
        let level = self.level(state, now_ms);
        *state = self.state(Level { units: level.units + self.weigh(hits), ..level });
    }

    pub(super) fn refund(&self, state: &mut State, now_ms: u64, hits: u64) {
        let level = self.level(state, now_ms);
        *state = self.state(Level { units: level.units.saturating_sub(self.weigh(hits)), ..level });
    }

    /// Hits that the water weighs, a started one as whole.
    pub(super) fn used(&self, state: &State, now_ms: u64) -> u64 {
        div_ceil(self.level(state, now_ms).units, self.weight)
    }

    pub(super) fn remaining(&self, state: &State, now_ms: u64) -> u64 {
        let capacity = self.burst * self.weight;
        let units = u64::try_from(self.level(state, now_ms).units);
        units.map_or(0, |units| capacity.saturating_sub(units) / self.weight)
    }

    pub(super) fn reset_after_ms(&self, state: &State, now_ms: u64) -> u64 {
        div_ceil(self.level(state, now_ms).units, self.drain)
    }

    /// `hits` is at most the burst.
    pub(super) fn retry_after_ms(&self, state: &State, now_ms: u64, hits: u64) -> u64 {
        let room = self.weigh(self.burst - hits);
        div_ceil(self.level(state, now_ms).units.saturating_sub(room), self.drain).max(1)
    }
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
    const BUCKET: Bucket = Bucket { burst: 1_000_003, drain: 1_000_003, weight: 2_592_000_000 };

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
