//! One shard: states by key, a queue by the moment at which they become idle, and eviction of the
//! least recently used.
//!
//! A state is idle once it no longer affects a decision and [`GRACE_MS`] have passed. The queue is
//! lazy. A state that is used again keeps its entry, which is queued again at its new moment when
//! it comes to the front. A state that becomes idle earlier gets a second entry, and the old one is
//! invalid: an entry is valid while its slot has the same queued moment. Invalid entries are
//! dropped when they come to the front, or all at once when they outnumber the slots.
//!
//! Eviction samples a few slots of a group and takes the least recently used. Exact order would
//! need a list that every use of a counter updates.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use hashbrown::HashTable;

use super::chunked::Chunked;
use super::groups::Changes;
use crate::algorithm::State;
use crate::decide::CounterRequest;
use crate::decision::Status;
use crate::key::Key;

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Slot indexes by the hash of their key.
    table: HashTable<u32>,
    slots: Chunked<Slot>,
    /// The group of each slot, or [`FREE`]. Kept apart from the slots, so that a search for the
    /// slots of a group reads 2 bytes for each slot that it skips.
    groups: Vec<u16>,
    free: Vec<u32>,
    /// Entries by moment. The first one is always valid.
    queue: BinaryHeap<Reverse<Queued>>,
    /// Logical time: grows by [`Times::TURN`] with each request that locks the shard, and wraps.
    turn: u32,
    /// The slot at which the next eviction begins to search.
    hand: usize,
    changes: Changes,
}

/// How long a state is kept after it no longer affects a decision. A counter that is used again in
/// this time costs no insertion, and no rounding of clocks drops a state that still counts.
pub(super) const GRACE_MS: u64 = 10_000;

/// The group of a slot without a state.
const FREE: u16 = u16::MAX;

/// States of a group that an eviction compares.
const SAMPLES: usize = 8;

/// Which states an eviction may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victims {
    /// States that the latest request did not use.
    Unused,
    /// All states.
    Any,
}

/// A state and its key, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// The hash of the key. The key's text is not kept.
    hash: u128,
    /// [`State::Fresh`] if the slot is free.
    state: State,
    times: Times,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// The moment at which a state becomes idle, the moment of its valid queue entry, and its last use:
/// 48, 48 and 32 bits.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// The idle moment in the lower 48 bits, the upper 16 bits of the queued moment above it.
    idle: u64,
    /// The lower 32 bits of the queued moment.
    queued: u32,
    /// The turn of the last use; the lowest 2 bits count the uses after the first, up to 3.
    used: u32,
}

/// An entry of the queue: a moment in 6 bytes and a slot in 3, big-endian, so that entries sort as
/// their bytes do. It is valid while its slot has the same queued moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Queued([u8; 9]);

impl Queued {
    /// The latest moment, in the year 10889. States that count longer are idle from then on.
    const MS_MAX: u64 = Times::NOT_QUEUED - 1;

    /// An entry for a moment up to [`Queued::MS_MAX`]. Slots are below 2^24: 16 million states.
    fn new(ms: u64, slot: u32) -> Self {
        let mut bytes = [0; 9];
        bytes[..6].copy_from_slice(&ms.to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&slot.to_be_bytes()[1..]);
        Self(bytes)
    }

    fn ms(self) -> u64 {
        let [a, b, c, d, e, f, ..] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    fn slot(self) -> u32 {
        let [.., a, b, c] = self.0;
        u32::from_be_bytes([0, a, b, c])
    }
}

impl Times {
    /// The queued moment of a slot without an entry. It is later than every other moment.
    const NOT_QUEUED: u64 = (1 << 48) - 1;

    /// One turn. The bits below it count uses.
    const TURN: u32 = 1 << 2;
    const USES_MAX: u32 = Self::TURN - 1;

    /// The times of a state first used in `turn`, in a slot whose queue entry is at `queued_ms`.
    const fn new(idle_ms: u64, queued_ms: u64, turn: u32) -> Self {
        let mut times = Self { idle: 0, queued: 0, used: turn };
        times.set_idle_ms(idle_ms);
        times.set_queued_ms(queued_ms);
        times
    }

    /// The end of the grace period after the state stops counting; at most [`Queued::MS_MAX`].
    const fn idle_ms(self) -> u64 {
        self.idle & Self::NOT_QUEUED
    }

    const fn set_idle_ms(&mut self, ms: u64) {
        self.idle = (self.idle & !Self::NOT_QUEUED) | ms;
    }

    /// The moment of the slot's valid queue entry. It is never after the idle moment of its state.
    const fn queued_ms(self) -> u64 {
        ((self.idle >> 48) << 32) | self.queued as u64
    }

    #[allow(clippy::cast_possible_truncation)] // the upper bits are stored apart
    const fn set_queued_ms(&mut self, ms: u64) {
        self.queued = ms as u32;
        self.idle = self.idle_ms() | ((ms >> 32) << 48);
    }

    const fn turn(self) -> u32 {
        self.used & !Self::USES_MAX
    }

    const fn uses(self) -> u32 {
        self.used & Self::USES_MAX
    }

    fn set_used(&mut self, turn: u32) {
        self.used = turn | (self.uses() + 1).min(Self::USES_MAX);
    }

    /// Turns since the last use, halved for each of up to three uses after the first. So a value
    /// that was used repeatedly is kept for eight times as many turns as one that was used once.
    const fn age(self, turn: u32) -> u32 {
        turn.wrapping_sub(self.turn()) >> self.uses()
    }
}

impl Slot {
    const fn is_free(&self) -> bool {
        matches!(self.state, State::Fresh)
    }
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Begins the turn of a request that has locked the shard.
    pub(super) const fn begin_turn(&mut self) {
        self.turn = self.turn.wrapping_add(Times::TURN);
    }

    /// Counters added and removed since the changes were cleared.
    pub(super) const fn changes(&self) -> &Changes {
        &self.changes
    }

    pub(super) const fn changes_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// A lower bound of the moments at which states become idle; `u64::MAX` without states.
    pub(super) fn idle_from_ms(&self) -> u64 {
        self.queue.peek().map_or(u64::MAX, |Reverse(entry)| entry.ms())
    }

    /// The slot of a counter, which does not change until the counter is removed.
    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        let hash = key.hash();
        self.table.find(lower(hash), |index| self.slots[*index].hash == hash).copied()
    }

    pub(super) fn state(&self, found: Option<u32>) -> &State {
        found.map_or(&State::Fresh, |index| &self.slots[index].state)
    }

    /// Runs `apply`, which must not change the state, on the state of a counter.
    pub(super) fn read(
        &mut self,
        found: Option<u32>,
        apply: impl FnOnce(&mut State) -> Status,
    ) -> Status {
        match found {
            Some(index) => {
                let slot = &mut self.slots[index];
                slot.times.set_used(self.turn);
                apply(&mut slot.state)
            }
            None => apply(&mut State::Fresh),
        }
    }

    /// Runs `apply` on the state of a counter and stores the result.
    pub(super) fn update(
        &mut self,
        counter: &CounterRequest,
        found: Option<u32>,
        now_ms: u64,
        apply: impl FnOnce(&mut State) -> Status,
    ) -> Status {
        let Some(index) = found else {
            let mut state = State::Fresh;
            let status = apply(&mut state);
            if state != State::Fresh {
                let idle_ms = idle_ms(counter, &state, now_ms);
                self.insert(&counter.key, state, idle_ms);
            }
            return status;
        };
        let slot = &mut self.slots[index];
        let status = apply(&mut slot.state);
        if slot.is_free() {
            self.remove(index);
        } else {
            let idle_ms = idle_ms(counter, &slot.state, now_ms);
            slot.times.set_idle_ms(idle_ms);
            slot.times.set_used(self.turn);
            if idle_ms < slot.times.queued_ms() {
                self.enqueue(index, idle_ms);
            }
        }
        status
    }

    /// Drops idle states. Examines `entries_max` queue entries at most.
    pub(super) fn drop_due(&mut self, now_ms: u64, entries_max: usize) {
        for _ in 0..entries_max {
            if self.idle_from_ms() > now_ms {
                return;
            }
            self.drop_first(now_ms);
        }
    }

    /// Evicts the least recently used of the next [`SAMPLES`] states of a group. Returns its idle
    /// moment.
    pub(super) fn evict(&mut self, group: u16, victims: Victims) -> Option<u64> {
        let (before, after) = self.groups.split_at(self.hand.min(self.groups.len()));
        let order = (before.len()..).zip(after).chain((0..).zip(before));
        let of_group = order.filter(|(_, other)| **other == group).map(|(at, _)| at);
        let mut samples = 0;
        let mut victim: Option<(u32, u32)> = None;
        for at in of_group {
            let index = u32::try_from(at).unwrap_or(u32::MAX);
            let times = self.slots[index].times;
            if victims == Victims::Unused && times.turn() == self.turn {
                continue;
            }
            let age = times.age(self.turn);
            if victim.is_none_or(|(oldest, _)| age > oldest) {
                victim = Some((age, index));
            }
            samples += 1;
            if samples == SAMPLES {
                self.hand = at + 1;
                break;
            }
        }
        let (_, index) = victim?;
        let idle_ms = self.slots[index].times.idle_ms();
        self.remove(index);
        Some(idle_ms)
    }

    /// Drops the first state of the queue if it is idle by `until_ms`; otherwise queues it again.
    fn drop_first(&mut self, until_ms: u64) {
        let Some(Reverse(entry)) = self.queue.pop() else { return };
        let times = &mut self.slots[entry.slot()].times;
        times.set_queued_ms(Times::NOT_QUEUED);
        let idle_ms = times.idle_ms();
        if idle_ms > until_ms {
            self.enqueue(entry.slot(), idle_ms);
            self.drop_invalid();
        } else {
            self.remove(entry.slot());
        }
    }

    /// Drops the first entries of the queue until one is valid and its slot has a state.
    fn drop_invalid(&mut self) {
        while let Some(first) = self.queue.peek_mut() {
            let Reverse(entry) = *first;
            let slot = &mut self.slots[entry.slot()];
            if slot.times.queued_ms() == entry.ms() {
                if !slot.is_free() {
                    return;
                }
                slot.times.set_queued_ms(Times::NOT_QUEUED);
            }
            PeekMut::pop(first);
        }
    }

    fn insert(&mut self, key: &Key, state: State, idle_ms: u64) {
        let (hash, group) = (key.hash(), key.group().index());
        let index = if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index];
            // A freed slot keeps its queue entry, which is valid for its next state too, unless
            // that state is idle earlier.
            let times = Times::new(idle_ms, slot.times.queued_ms(), self.turn);
            *slot = Slot { hash, state, times };
            self.groups[index as usize] = group;
            index
        } else {
            let times = Times::new(idle_ms, Times::NOT_QUEUED, self.turn);
            self.groups.push(group);
            self.slots.push(Slot { hash, state, times })
        };
        let slots = &self.slots;
        self.table.insert_unique(lower(hash), index, |index| lower(slots[*index].hash));
        if idle_ms < slots[index].times.queued_ms() {
            self.enqueue(index, idle_ms);
        }
        self.changes.add(group, 1);
    }

    fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index];
        if let Ok(entry) = self.table.find_entry(lower(slot.hash), |other| *other == index) {
            entry.remove();
        }
        slot.state = State::Fresh;
        let group = std::mem::replace(&mut self.groups[index as usize], FREE);
        self.changes.add(group, -1);
        self.free.push(index);
        if self.table.is_empty() {
            let changes = std::mem::take(&mut self.changes);
            *self = Self { turn: self.turn, changes, ..Self::default() };
        }
        self.drop_invalid();
    }

    fn enqueue(&mut self, index: u32, ms: u64) {
        self.slots[index].times.set_queued_ms(ms);
        self.queue.push(Reverse(Queued::new(ms, index)));
        self.compact_queue();
    }

    /// Drops all invalid entries if they are more than about half of the queue.
    fn compact_queue(&mut self) {
        if self.queue.len() > 2 * self.slots.len() as usize + 64 {
            let slots = (0..).zip(self.slots.iter());
            let queued = slots.map(|(index, slot)| (index, slot.times.queued_ms()));
            let queued = queued.filter(|(_, ms)| *ms < Times::NOT_QUEUED);
            let entries = queued.map(|(index, ms)| Reverse(Queued::new(ms, index)));
            self.queue = entries.collect();
        }
    }
}

/// The idle moment of a state written now, including the grace period.
fn idle_ms(counter: &CounterRequest, state: &State, now_ms: u64) -> u64 {
    (now_ms + counter.limit.keep_ms(state, now_ms) + GRACE_MS).min(Queued::MS_MAX)
}

/// The part of a key's hash that the table uses.
#[allow(clippy::cast_possible_truncation)] // the lower half is meant
const fn lower(hash: u128) -> u64 {
    hash as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Mode, Outcome};
    use crate::decision::{Enforcement, QuotaGroup};
    use crate::limit::{Limit, LimitSpec};

    fn counter(mode: Mode) -> CounterRequest {
        let spec = LimitSpec { hits: 5, period_ms: 3_600_000, ..LimitSpec::default() };
        let limit = Limit::new(&spec).unwrap();
        let key = Key::of_bytes(&b"counter"[..]);
        let (enforcement, quota_group) = (Enforcement::Enforced, QuotaGroup::default());
        CounterRequest { key, limit, hits: 1, mode, enforcement, quota_group }
    }

    #[test]
    fn taking_and_refunding_hits_does_not_grow_the_queue() {
        let mut shard = Shard::default();
        let other = CounterRequest { key: Key::of_bytes(&b"resident"[..]), ..counter(Mode::Take) };
        for counter in std::iter::once(&other)
            .chain([counter(Mode::Take), counter(Mode::Refund)].iter().cycle().take(10_000))
        {
            let found = shard.find(&counter.key);
            shard.update(counter, found, 1_000, |state| {
                counter.apply(state, 1_000, true, Outcome::default())
            });
        }
        assert_eq!(shard.len(), 1);
        assert!(shard.queue.len() <= 2 * shard.slots.len() as usize + 64, "{}", shard.queue.len());
    }
}
