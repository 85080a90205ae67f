//! One shard: states by key, and a queue by the moment at which they become idle.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

use super::GRACE_MS;
use crate::algorithm::State;
use crate::decide::Ask;
use crate::decision::Status;
use crate::key::Key;

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Slots by the hash of their key.
    table: HashTable<u32>,
    slots: Slots,
    free: Vec<u32>,
    /// Its first entry is valid.
    queue: BinaryHeap<Reverse<Queued>>,
}

/// Slots in chunks: growing moves none of them, and leaves no half of a doubled array empty.
#[derive(Debug, Default)]
struct Slots {
    chunks: Vec<Vec<Slot>>,
    len: u32,
}

/// One line of the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// The key's name; its text is not kept.
    hash: u128,
    state: State,
    /// From when the state no longer matters, and the grace behind it; at most [`Queued::MS_MAX`].
    idle_ms: u64,
    /// The moment of the slot's valid entry in the queue; never after `idle_ms`.
    queued_ms: u64,
}

/// What the queue holds: a moment in 6 bytes and a slot in 3, biggest first, so that entries sort as
/// their bytes do. An entry is valid while its slot names its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Queued([u8; 9]);

impl Queued {
    /// The last moment that fits 6 bytes, in the year 10889: a state that matters longer is due then.
    const MS_MAX: u64 = (1 << 48) - 1;

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

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.table.len()
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

    /// Runs `settle`, which moves nothing, on the state of a counter.
    pub(super) fn read(
        &mut self,
        found: Option<u32>,
        settle: impl FnOnce(&mut State) -> Status,
    ) -> Status {
        match found {
            Some(index) => settle(&mut self.slots[index].state),
            None => settle(&mut State::Fresh),
        }
    }

    /// Runs `settle` on the state of the ask's counter, and keeps what it leaves.
    pub(super) fn update(
        &mut self,
        (ask, found): (&Ask, Option<u32>),
        now_ms: u64,
        settle: impl FnOnce(&mut State) -> Status,
    ) -> Status {
        let Some(index) = found else {
            let mut state = State::Fresh;
            let status = settle(&mut state);
            if state != State::Fresh {
                let idle_ms = idle_ms(ask, &state, now_ms);
                self.insert(&ask.key, state, idle_ms);
            }
            return status;
        };
        let slot = &mut self.slots[index];
        let status = settle(&mut slot.state);
        if slot.state == State::Fresh {
            self.remove(index);
        } else {
            slot.idle_ms = idle_ms(ask, &slot.state, now_ms);
            if slot.idle_ms < slot.queued_ms {
                slot.queued_ms = slot.idle_ms;
                self.queue.push(Reverse(Queued::new(slot.idle_ms, index)));
                self.compact_queue();
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

    /// Drops the first state of the queue if it is idle by `until_ms` or no other can be before
    /// it, and returns its moment; otherwise moves its entry to where it belongs.
    pub(super) fn drop_first(&mut self, until_ms: u64) -> Option<u64> {
        let Reverse(entry) = self.queue.pop()?;
        self.drop_invalid();
        let next_ms = self.idle_from_ms();
        let slot = &mut self.slots[entry.slot()];
        if slot.idle_ms > entry.ms() && slot.idle_ms > until_ms.min(next_ms) {
            slot.queued_ms = slot.idle_ms;
            self.queue.push(Reverse(Queued::new(slot.idle_ms, entry.slot())));
            return None;
        }
        let idle_ms = slot.idle_ms;
        self.remove(entry.slot());
        Some(idle_ms)
    }

    /// Drops the first entries until one is valid.
    fn drop_invalid(&mut self) {
        while let Some(first) = self.queue.peek_mut() {
            let Reverse(entry) = *first;
            if self.slots[entry.slot()].queued_ms == entry.ms() {
                return;
            }
            PeekMut::pop(first);
        }
    }

    fn insert(&mut self, key: &Key, state: State, idle_ms: u64) {
        let hash = key.hash();
        let slot = Slot { hash, state, idle_ms, queued_ms: idle_ms };
        let index = if let Some(index) = self.free.pop() {
            self.slots[index] = slot;
            index
        } else {
            self.slots.push(slot)
        };
        let slots = &self.slots;
        self.table.insert_unique(lower(hash), index, |index| lower(slots[*index].hash));
        self.queue.push(Reverse(Queued::new(idle_ms, index)));
        self.compact_queue();
    }

    fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index];
        if let Ok(entry) = self.table.find_entry(lower(slot.hash), |other| *other == index) {
            entry.remove();
        }
        slot.state = State::Fresh;
        slot.queued_ms = u64::MAX;
        self.free.push(index);
        if self.table.is_empty() {
            *self = Self::default();
        }
        self.drop_invalid();
    }

    /// Refunds and removals leave entries behind that are no longer valid; they must not outnumber the
    /// rest.
    fn compact_queue(&mut self) {
        if self.queue.len() > 2 * self.slots.len as usize + 64 {
            let slots = (0..).zip(self.slots.chunks.iter().flatten());
            let queued = slots.filter(|(_, slot)| slot.queued_ms < u64::MAX);
            let entries = queued.map(|(index, slot)| Queued::new(slot.queued_ms, index));
            self.queue = entries.map(Reverse).collect();
        }
    }
}

/// When a state that is left now is idle, and the grace behind it.
fn idle_ms(ask: &Ask, state: &State, now_ms: u64) -> u64 {
    (now_ms + ask.limit.keep_ms(state, now_ms) + GRACE_MS).min(Queued::MS_MAX)
}

/// What the table takes of a key's name.
#[allow(clippy::cast_possible_truncation)] // that is what it is for
const fn lower(hash: u128) -> u64 {
    hash as u64
}

impl Slots {
    /// Just under 32 KiB, which an allocator can align without taking the next size; the system
    /// provides what of it is written.
    const CHUNK: u32 = 511;

    /// Adds a slot and returns its index.
    fn push(&mut self, slot: Slot) -> u32 {
        match self.chunks.last_mut() {
            Some(last) if last.len() < Self::CHUNK as usize => last.push(slot),
            Some(_) | None => {
                let mut chunk = Vec::with_capacity(Self::CHUNK as usize);
                chunk.push(slot);
                self.chunks.push(chunk);
            }
        }
        self.len += 1;
        self.len - 1
    }
}

impl Index<u32> for Slots {
    type Output = Slot;

    fn index(&self, index: u32) -> &Slot {
        &self.chunks[(index / Self::CHUNK) as usize][(index % Self::CHUNK) as usize]
    }
}

impl IndexMut<u32> for Slots {
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.chunks[(index / Self::CHUNK) as usize][(index % Self::CHUNK) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Mode, Outcome};
    use crate::decision::Enforcement;
    use crate::limit::{Limit, LimitSpec};

    fn ask(mode: Mode) -> Ask {
        let spec = LimitSpec { hits: 5, period_ms: 3_600_000, ..LimitSpec::default() };
        let limit = Limit::new(&spec).unwrap();
        let key = Key::of_bytes(&b"counter"[..]);
        Ask { key, limit, hits: 1, mode, enforcement: Enforcement::Enforced }
    }

    #[test]
    fn hits_taken_and_given_back_leave_no_more_entries_than_states() {
        let mut shard = Shard::default();
        let other = Ask { key: Key::of_bytes(&b"resident"[..]), ..ask(Mode::Take) };
        for ask in std::iter::once(&other)
            .chain([ask(Mode::Take), ask(Mode::Refund)].iter().cycle().take(10_000))
        {
            let found = shard.find(&ask.key);
            shard.update((ask, found), 1_000, |state| {
                ask.settle(state, 1_000, true, Outcome::default())
            });
        }
        assert_eq!(shard.len(), 1);
        assert!(shard.queue.len() <= 2 * shard.slots.len as usize + 64, "{}", shard.queue.len());
    }
}
