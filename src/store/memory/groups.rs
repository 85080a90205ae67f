//! The number of counters per group, and the largest group, which evictions take from.
//!
//! This shares the bound on keys fairly: a group that is not the largest loses no counters, however
//! many values of another limit arrive.
//!
//! An eviction does not compare all groups, of which there can be 16,384: it compares the largest
//! one found so far with the next [`COMPARED_MAX`] and those that the request changed. If the
//! result has less than an even share of the keys, a larger group exists, and all groups are
//! searched.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicUsize, Ordering};

use smallvec::SmallVec;

use crate::key::Group;

/// Groups that one search compares, besides the largest so far. With more groups, successive
/// searches compare the next ones in turn, so a new largest group is found at the latest after
/// (groups / 64) evictions.
const COMPARED_MAX: usize = 64;

/// Counters by group. All threads share it.
pub(super) struct Groups {
    counts: Box<[AtomicI32]>,
    /// Whether a group ever held a counter of this store.
    is_seen: Box<[AtomicBool]>,
    /// The groups that did, in order of their first counter. Entries not written yet are group 0.
    seen: Box<[AtomicU16]>,
    seen_count: AtomicUsize,
    /// The largest group that the last search found, and the index at which the next one begins.
    largest: AtomicUsize,
    next: AtomicUsize,
}

/// Counters added to groups and removed from them that are not counted yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes(SmallVec<[(u16, i32); 2]>);

impl Changes {
    pub(super) fn add(&mut self, group: u16, change: i32) {
        match self.0.iter_mut().find(|(other, _)| *other == group) {
            Some((_, sum)) => *sum += change,
            None => self.0.push((group, change)),
        }
    }

    pub(super) fn add_all(&mut self, others: &Self) {
        others.0.iter().for_each(|(group, change)| self.add(*group, *change));
    }

    /// The number of counters added, less those removed.
    pub(super) fn sum(&self) -> isize {
        self.0.iter().map(|(_, change)| *change as isize).sum()
    }

    /// Whether there are any changes, even if they cancel out.
    pub(super) fn is_some(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn of(&self, index: usize) -> i32 {
        let change = self.0.iter().find(|(group, _)| usize::from(*group) == index);
        change.map_or(0, |(_, change)| *change)
    }
}

impl Groups {
    pub(super) fn new() -> Self {
        Self {
            counts: (0..Group::COUNT).map(|_| AtomicI32::new(0)).collect(),
            is_seen: (0..Group::COUNT).map(|_| AtomicBool::new(false)).collect(),
            seen: (0..Group::COUNT).map(|_| AtomicU16::new(0)).collect(),
            seen_count: AtomicUsize::new(0),
            largest: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// Counts changes. Their shards must be locked.
    pub(super) fn apply(&self, changes: &Changes) {
        for &(group, change) in changes.0.iter().filter(|(_, change)| *change != 0) {
            let index = usize::from(group);
            self.counts[index].fetch_add(change, Ordering::Relaxed);
            let is_seen = &self.is_seen[index];
            if !is_seen.load(Ordering::Relaxed) && !is_seen.swap(true, Ordering::Relaxed) {
                let at = self.seen_count.fetch_add(1, Ordering::Relaxed);
                self.seen[at].store(group, Ordering::Relaxed);
            }
        }
    }

    /// The group with the most of `keys` counters, as if `changes` were counted.
    pub(super) fn largest(&self, keys: usize, changes: &Changes) -> u16 {
        let seen = self.seen_count.load(Ordering::Relaxed).max(1);
        let group = |at: usize| usize::from(self.seen[at % seen].load(Ordering::Relaxed));
        let count =
            |index: &usize| self.counts[*index].load(Ordering::Relaxed) + changes.of(*index);
        let start = self.next.fetch_add(COMPARED_MAX, Ordering::Relaxed);
        let compared = (0..COMPARED_MAX.min(seen)).map(|at| group(start.wrapping_add(at)));
        let changed = changes.0.iter().map(|(group, _)| usize::from(*group));
        let last = self.largest.load(Ordering::Relaxed);
        let mut largest = compared.chain(changed).max_by_key(count).unwrap_or(last);
        if count(&last) >= count(&largest) {
            largest = last;
        }
        // With less than an even share, it cannot be the largest.
        if usize::try_from(count(&largest)).unwrap_or(0).saturating_mul(seen) < keys {
            largest = (0..seen).map(group).max_by_key(count).unwrap_or(largest);
        }
        self.largest.store(largest, Ordering::Relaxed);
        u16::try_from(largest).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(changes: &[(u16, i32)]) -> Changes {
        Changes(changes.iter().copied().collect())
    }

    #[test]
    fn uncounted_changes_decide_which_group_is_the_largest() {
        let groups = Groups::new();
        groups.apply(&changes(&[(1, 500), (2, 500)]));
        for group in [1, 2] {
            assert_eq!(groups.largest(1_000, &changes(&[(group, 1)])), group);
            assert_eq!(groups.largest(1_000, &changes(&[(3 - group, -1)])), group);
        }
    }

    #[test]
    fn a_group_that_is_no_longer_the_largest_soon_stops_evicting() {
        let groups = Groups::new();
        (1..10_000).for_each(|group| groups.apply(&changes(&[(group, 100)])));
        groups.apply(&changes(&[(7, 10_000), (9_000, 5_000)]));
        for _ in 0..5_100 + 10_000 / COMPARED_MAX {
            let largest = groups.largest(1_014_900, &Changes::default());
            groups.apply(&changes(&[(largest, -1)]));
        }
        let count = |group: usize| groups.counts[group].load(Ordering::Relaxed);
        assert!(count(7).abs_diff(count(9_000)) <= 400, "{} and {}", count(7), count(9_000));
        assert!((1..10_000).all(|group| count(group) >= 100));
    }
}
