//! One shard: states by key, a queue by the moment at which they become idle, and eviction of what
//! was least recently used.

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
    /// Slots by the hash of their key.
    table: HashTable<u32>,
    slots: Chunked<Slot>,
    /// The group of each slot, or [`FREE`]: apart from the slots, so that a search for the slots of
    /// a group reads 2 bytes for each that it skips.
    groups: Vec<u16>,
    free: Vec<u32>,
    /// Its first entry is valid.
    queue: BinaryHeap<Reverse<Queued>>,
    /// Grows by [`Times::TURN`] with each request that locks the shard, and wraps.
    turn: u32,
    /// The slot at which the next eviction begins to look.
    hand: usize,
    changes: Changes,
}

/// How long a state is kept after the moment when it no longer matters: a counter that is used again
/// in this time costs no insertion, and no rounding of clocks drops one that still matters.
pub(super) const GRACE_MS: u64 = 10_000;

/// Stands for the group of a slot without a state.
const FREE: u16 = u16::MAX;

/// States of a group that are compared to evict the least recently used of them.
const SAMPLES: usize = 8;

/// Which states an eviction may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victims {
    /// Those that the latest request did not use.
    Unused,
    /// All.
    Any,
}

/// One line of the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// The key's name; its text is not kept.
    hash: u128,
    /// Fresh where the slot is free.
    state: State,
    times: Times,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// When a state becomes idle, the moment of its valid entry in the queue, and when it was used:
/// 48, 48 and 32 bits.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// The idle moment, below the upper 16 bits of the queued one.
    idle: u64,
    queued: u32,
    /// The turn of the last use, above 2 bits that count the uses after the first.
    used: u32,
}

/// What the queue holds: a moment in 6 bytes and a slot in 3, biggest first, so that entries sort as
/// their bytes do. An entry is valid while its slot names its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Queued([u8; 9]);

impl Queued {
    /// The last moment, in the year 10889: a state that matters longer is due then.
    const MS_MAX: u64 = Times::NOT_QUEUED - 1;

    /// Of a moment up to [`Queued::MS_MAX`]; a shard has room for 16 million states.
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
    /// The queued moment of a slot without an entry; later than every other.
    const NOT_QUEUED: u64 = (1 << 48) - 1;

    /// One turn: the bits below it count uses.
    const TURN: u32 = 1 << 2;
    const USES_MAX: u32 = Self::TURN - 1;

    /// Of a state first used in `turn`, in a slot that the queue has an entry of at `queued_ms`.
    const fn new(idle_ms: u64, queued_ms: u64, turn: u32) -> Self {
        let mut times = Self { idle: 0, queued: 0, used: turn };
        times.set_idle_ms(idle_ms);
        times.set_queued_ms(queued_ms);
        times
    }

    /// From when the state no longer matters, and the grace behind it; at most [`Queued::MS_MAX`].
    const fn idle_ms(self) -> u64 {
        self.idle & Self::NOT_QUEUED
    }

    const fn set_idle_ms(&mut self, ms: u64) {
        self.idle = (self.idle & !Self::NOT_QUEUED) | ms;
    }

    /// The moment of the slot's valid entry in the queue; never after the idle moment of a state.
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

    /// Turns since the last use, halved for each use after the first, up to three: a value that
    /// came back outlives eight times as many that never do.
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

    /// Begins the turn of a request.
    pub(super) const fn begin_turn(&mut self) {
        self.turn = self.turn.wrapping_add(Times::TURN);
    }

    /// What was added and removed since changes were cleared.
    pub(super) const fn changes(&self) -> &Changes {
        &self.changes
    }

    pub(super) const fn changes_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// A lower bound of the moments at which states become idle; the greatest number if there are none.
    pub(super) fn idle_from_ms(&self) -> u64 {
        self.queue.peek().map_or(u64::MAX, |Reverse(entry)| entry.ms())
    }

    /// Where the counter stands; it stays there until it is removed.
    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        let hash = key.hash();
        self.table.find(lower(hash), |index| self.slots[*index].hash == hash).copied()
    }

    pub(super) fn state(&self, found: Option<u32>) -> &State {
        found.map_or(&State::Fresh, |index| &self.slots[index].state)
    }

    /// Runs `apply`, which moves nothing, on the state of a counter.
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

    /// Runs `apply` on the state of the ask's counter, and keeps what it leaves.
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

    /// Drops states that are due, looking at no more than `looks_max` entries.
    pub(super) fn drop_due(&mut self, now_ms: u64, looks_max: usize) {
        for _ in 0..looks_max {
            if self.idle_from_ms() > now_ms {
                return;
            }
            self.drop_first(now_ms);
        }
    }

    /// Evicts the least recently used of the next few states of a group, and returns its idle moment.
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

    /// Drops the first state of the queue if it is idle by `until_ms`; otherwise moves its entry to
    /// where it belongs.
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

    /// Drops the first entries until one is valid and its slot has a state.
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
            // A freed slot keeps its entry in the queue, which is right for its next state too,
            // unless that is idle earlier.
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

    /// Entries that are no longer valid must not outnumber the rest.
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

/// When a state that is left now is idle, and the grace behind it.
fn idle_ms(counter: &CounterRequest, state: &State, now_ms: u64) -> u64 {
    (now_ms + counter.limit.keep_ms(state, now_ms) + GRACE_MS).min(Queued::MS_MAX)
}

/// What the table takes of a key's name.
#[allow(clippy::cast_possible_truncation)] // that is what it is for
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
    fn hits_taken_and_given_back_leave_no_more_entries_than_states() {
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
