//! Counters in this process: sharded, all-or-nothing over several keys, bounded.
//!
//! A request locks the shards of its keys in ascending order, so that no two requests can wait
//! for each other, decides, and writes. Each shard queues its states by the moment at which they
//! no longer matter. The queue is lazy: a state that is used again moves its moment but not its
//! entry, and is put back where it is met; so using a counter costs no queue operation.
//!
//! A write that adds a state drops a few that are due, and a timer drops more, a few at a time, so
//! that expiry never pauses anybody. At the bound on keys, states that are idle go first, in
//! whichever shard they are: each shard publishes a lower bound of its moments. Where none is idle,
//! the group that holds most states evicts: the least recently used of a few of its states, in the
//! shard of the insertion if it has any there. So a flood of values of one limit evicts that limit's
//! own, and values in use stay. Rejected: evicting the state nearest to idle, with which counters
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

/// Shards: enough that threads rarely meet, and that growing one's table never takes long.
const SHARDS_MAX: usize = 256;

/// Counters of a full shard: enough to choose from when one is evicted.
const SHARD_KEYS_MIN: usize = 256;

/// States that are due and dropped by a write that adds one.
const DROPS_MAX: usize = 4;

/// States that the timer drops in one shard at a time, and how often it comes back for more.
const SWEEP_DROPS_MAX: usize = 64;
const SWEEP_ROUNDS_MAX: usize = 16;

/// How often a request looks in vain for a state to drop. Only a state that another request drops
/// at the same moment, or one that was used after it was queued, is looked for in vain.
const LOOKS_MAX: usize = 64;

/// The store in this process.
pub struct MemoryStore {
    shards: Vec<Mutex<Shard>>,
    /// A lower bound of the moments at which each shard's states become idle.
    idle_from_ms: Vec<AtomicU64>,
    groups: Groups,
    keys: AtomicUsize,
    keys_max: usize,
    evicted: AtomicU64,
    /// The shard at which the next search for a state to evict begins.
    hand: AtomicUsize,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// The shards that one request holds, in ascending order.
struct Held<'a> {
    store: &'a MemoryStore,
    shards: SmallVec<[(usize, MutexGuard<'a, Shard>); 8]>,
}

/// Where the counter of one ask is.
struct Located {
    /// Which of the held shards has it.
    at: usize,
    /// Where it stands in that shard.
    found: Option<u32>,
    /// Whether the ask fits, once it is tested.
    within: bool,
}

impl Held<'_> {
    /// Finds all counters before the first is looked into: most of a decision's time is memory on
    /// its way to the processor, and so it comes for several at once.
    fn find(&self, counters: &[CounterRequest]) -> SmallVec<[Located; 8]> {
        let find = |counter: &CounterRequest| {
            let index = self.store.shard_of(&counter.key);
            // In ascending order, and every ask's is held: the first not before is the one.
            let at = self.shards.partition_point(|(held, _)| *held < index);
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

    /// Counters held.
    pub fn keys(&self) -> usize {
        self.keys.load(Ordering::Relaxed)
    }

    /// Counters that were dropped in force, because the bound on keys was reached.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Decides over `counters` now, or at `at_ms` in a replay, in which nothing expires.
    pub fn transact(&self, counters: &[CounterRequest], at_ms: Option<u64>) -> Decision {
        let now_ms = at_ms.unwrap_or_else(|| self.clock.now_ms());
        let mut held = self.hold(counters);
        let mut outcome = Outcome::default();
        let mut all = held.find(counters);
        for (counter, located) in counters.iter().zip(&mut all) {
            let state = held.shards[located.at].1.state(located.found);
            located.within = counter.fits(state, now_ms);
            outcome.count(counter, located.within);
        }
        let mut statuses = Vec::with_capacity(counters.len());
        for (counter, Located { at, found, within }) in counters.iter().zip(all) {
            let apply = |state: &mut State| counter.apply(state, now_ms, within, outcome);
            let shard = &mut held.shards[at].1;
            statuses.push(if outcome.moves(counter, within) {
                shard.update(counter, found, now_ms, apply)
            } else {
                shard.read(found, apply)
            });
        }
        if held.is_changed() && at_ms.is_none() {
            self.make_room(&mut held, now_ms);
        }
        self.release(held, now_ms);
        Decision { allowed: outcome.allowed(), source: Source::Store, statuses }
    }

    /// Drops a bounded number of states that are due in every shard; for a timer to call, so
    /// that a process without traffic shrinks too.
    pub fn drop_due(&self) {
        let now_ms = self.clock.now_ms();
        for index in 0..self.shards.len() {
            for _ in 0..SWEEP_ROUNDS_MAX {
                if self.idle_from_ms[index].load(Ordering::Relaxed) > now_ms {
                    break;
                }
                let mut shard = self.shards[index].lock();
                shard.drop_due(now_ms, SWEEP_DROPS_MAX);
                self.publish(index, &mut shard);
            }
        }
    }

    /// The moment that decisions are made at.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Hits of a counter that count now under a limit.
    pub fn used(&self, key: &Key, limit: &Limit) -> u64 {
        let shard = self.shards[self.shard_of(key)].lock();
        limit.used_hits(shard.state(shard.find(key)), self.clock.now_ms())
    }

    /// The stored bytes of a counter, as Redis would hold them, for comparing stores.
    pub fn encoded(&self, key: &Key) -> Option<Vec<u8>> {
        let shard = self.shards[self.shard_of(key)].lock();
        Some(shard.state(shard.find(key)))
            .filter(|state| **state != State::Fresh)
            .map(State::encode)
    }

    fn hold(&self, counters: &[CounterRequest]) -> Held<'_> {
        let mut wanted: SmallVec<[usize; 16]> =
            counters.iter().map(|counter| self.shard_of(&counter.key)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let lock = |index: &usize| {
            let mut shard = self.shards[*index].lock();
            shard.begin_turn();
            (*index, shard)
        };
        Held { store: self, shards: wanted.iter().map(lock).collect() }
    }

    /// Drops a few states that are due in shards that gained some.
    fn make_room(&self, held: &mut Held<'_>, now_ms: u64) {
        let inserted = usize::try_from(held.changes().sum()).unwrap_or(0);
        if inserted > 0 {
            held.drop_due(now_ms, DROPS_MAX);
            if self.keys() + inserted > self.keys_max {
                held.drop_due(now_ms + GRACE_MS, inserted);
            }
        }
    }

    /// Publishes what changed, unlocks, and keeps the bound.
    fn release(&self, held: Held<'_>, now_ms: u64) {
        for (index, shard) in &held.shards {
            self.publish_idle_from(*index, shard);
        }
        if held.is_changed() {
            self.release_changed(held, now_ms);
        }
    }

    fn release_changed(&self, mut held: Held<'_>, now_ms: u64) {
        let mut changes = held.changes();
        let inserted = usize::try_from(changes.sum()).unwrap_or(0);
        if inserted > 0 && self.keys() + inserted > self.keys_max {
            self.evict_held(&mut held, &mut changes, now_ms);
        }
        self.count(&changes);
        held.shards.iter_mut().for_each(|(_, shard)| shard.changes_mut().clear());
        drop(held);
        if inserted > 0 {
            self.keep_bound(inserted, now_ms);
        }
    }

    /// Evicts as many states as each shard has gained, unless some shard has an idle one, which
    /// goes first.
    fn evict_held(&self, held: &mut Held<'_>, changes: &mut Changes, now_ms: u64) {
        if self.idle_shard(now_ms).is_some() {
            return;
        }
        for (_, shard) in &mut held.shards {
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

    /// Drops up to `inserted` states while there are too many: each request drops as many as
    /// it inserts, so that no two drop for the same excess.
    fn keep_bound(&self, inserted: usize, now_ms: u64) {
        let (mut left, mut looks) = (inserted, LOOKS_MAX);
        while left > 0 && self.keys() > self.keys_max {
            let idle = if looks > 0 { self.idle_shard(now_ms) } else { None };
            let dropped = match idle {
                Some(index) => self.drop_idle(index, now_ms),
                None => self.evict_anywhere(now_ms),
            };
            if dropped {
                left -= 1;
            } else if looks > 0 {
                looks -= 1;
            } else {
                return;
            }
        }
    }

    /// A shard that may have an idle state. What only outlives its use, in the grace, is idle too.
    fn idle_shard(&self, now_ms: u64) -> Option<usize> {
        let idle_from = |bound: &AtomicU64| bound.load(Ordering::Relaxed);
        self.idle_from_ms.iter().position(|bound| idle_from(bound) <= now_ms + GRACE_MS)
    }

    /// Drops the first state of a shard's queue if it is idle, and says whether it was.
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

    /// Written where it changed only: all threads share these.
    fn publish_idle_from(&self, index: usize, shard: &Shard) {
        let (bound, idle_from_ms) = (&self.idle_from_ms[index], shard.idle_from_ms());
        if bound.load(Ordering::Relaxed) != idle_from_ms {
            bound.store(idle_from_ms, Ordering::Relaxed);
        }
    }

    /// Counts changes while their shards are locked, so that no drop is counted before its
    /// insertion.
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
        // What only outlives its use is no loss.
        if idle_ms > now_ms + GRACE_MS {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The table takes the hash's lower half.
    #[allow(clippy::cast_possible_truncation)] // a few bits
    fn shard_of(&self, key: &Key) -> usize {
        // Their number is a power of two.
        (key.hash() >> 64) as usize & (self.shards.len() - 1)
    }
}

impl Held<'_> {
    fn is_changed(&self) -> bool {
        self.shards.iter().any(|(_, shard)| shard.changes().is_some())
    }

    /// What all shards gained and lost.
    fn changes(&self) -> Changes {
        let mut changes = Changes::default();
        self.shards.iter().for_each(|(_, shard)| changes.add_all(shard.changes()));
        changes
    }

    fn drop_due(&mut self, now_ms: u64, looks_max: usize) {
        for (_, shard) in &mut self.shards {
            shard.drop_due(now_ms, looks_max);
        }
    }
}
