//! What the store does not know of one counter: one signed amount.

use crate::algorithm::State;
use crate::decide::{CounterRequest, Mode};
use crate::decision::{Enforcement, QuotaGroup};
use crate::key::Key;
use crate::limit::Limit;

/// Hits of one counter that were moved here and that the store does not know of.
#[derive(Clone, Debug)]
pub(super) struct Noted {
    /// The ask as the store would have got it.
    pub(super) counter: CounterRequest,
    /// Hits that were admitted, without those that were given back again.
    taken: u64,
    given_back: GivenBack,
}

/// Hits that were given back and are none of those noted as taken.
#[derive(Clone, Copy, Debug, Default)]
struct GivenBack {
    hits: u64,
    /// From this moment on no hit counts that was taken before the first of these refunds: given back
    /// later, hits would be taken from those that came after it.
    void_from_ms: u64,
}

/// Hits of one counter that the store is to be charged, or to give back.
#[derive(Clone, Debug)]
pub struct Reconciliation {
    counter: CounterRequest,
    amount: Amount,
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    Taken(u64),
    GivenBack(GivenBack),
}

impl Noted {
    pub(super) fn of(counter: &CounterRequest) -> Self {
        Self { counter: counter.clone(), taken: 0, given_back: GivenBack::default() }
    }

    pub(super) fn of_reconciliation(reconciliation: &Reconciliation) -> Self {
        Self::of(&reconciliation.counter)
    }

    /// Notes hits that were admitted.
    pub(super) const fn take(&mut self, hits: u64) {
        self.taken = self.taken.saturating_add(hits);
    }

    /// Notes hits that were given back, while so many of the counter's hits counted here.
    pub(super) fn give_back(&mut self, hits: u64, counting: u64, now_ms: u64) {
        let own = hits.min(self.taken).min(counting);
        self.taken -= own;
        if hits > own {
            let more = GivenBack::at(now_ms, &self.counter.limit, hits - own);
            self.given_back = self.given_back.and(more, now_ms);
        }
    }

    /// What the store is to do at `now_ms`, while so many of the counter's hits count here.
    pub(super) fn into_reconciliation(self, counting: u64, now_ms: u64) -> Option<Reconciliation> {
        let taken = self.taken.min(counting);
        let given_back = self.given_back.unless_void(now_ms);
        let amount = match taken.checked_sub(given_back.hits) {
            Some(0) => return None,
            Some(more) => Amount::Taken(more),
            None => Amount::GivenBack(GivenBack { hits: given_back.hits - taken, ..given_back }),
        };
        Some(Reconciliation { counter: self.counter, amount })
    }

    /// Notes again what the store could not be told.
    pub(super) fn put_back(&mut self, reconciliation: &Reconciliation, now_ms: u64) {
        match reconciliation.amount {
            Amount::Taken(hits) => self.take(hits),
            Amount::GivenBack(hits) => self.given_back = self.given_back.and(hits, now_ms),
        }
    }
}

impl GivenBack {
    /// Hits given back at `now_ms`: however many were used then, all are gone once as many hits
    /// taken at this moment would be.
    fn at(now_ms: u64, limit: &Limit, hits: u64) -> Self {
        let mut full = State::Fresh;
        limit.take(&mut full, now_ms, limit.capacity().max(hits));
        Self { hits, void_from_ms: now_ms.saturating_add(limit.reset_after_ms(&full, now_ms)) }
    }

    fn unless_void(self, now_ms: u64) -> Self {
        if now_ms < self.void_from_ms { self } else { Self::default() }
    }

    /// Both together, which are void as early as either.
    fn and(self, other: Self, now_ms: u64) -> Self {
        match (self.unless_void(now_ms), other.unless_void(now_ms)) {
            (Self { hits: 0, .. }, only) | (only, Self { hits: 0, .. }) => only,
            (a, b) => Self {
                hits: a.hits.saturating_add(b.hits),
                void_from_ms: a.void_from_ms.min(b.void_from_ms),
            },
        }
    }
}

impl Reconciliation {
    /// Names the counter.
    pub(super) const fn key(&self) -> &Key {
        &self.counter.key
    }

    /// How many.
    pub const fn hits(&self) -> u64 {
        match self.amount {
            Amount::Taken(hits) | Amount::GivenBack(GivenBack { hits, .. }) => hits,
        }
    }

    /// Whether the store is to give them back.
    pub const fn is_refund(&self) -> bool {
        matches!(self.amount, Amount::GivenBack(_))
    }

    /// What the store is asked: whatever else was taken meanwhile, to take or to give back all of
    /// them, and nobody is rejected for it.
    pub fn counter(&self) -> CounterRequest {
        let (limit, mode) = match self.amount {
            Amount::Taken(_) => (self.counter.limit.into_overdraft(), Mode::Take),
            Amount::GivenBack(_) => (self.counter.limit, Mode::Refund),
        };
        let (hits, key) = (self.hits(), self.counter.key.clone());
        let (enforcement, quota_group) = (Enforcement::Shadow, QuotaGroup::default());
        CounterRequest { limit, hits, mode, enforcement, quota_group, key }
    }
}
