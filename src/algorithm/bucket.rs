//! Token bucket, leaky bucket and GCRA: water that drains at the rate.
//!
//! All sums are bounded by what `Limit::new` checked (B * W fits 53 bits) or saturate, and
//! differences are taken before they could overflow.

use super::add;
use super::state::{State, Water};
use crate::limit::{Bucket, HITS_MAX};

impl Bucket {
    /// The water at `now_ms`, in this bucket's own units.
    pub(super) fn level(&self, water: Option<Water>, now_ms: u64) -> Water {
        let Some(water) = water else {
            return Water { at_ms: now_ms, units: 0, weight: self.weight };
        };
        let at_ms = now_ms.max(water.at_ms);
        let units = self.own_units(water);
        let elapsed_ms = at_ms - water.at_ms;
        // Compared as times first: the product could be far over 53 bits.
        let drained = elapsed_ms >= units.div_ceil(self.drain);
        let units = if drained { 0 } else { units - elapsed_ms * self.drain };
        Water { at_ms, units, weight: self.weight }
    }

    /// Water of a limit that was changed since: whole hits stay, a started one counts as whole.
    fn own_units(&self, water: Water) -> u64 {
        if water.weight == self.weight {
            return water.units;
        }
        let hits = water.units.div_ceil(water.weight.max(1));
        self.weigh(hits)
    }

    fn weigh(&self, hits: u64) -> u64 {
        hits.saturating_mul(self.weight).min(HITS_MAX)
    }

    pub(super) fn take(&self, state: &mut State, now_ms: u64, hits: u64) {
        let level = self.level(state.water(), now_ms);
        *state = State::Water(Water { units: add(level.units, self.weigh(hits)), ..level });
    }

    pub(super) fn refund(&self, state: &mut State, now_ms: u64, hits: u64) {
        let level = self.level(state.water(), now_ms);
        let units = level.units.saturating_sub(self.weigh(hits));
        *state = State::Water(Water { units, ..level });
    }

    pub(super) fn remaining(&self, water: Option<Water>, now_ms: u64) -> u64 {
        let capacity = self.burst * self.weight;
        capacity.saturating_sub(self.level(water, now_ms).units) / self.weight
    }

    pub(super) fn reset_after_ms(&self, water: Option<Water>, now_ms: u64) -> u64 {
        self.level(water, now_ms).units.div_ceil(self.drain)
    }

    /// `hits` is at most the burst.
    pub(super) fn retry_after_ms(&self, water: Option<Water>, now_ms: u64, hits: u64) -> u64 {
        let room = (self.burst - hits) * self.weight;
        self.level(water, now_ms).units.saturating_sub(room).div_ceil(self.drain).max(1)
    }
}
