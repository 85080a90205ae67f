//! One shard: states by key, and a queue by the moment at which they become idle.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;

use crate::algorithm::State;
use crate::decide::{Ask, Status};

#[derive(Debug, Default)]
pub(super) struct Shard {
    /// Slots by the hash of their key.
    table: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    queue: BinaryHeap<Reverse<Place>>,
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    key: Box<[u8]>,
    state: State,
    /// From when the state no longer matters.
    idle_ms: u64,
    /// The moment of the slot's valid place in the queue; never after `idle_ms`.
    queued_ms: u64,
}

/// A place in the queue; it is valid while its slot names its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    ms: u64,
    slot: u32,
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// A lower bound of the moments at which states become idle.
    pub(super) fn idle_from_ms(&self) -> u64 {
        self.queue.peek().map_or(u64::MAX, |Reverse(place)| place.ms)
    }

    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<&State> {
        self.index(hash, key).map(|index| &self.slots[index as usize].state)
    }

    /// Runs `settle` on the state of the ask's counter, and keeps what it leaves.
    pub(super) fn update(
        &mut self,
        hash: u64,
        ask: &Ask,
        now_ms: u64,
        settle: impl FnOnce(&mut State) -> Status,
    ) -> Status {
        let Some(index) = self.index(hash, ask.key.as_bytes()) else {
            let mut state = State::Fresh;
            let status = settle(&mut state);
            if state != State::Fresh {
                let idle_ms = now_ms + ask.limit.keep_ms(&state, now_ms);
                self.insert(hash, ask.key.as_bytes().into(), state, idle_ms);
            }
            return status;
        };
        let slot = &mut self.slots[index as usize];
        let status = settle(&mut slot.state);
        if slot.state == State::Fresh {
            self.remove(index);
        } else {
            slot.idle_ms = now_ms + ask.limit.keep_ms(&slot.state, now_ms);
            if slot.idle_ms < slot.queued_ms {
                slot.queued_ms = slot.idle_ms;
                self.queue.push(Reverse(Place { ms: slot.idle_ms, slot: index }));
                self.compact_queue();
            }
        }
        status
    }

    /// Drops states that are due, looking at no more than `looks_max` places.
    pub(super) fn drop_due(&mut self, now_ms: u64, looks_max: usize) {
        for _ in 0..looks_max {
            if self.idle_from_ms() > now_ms {
                return;
            }
            self.drop_first(now_ms);
        }
    }

    /// Drops the first state of the queue if it is idle by `until_ms` or no other can be before
    /// it, and returns its moment; otherwise moves its place to where it belongs.
    pub(super) fn drop_first(&mut self, until_ms: u64) -> Option<u64> {
        let Reverse(place) = self.queue.pop()?;
        let slot = self.slots.get_mut(place.slot as usize)?;
        if slot.queued_ms != place.ms {
            return None;
        }
        let next_ms = self.queue.peek().map_or(u64::MAX, |Reverse(next)| next.ms);
        if slot.idle_ms > place.ms && slot.idle_ms > until_ms.min(next_ms) {
            slot.queued_ms = slot.idle_ms;
            self.queue.push(Reverse(Place { ms: slot.idle_ms, slot: place.slot }));
            return None;
        }
        let idle_ms = slot.idle_ms;
        self.remove(place.slot);
        Some(idle_ms)
    }

    fn index(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let same = |index: &u32| *self.slots[*index as usize].key == *key;
        self.table.find(hash, same).copied()
    }

    #[allow(clippy::cast_possible_truncation)] // the bound on keys is below 2^32
    fn insert(&mut self, hash: u64, key: Box<[u8]>, state: State, idle_ms: u64) {
        let slot = Slot { hash, key, state, idle_ms, queued_ms: idle_ms };
        let index = if let Some(index) = self.free.pop() {
            self.slots[index as usize] = slot;
            index
        } else {
            self.slots.push(slot);
            (self.slots.len() - 1) as u32
        };
        let slots = &self.slots;
        self.table.insert_unique(hash, index, |index| slots[*index as usize].hash);
        self.queue.push(Reverse(Place { ms: idle_ms, slot: index }));
    }

    fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Ok(entry) = self.table.find_entry(slot.hash, |other| *other == index) {
            entry.remove();
        }
        slot.key = Box::default();
        slot.state = State::Fresh;
        slot.queued_ms = u64::MAX;
        self.free.push(index);
        if self.table.is_empty() {
            *self = Self::default();
        }
    }

    /// Refunds leave places behind that are no longer valid; they must not outnumber the rest.
    fn compact_queue(&mut self) {
        if self.queue.len() > 2 * self.slots.len() + 64 {
            let slots = &self.slots;
            self.queue.retain(|Reverse(place)| slots[place.slot as usize].queued_ms == place.ms);
        }
    }
}
