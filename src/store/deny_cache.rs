//! The deny cache: rejects requests for a limit that Redis reported as full, without asking Redis.
//!
//! A rejection comes with a wait, after which the same hits would fit. Until the wait ends, the
//! same request is rejected in this process.
//!
//! This is exact, because the wait is the shortest possible one: hits that others take meanwhile
//! only make it longer. Only refunds make it shorter. A refund through this process ends the denial
//! at once; a refund through another process does so after [`Bounds::ttl`] at most. The wait is
//! counted from before the script run was sent and is cut by 1 ms, by which Redis's clock may have
//! been ahead of the millisecond that it decided in. So a denial ends here before the wait ends in
//! Redis, never after.
//!
//! If a request is decided on several servers, hits that one server took are refunded when another
//! server rejects: an undo. Another replica that sees those hits in between may be given a long
//! wait, which the undo shortens without that replica being notified. So a denial that an undo may
//! revoke is kept for `UNDO_RUNS` times the duration of its script run only, which is as long as
//! such a request itself may take.
//!
//! The statuses of a rejected request's other limits are kept as well, so that the next rejection
//! can report them.
//!
//! Entries are kept in two generations. When the younger generation is full, the elder one is
//! dropped and the younger one takes its place. So the bound costs nothing to enforce, and the
//! oldest entries are dropped first.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::decide::{CounterRequest, Mode};
use crate::decision::{Decision, Source};
use crate::decision::{Enforcement, Status};
use crate::limit::{Excess, Limit};

/// Shards, each with its own lock.
const SHARDS: usize = 64;

/// How long a denial that an undo may revoke is kept, in durations of the run that reported it.
const UNDO_RUNS: u64 = 4;

/// The size of the cache, and the lifetime of its entries.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Entries, at most. 0 turns the cache off.
    pub keys_max: usize,
    /// How long a denial is kept, at most, before Redis is asked again.
    pub ttl: Duration,
}

/// Recent denials, by counter. All threads share it.
pub struct DenyCache {
    shards: Vec<Mutex<CacheShard>>,
    shard_max: usize,
    ttl_us: u64,
    /// The moment after which no entry denies anything.
    idle_from_us: AtomicU64,
}

/// When a script run was sent and answered, and whether its denials may be revoked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) sent_us: u64,
    pub(super) answered_us: u64,
    /// Whether another replica may undo counted hits at any moment.
    pub(super) is_revocable: bool,
}

#[derive(Default)]
struct CacheShard {
    younger: Entries,
    elder: Entries,
}

type Entries = HashMap<u128, Entry, BuildHasherDefault<LowerHalf>>;

/// The latest report on one counter.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The moment of the report: before its run was sent, or for a refund after it was answered.
    at_us: u64,
    report: Report,
}

#[derive(Clone, Copy, Debug)]
enum Report {
    /// The limit was tested for `hits` and had this status. It has no room for them until
    /// `denied_until_us`, which is 0 if the limit did not reject.
    Tested { limit: Limit, hits: u64, status: Status, denied_until_us: u64 },
    /// Hits were refunded, so earlier reports no longer hold.
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

    /// The rejection of a request, if one of its limits is known to be full.
    pub(super) fn find_denial(&self, counters: &[CounterRequest], now_us: u64) -> Option<Decision> {
        if now_us >= self.idle_from_us.load(Ordering::Relaxed) {
            return None;
        }
        let always_takes = |counter: &CounterRequest| counter.limit.excess() == Excess::Counted;
        if counters.iter().any(|counter| counter.mode != Mode::Take || always_takes(counter)) {
            return None;
        }
        if !counters.iter().any(|counter| self.denies(counter, now_us)) {
            return None;
        }
        let statuses = counters.iter().map(|counter| self.status(counter, now_us)).collect();
        Some(Decision { allowed: false, source: Source::DenyCache, statuses })
    }

    /// Records the decision of a script run.
    pub(super) fn learn(&self, counters: &[CounterRequest], decision: &Decision, seen: Seen) {
        if self.shard_max == 0 {
            return;
        }
        let pairs = || counters.iter().zip(&decision.statuses);
        // If one of several servers rejects, those that admitted the request undo its hits.
        let is_undone = seen.is_revocable && !decision.allowed;
        let is_refunded = |counter: &CounterRequest, status: &Status| {
            counter.mode == Mode::Refund || (is_undone && status.within_limit)
        };
        for (counter, _) in pairs().filter(|(counter, status)| is_refunded(counter, status)) {
            self.put(counter, Entry { at_us: seen.answered_us, report: Report::Refunded });
        }
        if !pairs().any(|(counter, status)| self.denial_end_us(counter, status, seen).is_some()) {
            return;
        }
        for (counter, status) in pairs().filter(|(counter, _)| counter.mode != Mode::Refund) {
            let denied_until_us = self.denial_end_us(counter, status, seen).unwrap_or(0);
            self.idle_from_us.fetch_max(denied_until_us, Ordering::Relaxed);
            let (limit, hits, status) = (counter.limit, counter.tested_hits(), *status);
            let report = Report::Tested { limit, hits, status, denied_until_us };
            self.put(counter, Entry { at_us: seen.sent_us, report });
        }
    }

    /// The moment until which a limit that was exceeded rejects the same counter request. `None` if
    /// it rejects nothing, or if a rejection takes hits, as with an overdraft.
    fn denial_end_us(&self, counter: &CounterRequest, status: &Status, seen: Seen) -> Option<u64> {
        let rejects = !status.within_limit
            && counter.enforcement == Enforcement::Enforced
            && counter.limit.excess() == Excess::Refused
            && counter.mode == Mode::Take;
        let wait_us = status.retry_after_ms?.checked_sub(1)?.saturating_mul(1_000);
        let kept_us = wait_us.min(self.ttl_us(seen));
        (rejects && wait_us > 0).then(|| seen.sent_us.saturating_add(kept_us))
    }

    /// How long a denial is kept after its run was sent, at most.
    fn ttl_us(&self, seen: Seen) -> u64 {
        if !seen.is_revocable {
            return self.ttl_us;
        }
        let run_us = seen.answered_us.saturating_sub(seen.sent_us);
        run_us.saturating_mul(UNDO_RUNS).min(self.ttl_us)
    }

    fn denies(&self, counter: &CounterRequest, now_us: u64) -> bool {
        counter.enforcement == Enforcement::Enforced
            && self.get(counter).is_some_and(|entry| entry.denied_until_us(counter) > now_us)
    }

    /// The status to report for a limit of a rejected request. A limit without an entry gets
    /// [`Status::UNKNOWN`]: within the limit, with nothing remaining.
    fn status(&self, counter: &CounterRequest, now_us: u64) -> Status {
        self.get(counter).and_then(|entry| entry.status(counter, now_us)).unwrap_or(Status::UNKNOWN)
    }

    fn get(&self, counter: &CounterRequest) -> Option<Entry> {
        let shard = self.shard(counter).lock();
        let key = counter.key.hash();
        shard.younger.get(&key).or_else(|| shard.elder.get(&key)).copied()
    }

    /// Stores an entry, unless hits were refunded after its report.
    fn put(&self, counter: &CounterRequest, entry: Entry) {
        let mut shard = self.shard(counter).lock();
        let key = counter.key.hash();
        let earlier = shard.younger.get(&key).or_else(|| shard.elder.get(&key));
        let was_refunded_since = |earlier: &Entry| {
            matches!(earlier.report, Report::Refunded) && earlier.at_us >= entry.at_us
        };
        if earlier.is_some_and(was_refunded_since) {
            return;
        }
        if shard.younger.len() >= self.shard_max {
            shard.elder = std::mem::take(&mut shard.younger);
        }
        shard.younger.insert(key, entry);
    }

    #[allow(clippy::cast_possible_truncation)] // only the lowest 6 bits are used
    fn shard(&self, counter: &CounterRequest) -> &Mutex<CacheShard> {
        &self.shards[(counter.key.hash() >> 64) as usize % SHARDS]
    }
}

impl Entry {
    /// The moment until which this counter request is denied; 0 if it differs from the one tested.
    fn denied_until_us(&self, counter: &CounterRequest) -> u64 {
        match self.report {
            Report::Tested { limit, hits, denied_until_us, .. }
                if limit == counter.limit && hits == counter.tested_hits() =>
            {
                denied_until_us
            }
            Report::Tested { .. } | Report::Refunded => 0,
        }
    }

    /// The status of the limit now, if only time has passed since the report.
    fn status(&self, counter: &CounterRequest, now_us: u64) -> Option<Status> {
        let Report::Tested { limit, hits, status, .. } = self.report else { return None };
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

/// A hasher that returns the lower half of a key's hash, because keys are hashes already.
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

    #[allow(clippy::cast_possible_truncation)] // the lower half is meant
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

#[cfg(test)]
mod tests;
