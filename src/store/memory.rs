//! Counters in this process: sharded, all-or-nothing over several keys, bounded.
//!
//! A request locks the shards of its keys in ascending order, so that no two requests can wait
//! for each other, decides, and writes. Each shard queues its states by the moment at which they
//! no longer matter. The queue is lazy: a state that is used again moves its moment but not its
//! entry, and is put back where it is met; so using a counter costs no queue operation.
//!
//! A write that adds a state drops a few that are due, and a timer drops more, a few at a time, so
//! that expiry never pauses anybody. At the bound on keys, the state that is nearest to idle in all
//! shards goes first: each shard publishes a lower bound of its moments, and the least is followed
//! until it is the true one.

mod shard;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use smallvec::{SmallVec, smallvec};

use crate::algorithm::State;
use crate::clock::Clock;
use crate::decide::{Ask, Outcome};
use crate::decision::{Decision, Source};
use crate::key::Key;
use crate::limit::Limit;
use shard::Shard;

/// Shards: enough that threads rarely meet, and that growing one's table never takes long.
const SHARDS: usize = 256;

/// How long a state stays beyond the moment when it no longer matters: a counter that is used
/// again meanwhile costs no insertion, and no rounding of clocks drops one that still matters.
const GRACE_MS: u64 = 10_000;

/// States that are due and dropped by a write that adds one.
const DROPS_MAX: usize = 4;

/// States that the timer drops in one shard at a time, and how often it comes back for more.
const SWEEP_DROPS_MAX: usize = 64;
const SWEEP_ROUNDS_MAX: usize = 16;

/// The store in this process.
pub struct MemoryStore {
    shards: Vec<Mutex<Shard>>,
    /// A lower bound of the moments at which each shard's states become idle.
    idle_from_ms: Vec<AtomicU64>,
    keys: AtomicUsize,
    keys_max: usize,
    evicted: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// The shards that one request holds, in ascending order.
struct Held<'a> {
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
    fn find(&self, asks: &[Ask]) -> SmallVec<[Located; 8]> {
        let find = |ask: &Ask| {
            let index = shard_of(&ask.key);
            // In ascending order, and every ask's is held: the first not before is the one.
            let at = self.shards.partition_point(|(held, _)| *held < index);
            Located { at, found: self.shards[at].1.find(&ask.key), within: false }
        };
        asks.iter().map(find).collect()
    }
}

impl MemoryStore {
    /// A store of at most `keys_max` counters.
    pub fn new(keys_max: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            idle_from_ms: (0..SHARDS).map(|_| AtomicU64::new(u64::MAX)).collect(),
            keys: AtomicUsize::new(0),
            keys_max: keys_max.max(1),
            evicted: AtomicU64::new(0),
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

    /// Decides over `asks` now, or at `at_ms` in a replay, in which nothing expires.
    pub fn decide(&self, asks: &[Ask], at_ms: Option<u64>) -> Decision {
        let now_ms = at_ms.unwrap_or_else(|| self.clock.now_ms());
        let mut held = self.hold(asks);
        let mut outcome = Outcome::default();
        let mut all = held.find(asks);
        for (ask, located) in asks.iter().zip(&mut all) {
            let state = held.shards[located.at].1.state(located.found);
            located.within = ask.test(state, now_ms);
            outcome.count(ask, located.within);
        }
        let before = held.keys();
        let mut statuses = Vec::with_capacity(asks.len());
        for (ask, Located { at, found, within }) in asks.iter().zip(all) {
            let settle = |state: &mut State| ask.settle(state, now_ms, within, outcome);
            let shard = &mut held.shards[at].1;
            statuses.push(if outcome.moves(ask, within) {
                shard.update((ask, found), now_ms, settle)
            } else {
                shard.read(found, settle)
            });
        }
        let inserted = held.keys().saturating_sub(before);
        if inserted > 0 && at_ms.is_none() {
            held.drop_due(now_ms, DROPS_MAX);
            if self.keys() + inserted > self.keys_max {
                held.drop_due(now_ms + GRACE_MS, inserted);
            }
        }
        self.release(held, before, now_ms);
        Decision { allowed: outcome.allowed(), source: Source::Store, statuses }
    }

    /// Drops a bounded number of states that are due in every shard; for a timer to call, so
    /// that a process without traffic shrinks too.
    pub fn drop_due(&self) {
        let now_ms = self.clock.now_ms();
        for index in 0..SHARDS {
            for _ in 0..SWEEP_ROUNDS_MAX {
                if self.idle_from_ms[index].load(Ordering::Relaxed) > now_ms {
                    break;
                }
                let mut held = Held { shards: smallvec![(index, self.shards[index].lock())] };
                let before = held.keys();
                held.drop_due(now_ms, SWEEP_DROPS_MAX);
                self.release(held, before, now_ms);
            }
        }
    }

    /// Hits of a counter that count now under a limit.
    pub fn used(&self, key: &Key, limit: &Limit) -> u64 {
        let shard = self.shards[shard_of(key)].lock();
        limit.used_hits(shard.state(shard.find(key)), self.clock.now_ms())
    }

    /// The stored bytes of a counter, as Redis would hold them, for comparing stores.
    pub fn encoded(&self, key: &Key) -> Option<Vec<u8>> {
        let shard = self.shards[shard_of(key)].lock();
        Some(shard.state(shard.find(key)))
            .filter(|state| **state != State::Fresh)
            .map(State::encode)
    }

    fn hold(&self, asks: &[Ask]) -> Held<'_> {
        let mut wanted: SmallVec<[usize; 16]> = asks.iter().map(|ask| shard_of(&ask.key)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        Held { shards: wanted.iter().map(|index| (*index, self.shards[*index].lock())).collect() }
    }

    /// Publishes what changed, unlocks, and keeps the bound.
    fn release(&self, held: Held<'_>, keys_before: usize, now_ms: u64) {
        let keys_after = held.keys();
        for (index, shard) in &held.shards {
            // Written where it changed only: all threads share these.
            let (bound, idle_from_ms) = (&self.idle_from_ms[*index], shard.idle_from_ms());
            if bound.load(Ordering::Relaxed) != idle_from_ms {
                bound.store(idle_from_ms, Ordering::Relaxed);
            }
        }
        // Counted while the shards are held, so that nobody counts a drop before its insertion.
        if keys_after > keys_before {
            self.keys.fetch_add(keys_after - keys_before, Ordering::Relaxed);
        } else if keys_after < keys_before {
            self.keys.fetch_sub(keys_before - keys_after, Ordering::Relaxed);
        }
        drop(held);
        // Each who inserts drops as many, so that nobody drops for two. Bounded: every state
        // has an entry in its shard's queue, and every round drops a state or raises a lower bound.
        let mut inserted = keys_after.saturating_sub(keys_before);
        while inserted > 0 && self.keys() > self.keys_max {
            inserted -= usize::from(self.drop_nearest_to_idle(now_ms));
        }
    }

    /// Drops the state with the least idle moment in the shard with the least lower bound, or
    /// raises that bound where another shard's is less. Says whether a state was dropped.
    fn drop_nearest_to_idle(&self, now_ms: u64) -> bool {
        let bound = |index: &usize| self.idle_from_ms[*index].load(Ordering::Relaxed);
        let Some(nearest) = (0..SHARDS).min_by_key(bound) else { return false };
        let others = (0..SHARDS).filter(|index| *index != nearest);
        let next_ms = others.map(|index| bound(&index)).min().unwrap_or(u64::MAX);
        let mut shard = self.shards[nearest].lock();
        let dropped = shard.drop_first(next_ms);
        if let Some(idle_ms) = dropped {
            self.keys.fetch_sub(1, Ordering::Relaxed);
            // What only outlives its use is no loss.
            if idle_ms > now_ms + GRACE_MS {
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.idle_from_ms[nearest].store(shard.idle_from_ms(), Ordering::Relaxed);
        dropped.is_some()
    }
}

impl Held<'_> {
    fn keys(&self) -> usize {
        self.shards.iter().map(|(_, shard)| shard.len()).sum()
    }

    fn drop_due(&mut self, now_ms: u64, looks_max: usize) {
        for (_, shard) in &mut self.shards {
            shard.drop_due(now_ms, looks_max);
        }
    }
}

/// The table takes the hash's lower half.
#[allow(clippy::cast_possible_truncation)] // a few bits
const fn shard_of(key: &Key) -> usize {
    (key.hash() >> 64) as usize % SHARDS
}
