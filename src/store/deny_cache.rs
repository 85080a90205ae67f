//! The deny cache: a limit that Redis said stays full until later than now rejects here, and costs
//! Redis nothing.
//!
//! Exact, because a wait is tight: hits that others take meanwhile only make it longer. What makes
//! it shorter, a refund, is forgotten at once where it passes through this process, and after
//! [`Bounds::ttl`] where it does not. A wait counts from before the run was sent and loses
//! the millisecond by which Redis's clock may have been ahead of it, so that it ends here before it
//! ends in Redis, never after.
//!
//! Where requests are decided on several servers, hits that one of them took are given back when
//! another rejects. Another replica that sees them in between may be told a long wait that ends
//! with the undo, of which it does not hear. So a denial that an undo may revoke is kept for the
//! time of `UNDO_RUNS` runs only: no longer than such a request itself may take.
//!
//! A rejected request also leaves behind how its other limits stood, for its next rejection.
//!
//! Entries stand in two generations: when the younger is full, the elder goes and the younger
//! takes its place. So the bound costs nothing, and what is old goes first.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::decide::{CounterRequest, Mode};
use crate::decision::{Decision, Source};
use crate::decision::{Enforcement, Status};
use crate::limit::{Excess, Limit};

/// Parts with a lock each.
const SHARDS: usize = 64;

/// How long a denial that an undo may revoke is kept, in times of the run that told it.
const UNDO_RUNS: u64 = 4;

/// What the cache may hold, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Entries; none turns it off.
    pub keys_max: usize,
    /// How long Redis is not asked again.
    pub ttl: Duration,
}

/// What is known of limits that reject.
pub struct DenyCache {
    shards: Vec<Mutex<CacheShard>>,
    shard_max: usize,
    ttl_us: u64,
    /// From when no entry denies anything.
    idle_from_us: AtomicU64,
}

/// When a run was under way, and what its denials are worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) sent_us: u64,
    pub(super) answered_us: u64,
    /// Whether hits that are counted may be given back by another replica at any moment.
    pub(super) is_revocable: bool,
}

#[derive(Default)]
struct CacheShard {
    younger: Entries,
    elder: Entries,
}

type Entries = HashMap<u128, Entry, BuildHasherDefault<LowerHalf>>;

/// What is known of one counter.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// When it was known: before its run was sent, of a refund after.
    at_us: u64,
    known: Known,
}

#[derive(Clone, Copy, Debug)]
enum Known {
    /// So many hits were asked of the limit, and it stood so. Until `denied_until_us` it has no
    /// room for them; 0 where it did not reject.
    Asked { limit: Limit, hits: u64, status: Status, denied_until_us: u64 },
    /// Hits were given back: what was asked before that is no longer true.
    Refunded,
}

impl DenyCache {
    /// An empty cache.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_max: bounds.keys_max.div_ceil(2 * SHARDS),
            ttl_us: u64::try_from(bounds.ttl.as_micros()).unwrap_or(u64::MAX),
            idle_from_us: AtomicU64::new(0),
        }
    }

    /// The rejection of a request of which some limit is known to be full.
    pub(super) fn find_denial(&self, counters: &[CounterRequest], now_us: u64) -> Option<Decision> {
        if now_us >= self.idle_from_us.load(Ordering::Relaxed) {
            return None;
        }
        let takes_always = |counter: &CounterRequest| counter.limit.excess() == Excess::Counted;
        if counters.iter().any(|counter| counter.mode != Mode::Take || takes_always(counter)) {
            return None;
        }
        if !counters.iter().any(|counter| self.denies(counter, now_us)) {
            return None;
        }
        let statuses = counters.iter().map(|counter| self.status(counter, now_us)).collect();
        Some(Decision { allowed: false, source: Source::DenyCache, statuses })
    }

    /// Learns from what a run decided.
    pub(super) fn learn(&self, counters: &[CounterRequest], decision: &Decision, seen: Seen) {
        if self.shard_max == 0 {
            return;
        }
        let both = || counters.iter().zip(&decision.statuses);
        // Of a rejected request over several servers, those that admitted it gave its hits back.
        let is_undone = seen.is_revocable && !decision.allowed;
        let gives_back = |counter: &CounterRequest, status: &Status| {
            counter.mode == Mode::Refund || (is_undone && status.within_limit)
        };
        for (counter, _) in both().filter(|(counter, status)| gives_back(counter, status)) {
            self.put(counter, Entry { at_us: seen.answered_us, known: Known::Refunded });
        }
        if !both().any(|(counter, status)| self.until_us(counter, status, seen).is_some()) {
            return;
        }
        for (counter, status) in both().filter(|(counter, _)| counter.mode != Mode::Refund) {
            let denied_until_us = self.until_us(counter, status, seen).unwrap_or(0);
            self.idle_from_us.fetch_max(denied_until_us, Ordering::Relaxed);
            let (limit, hits, status) = (counter.limit, counter.tested_hits(), *status);
            let known = Known::Asked { limit, hits, status, denied_until_us };
            self.put(counter, Entry { at_us: seen.sent_us, known });
        }
    }

    /// Until when an ask that was not within its limit rejects its request; `None` where it does
    /// not, or where a rejection takes hits, as an overdraft does.
    fn until_us(&self, counter: &CounterRequest, status: &Status, seen: Seen) -> Option<u64> {
        let rejects = !status.within_limit
            && counter.enforcement == Enforcement::Enforced
            && counter.limit.excess() == Excess::Refused
            && counter.mode == Mode::Take;
        let wait_us = status.retry_after_ms?.checked_sub(1)?.saturating_mul(1_000);
        let kept_us = wait_us.min(self.ttl_us(seen));
        (rejects && wait_us > 0).then(|| seen.sent_us.saturating_add(kept_us))
    }

    /// How long a denial is kept at most, from when its run was sent.
    fn ttl_us(&self, seen: Seen) -> u64 {
        if !seen.is_revocable {
            return self.ttl_us;
        }
        let took_us = seen.answered_us.saturating_sub(seen.sent_us);
        took_us.saturating_mul(UNDO_RUNS).min(self.ttl_us)
    }

    fn denies(&self, counter: &CounterRequest, now_us: u64) -> bool {
        counter.enforcement == Enforcement::Enforced
            && self.get(counter).is_some_and(|entry| entry.denied_until_us(counter) > now_us)
    }

    /// What is known of one of a rejected request's limits. Of a limit that nothing is known of,
    /// nothing is promised: within the limit, with nothing left.
    fn status(&self, counter: &CounterRequest, now_us: u64) -> Status {
        self.get(counter).and_then(|entry| entry.status(counter, now_us)).unwrap_or(Status::UNKNOWN)
    }

    fn get(&self, counter: &CounterRequest) -> Option<Entry> {
        let shard = self.shard(counter).lock();
        let key = counter.key.hash();
        shard.younger.get(&key).or_else(|| shard.elder.get(&key)).copied()
    }

    /// Keeps what is known, unless hits were given back since.
    fn put(&self, counter: &CounterRequest, entry: Entry) {
        let mut shard = self.shard(counter).lock();
        let key = counter.key.hash();
        let earlier = shard.younger.get(&key).or_else(|| shard.elder.get(&key));
        let newer = |earlier: &Entry| {
            matches!(earlier.known, Known::Refunded) && earlier.at_us >= entry.at_us
        };
        if earlier.is_some_and(newer) {
            return;
        }
        if shard.younger.len() >= self.shard_max {
            shard.elder = std::mem::take(&mut shard.younger);
        }
        shard.younger.insert(key, entry);
    }

    #[allow(clippy::cast_possible_truncation)] // a few bits
    fn shard(&self, counter: &CounterRequest) -> &Mutex<CacheShard> {
        &self.shards[(counter.key.hash() >> 64) as usize % SHARDS]
    }
}

impl Entry {
    /// Until when this very ask is denied.
    fn denied_until_us(&self, counter: &CounterRequest) -> u64 {
        match self.known {
            Known::Asked { limit, hits, denied_until_us, .. }
                if limit == counter.limit && hits == counter.tested_hits() =>
            {
                denied_until_us
            }
            Known::Asked { .. } | Known::Refunded => 0,
        }
    }

    /// How the limit stands, if nothing but time has passed since.
    fn status(&self, counter: &CounterRequest, now_us: u64) -> Option<Status> {
        let Known::Asked { limit, hits, status, .. } = self.known else { return None };
        if limit != counter.limit || hits != counter.tested_hits() {
            return None;
        }
        let left_ms = |ms: u64| {
            let end_us = self.at_us.saturating_add(ms.saturating_mul(1_000));
            end_us.saturating_sub(now_us).div_ceil(1_000)
        };
        let retry_after_ms = status.retry_after_ms.map(left_ms).filter(|left_ms| *left_ms > 0);
        let waited = status.retry_after_ms.is_some() && retry_after_ms.is_none();
        Some(Status {
            within_limit: status.within_limit || waited,
            reset_after_ms: left_ms(status.reset_after_ms),
            retry_after_ms,
            delay_ms: 0,
            ..status
        })
    }
}

/// Keys are hashes already.
#[derive(Default)]
struct LowerHalf(u64);

impl Hasher for LowerHalf {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[allow(clippy::cast_possible_truncation)] // that is what it is for
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

#[cfg(test)]
mod tests;
