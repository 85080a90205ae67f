//! Decides one request over all its counters. Every limit is tested first. If the request passes,
//! all of its counters take the hits; if not, none does.
//!
//! Pure: a store passes in the states and the time. `lua/decide.lua` does the same in Redis, and
//! tests compare the two on random requests.

use crate::algorithm::State;
use crate::decision::{Enforcement, QuotaGroup, Status};
use crate::key::Key;
use crate::limit::{Excess, Limit};

/// What a request does with a counter's hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Takes them if the request passes.
    Take,
    /// Tests whether they would fit, and takes none.
    Peek,
    /// Gives them back.
    Refund,
}

/// What a request does with one counter. A request has at most one for each key.
#[derive(Clone, Debug)]
pub struct CounterRequest {
    /// Names the counter.
    pub key: Key,
    /// The limit that applies to it.
    pub limit: Limit,
    /// At most [`crate::limit::HITS_MAX`]. 0 takes none and is tested as one hit, except in a refund,
    /// which is never rejected.
    pub hits: u64,
    /// Whether the hits are taken, tested or refunded.
    pub mode: Mode,
    /// What the limit does to the request if the hits do not fit.
    pub enforcement: Enforcement,
    /// The group of a quota; not used for other limits.
    pub quota_group: QuotaGroup,
}

/// The combined result of testing a request's limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    rejected: bool,
    /// Rejected by a limit without overdraft: then not even overdraft limits take.
    takes_nothing: bool,
    /// Not every limit could be tested: then no limit takes.
    undecided: bool,
    quotas: Quotas,
}

/// The quotas of a request, by group.
#[derive(Clone, Copy, Debug, Default)]
struct Quotas {
    groups: u8,
    /// A bit for each group that is over.
    over: [u64; 4],
    /// One that is over has no overdraft.
    takes_nothing: bool,
}

impl Outcome {
    /// The outcome of a request whose statuses are in the order of its counters.
    pub(crate) fn of(counters: &[CounterRequest], statuses: &[Status]) -> Self {
        let mut outcome = Self::default();
        outcome.count_all(counters, statuses);
        outcome
    }

    /// Adds the results of several limits.
    pub(crate) fn count_all(&mut self, counters: &[CounterRequest], statuses: &[Status]) {
        for (counter, status) in counters.iter().zip(statuses) {
            self.count(counter, status.within_limit);
        }
    }

    /// Adds the result of one limit.
    pub fn count(&mut self, counter: &CounterRequest, within_limit: bool) {
        let refuses = !within_limit && !counter.limit.overdraft();
        match counter.enforcement {
            Enforcement::Shadow => {}
            Enforcement::Enforced => {
                self.rejected |= !within_limit;
                self.takes_nothing |= refuses;
            }
            Enforcement::Quota => {
                self.quotas.count(counter.quota_group, within_limit);
                self.quotas.takes_nothing |= refuses;
            }
        }
    }

    /// Adds limits that could not be tested: then nothing is taken from any.
    pub(crate) const fn fail(&mut self) {
        self.rejected = true;
        self.undecided = true;
    }

    /// Whether the request passes.
    pub const fn allowed(self) -> bool {
        !self.rejected && !self.quotas.are_all_over()
    }

    /// Whether the hits of a counter request change its counter.
    pub const fn moves(self, counter: &CounterRequest, within_limit: bool) -> bool {
        if counter.hits == 0 || self.undecided {
            return false;
        }
        match (counter.mode, counter.limit.excess()) {
            (Mode::Peek, _) => false,
            (Mode::Take | Mode::Refund, Excess::Counted) => true,
            (Mode::Refund, _) => self.allowed(),
            (Mode::Take, Excess::Overdraft) => !self.takes_nothing(),
            (Mode::Take, Excess::Refused) => within_limit && self.allowed(),
        }
    }

    const fn takes_nothing(self) -> bool {
        self.takes_nothing || (self.quotas.takes_nothing && self.quotas.are_all_over())
    }
}

impl Quotas {
    fn count(&mut self, group: QuotaGroup, within_limit: bool) {
        let group = group.number();
        self.groups = self.groups.max(group.saturating_add(1));
        if !within_limit {
            self.over[usize::from(group / 64)] |= 1 << (group % 64);
        }
    }

    const fn are_all_over(&self) -> bool {
        // Most requests have no quota, and this is asked several times per request.
        if self.groups == 0 {
            return false;
        }
        let [a, b, c, d] = self.over;
        let over = a.count_ones() + b.count_ones() + c.count_ones() + d.count_ones();
        over == self.groups as u32
    }
}

impl CounterRequest {
    /// The hits that are tested: one for an overdraft and for a request of 0 hits.
    pub(crate) const fn tested_hits(&self) -> u64 {
        if self.limit.overdraft() || self.hits == 0 { 1 } else { self.hits }
    }

    /// Whether the hits fit at `now_ms`.
    pub fn fits(&self, state: &State, now_ms: u64) -> bool {
        self.mode == Mode::Refund || self.limit.admits(state, now_ms, self.tested_hits())
    }

    /// Updates the counter according to the request's outcome, and returns its status.
    pub fn apply(&self, state: &mut State, now_ms: u64, within: bool, outcome: Outcome) -> Status {
        let takes = self.mode == Mode::Take && self.hits > 0 && within && outcome.allowed();
        let delay_ms = if takes { self.limit.delay_ms(state, now_ms) } else { 0 };
        if outcome.moves(self, within) {
            match self.mode {
                Mode::Refund => self.limit.refund(state, now_ms, self.hits),
                Mode::Take | Mode::Peek => self.limit.take(state, now_ms, self.hits),
            }
        }
        let retries = !within;
        Status {
            within_limit: within,
            remaining: self.limit.remaining(state, now_ms),
            reset_after_ms: self.limit.reset_after_ms(state, now_ms),
            retry_after_ms: retries
                .then(|| self.limit.retry_after_ms(state, now_ms, self.tested_hits()))
                .flatten(),
            delay_ms,
        }
    }
}
