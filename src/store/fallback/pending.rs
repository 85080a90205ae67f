//! The hits of one counter that the fallback took or refunded and the store does not know of.
//!
//! Hits taken and hits refunded are kept as two amounts while the store is down, and sent to it as
//! one: their difference. A refund first cancels hits that were taken here; the rest is for hits
//! that the store counted before the outage. That rest is void once none of those hits can count
//! any more: refunded later, it would come off hits that were taken afterwards.
//!
//! So one counter needs a fixed amount of memory, however long the outage lasts.

use crate::algorithm::State;
use crate::decide::{CounterRequest, Mode};
use crate::decision::{Enforcement, QuotaGroup};
use crate::key::Key;
use crate::limit::Limit;

/// Hits of one counter that were taken or refunded here and that the store does not know of.
#[derive(Clone, Debug)]
pub(super) struct PendingHits {
    /// The counter request as the store would have received it.
    pub(super) counter: CounterRequest,
    /// Hits that were admitted, less those of them that were refunded.
    taken: u64,
    refunds: Refunds,
}

/// Refunded hits beyond those taken here.
#[derive(Clone, Copy, Debug, Default)]
struct Refunds {
    hits: u64,
    /// The moment from which no hit counts that was taken before the first of these refunds. A
    /// refund after it would come off later hits.
    void_from_ms: u64,
}

/// Hits of one counter that the store is to charge or to refund.
#[derive(Clone, Debug)]
pub struct Reconciliation {
    counter: CounterRequest,
    amount: Amount,
}

#[derive(Clone, Copy, Debug)]
enum Amount {
    Charge(u64),
    Refund(Refunds),
}

impl PendingHits {
    pub(super) fn of(counter: &CounterRequest) -> Self {
        Self { counter: counter.clone(), taken: 0, refunds: Refunds::default() }
    }

    pub(super) fn of_reconciliation(reconciliation: &Reconciliation) -> Self {
        Self::of(&reconciliation.counter)
    }

    /// Records hits that were admitted.
    pub(super) const fn take(&mut self, hits: u64) {
        self.taken = self.taken.saturating_add(hits);
    }

    /// Records a refund. `counting` are the counter's hits that counted here before it.
    pub(super) fn refund(&mut self, hits: u64, counting: u64, now_ms: u64) {
        let own = hits.min(self.taken).min(counting);
        self.taken -= own;
        if hits > own {
            let more = Refunds::at(now_ms, &self.counter.limit, hits - own);
            self.refunds = self.refunds.and(more, now_ms);
        }
    }

    /// The charge or refund to send to the store at `now_ms`; `None` if the amounts cancel out or
    /// no longer count. `counting` are the counter's hits that count here then.
    pub(super) fn into_reconciliation(self, counting: u64, now_ms: u64) -> Option<Reconciliation> {
        let taken = self.taken.min(counting);
        let refunds = self.refunds.unless_void(now_ms);
        let amount = match taken.checked_sub(refunds.hits) {
            Some(0) => return None,
            Some(more) => Amount::Charge(more),
            None => Amount::Refund(Refunds { hits: refunds.hits - taken, ..refunds }),
        };
        Some(Reconciliation { counter: self.counter, amount })
    }

    /// Records a reconciliation again that could not be sent to the store.
    pub(super) fn put_back(&mut self, reconciliation: &Reconciliation, now_ms: u64) {
        match reconciliation.amount {
            Amount::Charge(hits) => self.take(hits),
            Amount::Refund(hits) => self.refunds = self.refunds.and(hits, now_ms),
        }
    }
}

impl Refunds {
    /// A refund at `now_ms`. Whatever the counter's state was then, all its hits have left once a
    /// full counter's hits, taken at this moment, would have left.
    fn at(now_ms: u64, limit: &Limit, hits: u64) -> Self {
        let mut full = State::Fresh;
        limit.take(&mut full, now_ms, limit.capacity().max(hits));
        Self { hits, void_from_ms: now_ms.saturating_add(limit.reset_after_ms(&full, now_ms)) }
    }

    fn unless_void(self, now_ms: u64) -> Self {
        if now_ms < self.void_from_ms { self } else { Self::default() }
    }

    /// The sum of both, which is void as soon as one of them is.
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
    /// The counter's key.
    pub(super) const fn key(&self) -> &Key {
        &self.counter.key
    }

    /// The number of hits.
    pub const fn hits(&self) -> u64 {
        match self.amount {
            Amount::Charge(hits) | Amount::Refund(Refunds { hits, .. }) => hits,
        }
    }

    /// Whether the store is to refund the hits rather than charge them.
    pub const fn is_refund(&self) -> bool {
        matches!(self.amount, Amount::Refund(_))
    }

    /// The counter request to send to the store. It takes or refunds all the hits, whatever the
    /// counter's state is by now, and rejects nothing.
    pub fn counter(&self) -> CounterRequest {
        let (limit, mode) = match self.amount {
            Amount::Charge(_) => (self.counter.limit.into_overdraft(), Mode::Take),
            Amount::Refund(_) => (self.counter.limit, Mode::Refund),
        };
        let (hits, key) = (self.hits(), self.counter.key.clone());
        let (enforcement, quota_group) = (Enforcement::Shadow, QuotaGroup::default());
        CounterRequest { limit, hits, mode, enforcement, quota_group, key }
    }
}
