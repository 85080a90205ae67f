//! Counts per sub-window. All sub-windows within the last period count in full. The oldest one, which
//! overlaps the period only in part, also counts in full, or by its overlap if the limit is `weighted`.

use super::cost::AMOUNT_COST;
use super::operations::{Declaration, Operations, ScriptArguments, add};
use super::record::Record;
use super::state::State;
use crate::limit_spec::{Excess, HITS_MAX, LimitError, LimitSpec};

/// The most sub-windows of a sliding window counter.
pub const SUB_WINDOWS_MAX: u32 = 1_000;

/// The default number of sub-windows.
pub const SUB_WINDOWS_DEFAULT: u32 = 10;

/// The longest sub-window whose square fits 53 bits.
const SQUARE_FITS_MS: u64 = 94_906_265;

/// Sub-windows that are summed in one unit of cost.
const SUB_WINDOWS_PER_UNIT: usize = 4;

pub(super) const DECLARATION: Declaration = Declaration {
    name: "sliding_window_counter",
    key_name: "counter",
    fields: &["sub_windows", "weighted"],
};

/// How a sliding window counter divides its period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SubWindows {
    /// Hits per period.
    hits: u64,
    /// Sub-windows per period.
    count: u32,
    /// The length of a sub-window in milliseconds: T.
    length_ms: u64,
    /// Whether the oldest counts by its overlap only.
    weighted: bool,
}

/// A sub-window's overlap is computed as c * T / T. This is exact if T * T fits 53 bits, and if c * T
/// fits for every count c that a limit without overdraft can reach.
fn weighted_fits(spec: &LimitSpec, length_ms: u64) -> bool {
    let fits = |a: u64, b: u64| u128::from(a) * u128::from(b) <= u128::from(HITS_MAX);
    fits(length_ms, length_ms) || (!spec.overdraft && fits(spec.hits, length_ms))
}

impl SubWindows {
    pub(super) fn new(spec: &LimitSpec) -> Result<Self, LimitError> {
        let refuse = |message| Err(LimitError::new("sub_windows", message));
        let count = spec.sub_windows.unwrap_or(SUB_WINDOWS_DEFAULT);
        if count == 0 || count > SUB_WINDOWS_MAX {
            return refuse(format!("{count} is not from 1 to {SUB_WINDOWS_MAX}"));
        }
        if !spec.period_ms.is_multiple_of(u64::from(count)) {
            let period_ms = spec.period_ms;
            return refuse(format!(
                "{count} does not divide the period of {period_ms} milliseconds"
            ));
        }
        let weighted = spec.weighted.unwrap_or(false);
        let length_ms = spec.period_ms / u64::from(count);
        if weighted && !weighted_fits(spec, length_ms) {
            let message = "with sub-windows this long the arithmetic does not fit 53 bits; \
                           use more sub_windows";
            return Err(LimitError::new("weighted", message));
        }
        Ok(Self { hits: spec.hits, count, length_ms, weighted })
    }

    /// `now_ms`, or the newest hit's sub-window if the clock has stepped back.
    fn moment(records: &[Record], now_ms: u64) -> u64 {
        records.last().map_or(now_ms, |newest| newest.at_ms.max(now_ms))
    }

    /// Where the sub-window of `now_ms` starts.
    fn start_ms(&self, now_ms: u64) -> u64 {
        now_ms - now_ms % self.length_ms
    }

    /// The moment from which a sub-window that starts at `at_ms` overlaps the last period only in part.
    const fn fades_ms(&self, at_ms: u64) -> u64 {
        at_ms + self.count as u64 * self.length_ms
    }

    /// The moment from which it no longer counts.
    const fn leaves_ms(&self, at_ms: u64) -> u64 {
        self.fades_ms(at_ms) + self.length_ms
    }

    /// The sub-windows that count at `now_ms`.
    fn live<'a>(&self, records: &'a [Record], now_ms: u64) -> &'a [Record] {
        let gone = records.iter().take_while(|record| self.leaves_ms(record.at_ms) <= now_ms);
        &records[gone.count()..]
    }

    /// The weight of a sub-window's `count` with `left_ms` of it left in the period.
    fn overlap(&self, count: u64, left_ms: u64) -> u64 {
        if !self.weighted || left_ms >= self.length_ms {
            return count;
        }
        let count = self.countable(count);
        let scaled = u128::from(count) * u128::from(left_ms);
        u64::try_from(scaled.div_ceil(u128::from(self.length_ms))).unwrap_or(HITS_MAX)
    }

    /// Lua computes in 53 bits. A count that only debt or a lowered limit can reach is cut to the
    /// largest whose split product fits.
    fn countable(&self, count: u64) -> u64 {
        if self.length_ms <= SQUARE_FITS_MS { count } else { count.min(HITS_MAX / self.length_ms) }
    }

    fn drop_gone(&self, records: &mut Vec<Record>, now_ms: u64) {
        let gone = records.len() - self.live(records, now_ms).len();
        records.drain(..gone);
    }

    /// The first moment at which a fading sub-window weighs no more than `room`.
    fn fits_ms(&self, record: Record, room: u64) -> u64 {
        if !self.weighted || record.amount == 0 {
            return self.leaves_ms(record.at_ms);
        }
        let count = u128::from(self.countable(record.amount));
        let left_ms = u128::from(room) * u128::from(self.length_ms) / count;
        let left_ms = u64::try_from(left_ms).unwrap_or(HITS_MAX).min(self.length_ms);
        self.leaves_ms(record.at_ms) - left_ms
    }
}

impl Operations for SubWindows {
    fn capacity(&self) -> u64 {
        self.hits
    }

    fn take(&self, state: &mut State, now_ms: u64, hits: u64) {
        let records = state.records_mut();
        let now_ms = Self::moment(records, now_ms);
        self.drop_gone(records, now_ms);
        let at_ms = self.start_ms(now_ms);
        match records.last_mut() {
            Some(newest) if newest.at_ms == at_ms => newest.amount = add(newest.amount, hits),
            Some(_) | None => records.push(Record { at_ms, amount: hits }),
        }
    }

    fn refund(&self, state: &mut State, now_ms: u64, hits: u64) {
        let records = state.records_mut();
        let now_ms = Self::moment(records, now_ms);
        self.drop_gone(records, now_ms);
        let mut left = hits;
        while let Some(newest) = records.last_mut() {
            if newest.amount > left {
                newest.amount -= left;
                return;
            }
            left -= newest.amount;
            records.pop();
        }
    }

    fn used(&self, state: &State, now_ms: u64) -> u64 {
        let records = state.records();
        let now_ms = Self::moment(records, now_ms);
        self.live(records, now_ms).iter().fold(0, |used, record| {
            let fading_ms = now_ms.saturating_sub(self.fades_ms(record.at_ms));
            add(used, self.overlap(record.amount, self.length_ms - fading_ms))
        })
    }

    fn reset_after_ms(&self, state: &State, now_ms: u64) -> u64 {
        let records = state.records();
        let now_ms = Self::moment(records, now_ms);
        let newest = records.last().map_or(0, |newest| self.leaves_ms(newest.at_ms));
        newest.saturating_sub(now_ms)
    }

    /// The first moment at which no more than `room` is used. Sub-windows leave the period oldest
    /// first, so this sums from the newest until the sum exceeds `room`: that one must fade.
    fn retry_after_ms(&self, state: &State, now_ms: u64, hits: u64) -> u64 {
        let (records, room) = (state.records(), self.hits - hits);
        let now_ms = Self::moment(records, now_ms);
        let mut later = 0;
        for record in self.live(records, now_ms).iter().rev() {
            let through = add(later, record.amount);
            if through > room {
                let fits_ms = self.fits_ms(*record, room - later);
                return fits_ms.saturating_sub(now_ms).max(1);
            }
            later = through;
        }
        1
    }

    fn script_arguments(&self) -> ScriptArguments {
        let code = if self.weighted { 4 } else { 3 };
        ScriptArguments { code, a: self.count.into(), b: self.length_ms }
    }

    fn run_cost(&self, _excess: Excess) -> usize {
        AMOUNT_COST + self.count as usize / SUB_WINDOWS_PER_UNIT
    }

    fn grid(&self) -> Option<u32> {
        Some(self.count)
    }

    fn set_fields(&self, spec: &mut LimitSpec) {
        (spec.sub_windows, spec.weighted) = (Some(self.count), Some(self.weighted));
    }
}
