//! The state of a sliding window log: every hit of the last period, by its moment.
//!
//! A record holds the running total of hits through its moment instead of its own hits, so that
//! the used count is a difference and the hit that frees enough is found by binary search. After
//! 2^53 - 1 the total goes on from 0. The newest record is kept in the header, so that hits of the
//! same millisecond are added to it. The next record moves it to the body.
//!
//! The body's first `dead` records have left the period. They are dropped once they are more than a
//! quarter of the others, so the amortized cost of dropping them is constant and a hit takes at most 40
//! bytes (a body that Redis grew is allocated up to twice its size). A small body is read and written
//! whole, and has no dead records.
//!
//! Dropping the dead copies the live records. Up to [`COPY_MAX`] are copied in one write. More are
//! moved to the front in steps of [`STEP_MAX`], one step per write, so that no write takes long.
//! Meanwhile the live records are in two parts, see [`Moves`]. The body keeps its slots, also those
//! that are free, until it is written whole again.

use super::super::record::{Record, push_record};
use crate::limit_spec::HITS_MAX;

/// Where the running total wraps.
const WRAP: u64 = HITS_MAX + 1;

/// The most records behind the newest, as many as the largest limit of a log. Only an overdraft, which
/// takes hits over the limit, reaches it: from there on the two oldest records are merged at the later
/// moment.
const BODY_MAX: usize = 1 << 20;

/// Bodies of up to this many records are read and written whole.
pub(super) const SMALL_MAX: usize = 24;

/// The most live records that one write copies to drop the dead ones.
const COPY_MAX: usize = 256;

/// The most records that one write moves to the front.
const STEP_MAX: usize = 256;

/// Marks a moves record: the upper half of its moment, later than any real moment.
const MOVES_TAG: u64 = 0xff_ffff << 24;

/// The hits of the last period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The index of the first record that is not dead.
    dead: usize,
    /// Records in the body, dead ones included. Slots after them are left over from refunds and moves.
    len: usize,
    moves: Option<Moves>,
    /// The running total before the first record that is not dead.
    base: u64,
    /// The newest record.
    newest: Record,
    /// By slot: a record's index, unless it was moved.
    body: Vec<Record>,
}

/// The progress of moving the live records of a long log to the front.
///
/// A record keeps its index while it moves: its slot is the index less `gap` once it is below
/// `back`. The moved ones are in slots 1 and up; slot 0 holds these numbers in the form of a record,
/// [`Moves::record`]. A version that does not know moves counts the hits of the moved part as hits of
/// the record at `back`: later than they came, so it never admits more than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moves {
    /// The first index that was not moved.
    back: usize,
    gap: usize,
}

impl Moves {
    /// `back` in 3 bytes, the tag, the first live index in 3, and the gap in 4.
    const fn record(self, dead: usize) -> Record {
        let (back, dead, gap) = (self.back as u64, dead as u64, self.gap as u64);
        Record { at_ms: MOVES_TAG | back, amount: dead | gap << 24 }
    }

    const fn slot(self, index: usize) -> usize {
        if index < self.back { index - self.gap } else { index }
    }
}

/// The records that count at a moment, from index `first` on, and the total before them.
struct Live {
    first: usize,
    base: u64,
}

const fn total_add(total: u64, hits: u64) -> u64 {
    (total + hits) % WRAP
}

const fn total_between(base: u64, total: u64) -> u64 {
    (total + WRAP - base) % WRAP
}

impl Log {
    fn moment(&self, now_ms: u64) -> u64 {
        now_ms.max(self.newest.at_ms)
    }

    /// When the newest hit was.
    pub(in crate::algorithm) const fn moment_ms(&self) -> u64 {
        self.newest.at_ms
    }

    fn slot(&self, index: usize) -> usize {
        self.moves.map_or(index, |moves| moves.slot(index))
    }

    fn record(&self, index: usize) -> Record {
        self.body[self.slot(index)]
    }

    /// The first index from `first` on for which `before` is false; `len` if there is none.
    fn partition_point(&self, first: usize, before: impl Fn(Record) -> bool) -> usize {
        let (mut low, mut high) = (first, self.len);
        while low < high {
            let middle = low.midpoint(high);
            if before(self.record(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The body's records after `now_ms - period_ms`, and the total before them.
    fn live(&self, period_ms: u64, now_ms: u64) -> Live {
        let gone = |record: Record| record.at_ms + period_ms <= now_ms;
        let first = self.partition_point(self.dead, gone);
        let base = if first == self.dead { self.base } else { self.record(first - 1).amount };
        Live { first, base }
    }

    pub(in crate::algorithm) fn used(&self, period_ms: u64, now_ms: u64) -> u64 {
        let now_ms = self.moment(now_ms);
        if self.newest.at_ms + period_ms <= now_ms {
            return 0;
        }
        total_between(self.live(period_ms, now_ms).base, self.newest.amount)
    }

    pub(in crate::algorithm) fn take(&mut self, period_ms: u64, now_ms: u64, hits: u64) {
        let used = self.used(period_ms, now_ms);
        let now_ms = self.moment(now_ms);
        if used == 0 {
            *self = Self { newest: Record { at_ms: now_ms, amount: hits }, ..Self::default() };
            return;
        }
        self.bury(period_ms, now_ms);
        let hits = hits.min(HITS_MAX - used);
        if self.newest.at_ms != now_ms {
            self.push_newest();
        }
        self.newest = Record { at_ms: now_ms, amount: total_add(self.newest.amount, hits) };
    }

    /// Marks records that have left the period as dead, and drops the dead ones, or begins to, when there
    /// are too many.
    fn bury(&mut self, period_ms: u64, now_ms: u64) {
        let live = self.live(period_ms, now_ms);
        (self.base, self.dead) = (live.base, live.first);
        self.end_moves();
        let drops = if self.is_small() {
            self.dead > 0
        } else {
            self.moves.is_some() || self.dead * 5 > self.len
        };
        if drops && self.len - self.dead <= COPY_MAX {
            self.copy_live();
        } else if drops {
            self.move_some();
        }
    }

    fn copy_live(&mut self) {
        self.body = (self.dead..self.len).map(|index| self.record(index)).collect();
        (self.dead, self.len, self.moves) = (0, self.body.len(), None);
    }

    /// Moves some more records to the front, at most as many as fit into the gap: in Redis the slots
    /// that are written must not be in use until the header is written.
    fn move_some(&mut self) {
        let begun = Moves { back: self.dead, gap: self.dead - 1 };
        let Moves { back, gap } = self.moves.unwrap_or(begun);
        let count = STEP_MAX.min(gap).min(self.len - back);
        self.body.copy_within(back..back + count, back - gap);
        self.moves = Some(Moves { back: back + count, gap });
        self.end_moves();
    }

    /// Ends the move if one of the two parts is empty.
    fn end_moves(&mut self) {
        let Some(Moves { back, gap }) = self.moves else { return };
        if self.dead < back && back < self.len {
            return;
        }
        if self.dead < back {
            (self.dead, self.len) = (self.dead - gap, self.len - gap);
        }
        self.moves = None;
        self.body[0] = Record::default();
    }

    fn is_small(&self) -> bool {
        self.body.len() <= SMALL_MAX
    }

    fn push_newest(&mut self) {
        let slot = self.slot(self.len);
        if slot < self.body.len() {
            self.body[slot] = self.newest;
        } else {
            self.body.push(self.newest);
        }
        self.len += 1;
        if self.len - self.dead > BODY_MAX {
            self.dead += 1;
        }
    }

    /// Refunds the newest hits first.
    pub(in crate::algorithm) fn refund(&mut self, period_ms: u64, now_ms: u64, hits: u64) {
        let used = self.used(period_ms, now_ms);
        let now_ms = self.moment(now_ms);
        self.bury(period_ms, now_ms);
        if hits >= used {
            *self = Self::default();
            return;
        }
        let keep = used - hits;
        let base = self.base;
        // The first record through which enough hits stay becomes the newest.
        let too_few = |record: Record| total_between(base, record.amount) < keep;
        let stays = self.partition_point(self.dead, too_few);
        if stays < self.len {
            self.newest.at_ms = self.record(stays).at_ms;
            self.len = stays;
            if self.is_small() {
                self.body.truncate(self.len);
            }
            self.end_moves();
        }
        self.newest.amount = total_add(base, keep);
    }

    pub(in crate::algorithm) fn reset_after_ms(&self, period_ms: u64, now_ms: u64) -> u64 {
        (self.newest.at_ms + period_ms).saturating_sub(self.moment(now_ms))
    }

    /// Milliseconds until no more than `room` hits are used.
    pub(in crate::algorithm) fn retry_after_ms(
        &self,
        period_ms: u64,
        now_ms: u64,
        room: u64,
    ) -> u64 {
        let used = self.used(period_ms, now_ms);
        let now_ms = self.moment(now_ms);
        let live = self.live(period_ms, now_ms);
        let free = used.saturating_sub(room);
        let too_few = |record: Record| total_between(live.base, record.amount) < free;
        let at = self.partition_point(live.first, too_few);
        let frees = if at < self.len { self.record(at) } else { self.newest };
        (frees.at_ms + period_ms).saturating_sub(now_ms).max(1)
    }

    /// The header (dead and len in 4 bytes each, base in 7, the newest record), then the body. During a
    /// move, the header's `dead` is the first index that was not moved.
    pub(in crate::algorithm) fn encode(&self, bytes: &mut Vec<u8>) {
        let dead = self.moves.map_or(self.dead, |moves| moves.back);
        bytes.extend_from_slice(&dead.to_le_bytes()[..4]);
        bytes.extend_from_slice(&self.len.to_le_bytes()[..4]);
        bytes.extend_from_slice(&self.base.to_le_bytes()[..7]);
        push_record(bytes, self.newest);
        let moves = self.moves.map(|moves| moves.record(self.dead));
        let rest = &self.body[usize::from(moves.is_some())..];
        moves.iter().chain(rest).for_each(|record| push_record(bytes, *record));
    }
}
