//! Every hit of the last period, by its moment.
//!
//! A record holds the running total of hits through its moment instead of its own hits, so that
//! the used count is a difference and the hit that frees enough is found by binary search. The
//! total wraps at 2^53. The newest record stands in the header and moves to the body when a
//! later one comes, so that hits of one millisecond share it.
//!
//! The body's first `dead` records have left the period. They stay until they are more than
//! a quarter of the others (a body that Redis grew has up to twice its bytes, so that this
//! keeps a hit within 40 bytes), so that no request pays for more than a few: the cost of dropping
//! them, amortized, is constant. A small body is read and written whole, and holds what counts
//! and nothing else.

use super::state::{Record, push_record};
use crate::limit::HITS_MAX;

/// Where the running total wraps.
const WRAP: u64 = HITS_MAX + 1;

/// The most records behind the newest, as many as a log's limit may have. Only overdraft reaches it, which takes hits over the
/// limit: from there on the two oldest hits count as one at the later one's moment.
const BODY_MAX: usize = 1 << 20;

/// Bodies of no more records are read and written whole.
const SMALL_MAX: usize = 24;

/// The hits of the last period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Records of the body that count no more.
    dead: usize,
    /// Records of the body, dead ones included; what stands behind them is left from refunds.
    len: usize,
    /// The running total before the first record that is not dead.
    base: u64,
    /// The newest record.
    newest: Record,
    body: Vec<Record>,
}

/// What of a log counts at a moment.
struct Live<'a> {
    records: &'a [Record],
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
    pub(super) const fn moment_ms(&self) -> u64 {
        self.newest.at_ms
    }

    fn live_body(&self) -> &[Record] {
        &self.body[self.dead..self.len]
    }

    /// The body's records after `now_ms - period_ms`, and the total before them.
    fn live(&self, period_ms: u64, now_ms: u64) -> Live<'_> {
        let body = self.live_body();
        let gone = body.partition_point(|record| record.at_ms + period_ms <= now_ms);
        let base = if gone == 0 { self.base } else { body[gone - 1].amount };
        Live { records: &body[gone..], base }
    }

    pub(super) fn used(&self, period_ms: u64, now_ms: u64) -> u64 {
        let now_ms = self.moment(now_ms);
        if self.newest.at_ms + period_ms <= now_ms {
            return 0;
        }
        total_between(self.live(period_ms, now_ms).base, self.newest.amount)
    }

    pub(super) fn take(&mut self, period_ms: u64, now_ms: u64, hits: u64) {
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

    /// Counts as dead what has left the period, and drops the dead when they are too many.
    fn bury(&mut self, period_ms: u64, now_ms: u64) {
        let live = self.live(period_ms, now_ms);
        (self.base, self.dead) = (live.base, self.len - live.records.len());
        if self.dead > 0 && (self.is_small() || self.dead * 5 > self.len) {
            self.body.truncate(self.len);
            self.body.drain(..self.dead);
            (self.len, self.dead) = (self.body.len(), 0);
        }
    }

    fn is_small(&self) -> bool {
        self.body.len() <= SMALL_MAX
    }

    fn push_newest(&mut self) {
        if self.len < self.body.len() {
            self.body[self.len] = self.newest;
        } else {
            self.body.push(self.newest);
        }
        self.len += 1;
        if self.len - self.dead > BODY_MAX {
            self.dead += 1;
        }
    }

    /// Gives the newest hits back first.
    pub(super) fn refund(&mut self, period_ms: u64, now_ms: u64, hits: u64) {
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
        let stays =
            self.live_body().partition_point(|record| total_between(base, record.amount) < keep);
        if self.dead + stays < self.len {
            self.newest.at_ms = self.body[self.dead + stays].at_ms;
            self.len = self.dead + stays;
            if self.is_small() {
                self.body.truncate(self.len);
            }
        }
        self.newest.amount = total_add(base, keep);
    }

    pub(super) fn reset_after_ms(&self, period_ms: u64, now_ms: u64) -> u64 {
        (self.newest.at_ms + period_ms).saturating_sub(self.moment(now_ms))
    }

    /// When the hit leaves after which no more than `room` are used.
    pub(super) fn retry_after_ms(&self, period_ms: u64, now_ms: u64, room: u64) -> u64 {
        let used = self.used(period_ms, now_ms);
        let now_ms = self.moment(now_ms);
        let live = self.live(period_ms, now_ms);
        let free = used.saturating_sub(room);
        let at =
            live.records.partition_point(|record| total_between(live.base, record.amount) < free);
        let frees = live.records.get(at).unwrap_or(&self.newest);
        (frees.at_ms + period_ms).saturating_sub(now_ms).max(1)
    }

    /// The header (dead and len in 4 bytes each, base in 7, the newest record), then the body.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.dead.to_le_bytes()[..4]);
        bytes.extend_from_slice(&self.len.to_le_bytes()[..4]);
        bytes.extend_from_slice(&self.base.to_le_bytes()[..7]);
        push_record(bytes, self.newest);
        self.body.iter().for_each(|record| push_record(bytes, *record));
    }
}
