//! The memory store: sharded counters in this process, atomic over several keys and bounded.
//!
//! A request locks the shards of its keys in ascending order, so that no two requests can wait for
//! each other, then decides and writes.
//!
//! A state is idle once it no longer affects a decision and a grace period has passed. Each shard
//! has a queue of its states by that moment. The queue is lazy: using a state again changes its
//! moment but not its entry, which is queued again when it comes to the front. So using a counter
//! costs no queue operation.
//!
//! Expiry: a write that adds a state drops up to `EXPIRIES_MAX` idle ones, and a timer drops more
//! in small steps, so that expiry never pauses a request.
//!
//! Eviction: at the bound on keys, idle states are dropped first, in any shard; each shard
//! publishes a lower bound of its idle moments. If no state is idle, the group with the most states
//! loses one: the least recently used of a few samples, from the shard of the insertion if the
//! group has states there. So a flood of values of one limit evicts that limit's own counters, and
//! values in use are kept. Rejected: evicting the state that becomes idle next, with which counters
//! of long periods switch off all shorter limits.

mod chunked;
mod groups;
mod shard;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::algorithm::State;
use crate::clock::Clock;
use crate::decide::{CounterRequest, Outcome};
use crate::decision::{Decision, Source};
use crate::key::Key;
use crate::limit::Limit;
use groups::{Changes, Groups};
use shard::{GRACE_MS, Shard, Victims};

/// Shards, at most: so many that threads rarely contend and that growing a table is quick.
const SHARDS_MAX: usize = 256;

/// Counters of a full shard, at least, so that an eviction has enough to choose from.
const SHARD_KEYS_MIN: usize = 256;

/// Queue entries examined per shard by a write that adds a state.
const EXPIRIES_MAX: usize = 4;

/// Queue entries that the timer examines per lock of a shard, and the locks per shard and sweep.
const SWEEP_EXPIRIES_MAX: usize = 64;
const SWEEP_ROUNDS_MAX: usize = 16;

/// Failed attempts of one request to drop an idle state. An attempt fails only if another request
/// drops the state at the same moment, or if the state was used after it was queued.
const ATTEMPTS_MAX: usize = 64;

/// The memory store.
pub struct MemoryStore {
    shards: Vec<Mutex<Shard>>,
    /// A lower bound of the moments at which each shard's states become idle.
    idle_from_ms: Vec<AtomicU64>,
    groups: Groups,
    keys: AtomicUsize,
    keys_max: usize,
    evicted: AtomicU64,
    /// The shard at which the next eviction begins to search.
    hand: AtomicUsize,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// The shards that one request has locked, in ascending order.
struct LockedShards<'a> {
    store: &'a MemoryStore,
    shards: SmallVec<[(usize, MutexGuard<'a, Shard>); 8]>,
}

/// The place of one request's counter.
struct Located {
    /// The index of its shard among the locked ones.
    at: usize,
    /// Its slot in the shard, if it has a state.
    found: Option<u32>,
    /// Whether the hits fit, once they are tested.
    within: bool,
}

impl LockedShards<'_> {
    /// Finds all counters before the first state is read. Most of a decision's time is cache
    /// misses, which then overlap.
    fn find(&self, counters: &[CounterRequest]) -> SmallVec<[Located; 8]> {
        let find = |counter: &CounterRequest| {
            let index = self.store.shard_of(&counter.key);
            // The shards are in ascending order, and all that the request needs are locked.
            let at = self.shards.partition_point(|(locked, _)| *locked < index);
            Located { at, found: self.shards[at].1.find(&counter.key), within: false }
        };
        counters.iter().map(find).collect()
    }
}

impl MemoryStore {
    /// A store of at most `keys_max` counters.
    pub fn new(keys_max: usize, clock: Arc<dyn Clock>) -> Self {
        let shards = (keys_max / SHARD_KEYS_MIN).clamp(1, SHARDS_MAX).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            idle_from_ms: (0..shards).map(|_| AtomicU64::new(u64::MAX)).collect(),
            groups: Groups::new(),
            keys: AtomicUsize::new(0),
            keys_max: keys_max.max(1),
            evicted: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
            clock,
        }
    }

    /// The number of counters.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Counters evicted before they were idle, because the bound on keys was reached.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Decides over `counters` now, or at `at_ms` in a replay, in which nothing expires.
    pub fn transact(&self, counters: &[CounterRequest], at_ms: Option<u64>) -> Decision {
        let now_ms = at_ms.unwrap_or_else(|| self.clock.now_ms());
        let mut locked = self.lock_shards(counters);
        let mut outcome = Outcome::default();
        let mut all = locked.find(counters);
        for (counter, located) in counters.iter().zip(&mut all) {
            let state = locked.shards[located.at].1.state(located.found);
            located.within = counter.fits(state, now_ms);
            outcome.count(counter, located.within);
        }
        let mut statuses = Vec::with_capacity(counters.len());
        for (counter, Located { at, found, within }) in counters.iter().zip(all) {
            let apply = |state: &mut State| counter.apply(state, now_ms, within, outcome);
            let shard = &mut locked.shards[at].1;
            statuses.push(if outcome.moves(counter, within) {
                shard.update(counter, found, now_ms, apply)
            } else {
                shard.read(found, apply)
            });
        }
        if locked.is_changed() && at_ms.is_none() {
            self.make_room(&mut locked, now_ms);
        }
        self.release(locked, now_ms);
        Decision { allowed: outcome.allowed(), source: Source::Store, statuses }
    }

    /// Drops idle states, a bounded number per shard. A timer calls this, so that a process without
    /// traffic shrinks too.
    pub fn drop_due(&self) {
        let now_ms = self.clock.now_ms();
        for index in 0..self.shards.len() {
            for _ in 0..SWEEP_ROUNDS_MAX {
                if self.idle_from_ms[index].load(Ordering::Relaxed) > now_ms {
                    break;
                }
                let mut shard = self.shards[index].lock();
                shard.drop_due(now_ms, SWEEP_EXPIRIES_MAX);
                self.publish(index, &mut shard);
            }
        }
    }

    /// The moment of a decision made now.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// The hits of a counter that count now under a limit.
    pub fn used(&self, key: &Key, limit: &Limit) -> u64 {
        let shard = self.shards[self.shard_of(key)].lock();
        limit.used_hits(shard.state(shard.find(key)), self.clock.now_ms())
    }

    /// A counter's state in the bytes that Redis would store, for comparing the two stores.
    pub fn encoded(&self, key: &Key) -> Option<Vec<u8>> {
        let shard = self.shards[self.shard_of(key)].lock();
        Some(shard.state(shard.find(key)))
            .filter(|state| **state != State::Fresh)
            .map(State::encode)
    }

    fn lock_shards(&self, counters: &[CounterRequest]) -> LockedShards<'_> {
        let mut indexes: SmallVec<[usize; 16]> =
            counters.iter().map(|counter| self.shard_of(&counter.key)).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let lock = |index: &usize| {
            let mut shard = self.shards[*index].lock();
            shard.begin_turn();
            (*index, shard)
        };
        LockedShards { store: self, shards: indexes.iter().map(lock).collect() }
    }

    /// Drops a few idle states if the request inserted some.
    fn make_room(&self, locked: &mut LockedShards<'_>, now_ms: u64) {
        let inserted = usize::try_from(locked.changes().sum()).unwrap_or(0);
        if inserted > 0 {
            locked.drop_due(now_ms, EXPIRIES_MAX);
            if self.keys() + inserted > self.keys_max {
                locked.drop_due(now_ms + GRACE_MS, inserted);
            }
        }
    }

    /// Publishes the changes, unlocks the shards, and enforces the bound on keys.
    fn release(&self, locked: LockedShards<'_>, now_ms: u64) {
        for (index, shard) in &locked.shards {
            self.publish_idle_from(*index, shard);
        }
        if locked.is_changed() {
            self.release_changed(locked, now_ms);
        }
    }

    fn release_changed(&self, mut locked: LockedShards<'_>, now_ms: u64) {
        let mut changes = locked.changes();
        let inserted = usize::try_from(changes.sum()).unwrap_or(0);
        if inserted > 0 && self.keys() + inserted > self.keys_max {
            self.evict_locked(&mut locked, &mut changes, now_ms);
        }
        self.count(&changes);
        locked.shards.iter_mut().for_each(|(_, shard)| shard.changes_mut().clear());
        drop(locked);
        if inserted > 0 {
            self.enforce_bound(inserted, now_ms);
        }
    }

    /// Evicts from each shard as many states as it gained, unless some shard has an idle state,
    /// which is dropped first.
    fn evict_locked(&self, locked: &mut LockedShards<'_>, changes: &mut Changes, now_ms: u64) {
        if self.idle_shard(now_ms).is_some() {
            return;
        }
        for (_, shard) in &mut locked.shards {
            for _ in 0..shard.changes().sum() {
                if self.keys().saturating_add_signed(changes.sum()) <= self.keys_max {
                    return;
                }
                let group = self.groups.largest(self.keys(), changes);
                let Some(idle_ms) = shard.evict(group, Victims::Unused) else { break };
                changes.add(group, -1);
                self.count_evicted(idle_ms, now_ms);
            }
        }
    }

    /// Drops up to `inserted` states while there are too many. Each request drops as many as it
    /// inserted, so that no two requests drop for the same excess.
    fn enforce_bound(&self, inserted: usize, now_ms: u64) {
        let (mut left, mut attempts_left) = (inserted, ATTEMPTS_MAX);
        while left > 0 && self.keys() > self.keys_max {
            let idle = if attempts_left > 0 { self.idle_shard(now_ms) } else { None };
            let dropped = match idle {
                Some(index) => self.drop_idle(index, now_ms),
                None => self.evict_anywhere(now_ms),
            };
            if dropped {
                left -= 1;
            } else if attempts_left > 0 {
                attempts_left -= 1;
            } else {
                return;
            }
        }
    }

    /// A shard that may have an idle state. States in their grace period count as idle.
    fn idle_shard(&self, now_ms: u64) -> Option<usize> {
        let idle_from = |bound: &AtomicU64| bound.load(Ordering::Relaxed);
        self.idle_from_ms.iter().position(|bound| idle_from(bound) <= now_ms + GRACE_MS)
    }

    /// Drops the first state of a shard's queue if it is idle. Returns whether it was.
    fn drop_idle(&self, index: usize, now_ms: u64) -> bool {
        let mut shard = self.shards[index].lock();
        let before = shard.len();
        shard.drop_due(now_ms + GRACE_MS, 1);
        let dropped = shard.len() < before;
        self.publish(index, &mut shard);
        dropped
    }

    /// Evicts a state of the largest group, from the first shard that has one.
    fn evict_anywhere(&self, now_ms: u64) -> bool {
        let group = self.groups.largest(self.keys(), &Changes::default());
        let (start, shards) = (self.hand.fetch_add(1, Ordering::Relaxed), self.shards.len());
        let order = |victims| (0..shards).map(move |at| (start.wrapping_add(at) % shards, victims));
        for (index, victims) in order(Victims::Unused).chain(order(Victims::Any)) {
            let mut shard = self.shards[index].lock();
            if let Some(idle_ms) = shard.evict(group, victims) {
                self.count_evicted(idle_ms, now_ms);
                self.publish(index, &mut shard);
                return true;
            }
        }
        false
    }

    fn publish(&self, index: usize, shard: &mut Shard) {
        self.publish_idle_from(index, shard);
        self.count(shard.changes());
        shard.changes_mut().clear();
    }

    /// Writes the bound only if it changed, because all threads share it.
    fn publish_idle_from(&self, index: usize, shard: &Shard) {
        let (bound, idle_from_ms) = (&self.idle_from_ms[index], shard.idle_from_ms());
        if bound.load(Ordering::Relaxed) != idle_from_ms {
            bound.store(idle_from_ms, Ordering::Relaxed);
        }
    }

    /// Counts changes. Their shards are locked, so that no drop is counted before its insertion.
    fn count(&self, changes: &Changes) {
        self.groups.apply(changes);
        let sum = changes.sum();
        if sum > 0 {
            self.keys.fetch_add(sum.unsigned_abs(), Ordering::Relaxed);
        } else if sum < 0 {
            self.keys.fetch_sub(sum.unsigned_abs(), Ordering::Relaxed);
        }
    }

    fn count_evicted(&self, idle_ms: u64, now_ms: u64) {
        // Losing a state in its grace period affects no decision.
        if idle_ms > now_ms + GRACE_MS {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The shard of a key, by the upper half of its hash: the table uses the lower half.
    #[allow(clippy::cast_possible_truncation)] // only the lowest bits are used
    fn shard_of(&self, key: &Key) -> usize {
        // The number of shards is a power of two.
        (key.hash() >> 64) as usize & (self.shards.len() - 1)
    }
}

impl LockedShards<'_> {
    fn is_changed(&self) -> bool {
        self.shards.iter().any(|(_, shard)| shard.changes().is_some())
    }

    /// The changes of all locked shards.
    fn changes(&self) -> Changes {
        let mut changes = Changes::default();
        self.shards.iter().for_each(|(_, shard)| changes.add_all(shard.changes()));
        changes
    }

    fn drop_due(&mut self, now_ms: u64, entries_max: usize) {
        for (_, shard) in &mut self.shards {
            shard.drop_due(now_ms, entries_max);
        }
    }
}
