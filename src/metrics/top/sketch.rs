//! Space-Saving (Metwally, Agrawal, El Abbadi, 2005): a fixed number of counters that keep the
//! frequent values.
//!
//! A value that has a counter increments it. Any other value takes over the smallest counter with
//! its count, and records that count as its possible error: the previous value may have caused all
//! of it.
//!
//! **Bound.** Every increment goes to one counter, so m counters add up to the N values counted,
//! and the smallest is at most N / m. A value's count is too high by at most the smallest count at
//! the time it took over, so by N / m at most, and never too low. A value without a counter came at
//! most as often as the smallest count. So every value that came more than N / m times has a
//! counter. For merged sketches the bounds add up to N / m of their sum.
//!
//! Lookup scans all counters: 64 adjacent numbers are faster than a map with a heap.

use std::collections::HashMap;

/// Values that one sketch counts.
pub(super) const COUNTERS: usize = 64;

/// One value of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offender {
    /// The entries of the request's descriptor: `tenant=acme,path=/login`.
    pub entries: String,
    /// Rejections, at least.
    pub rejections: u64,
    /// How many more rejections there may be.
    pub error_max: u64,
}

/// The values of one window.
#[derive(Default)]
struct Sketch {
    total: u64,
    /// The values' hashes and counts, in arrays of their own for a fast scan.
    values: Vec<u64>,
    counts: Vec<u64>,
    told: Vec<Told>,
}

struct Told {
    text: Box<str>,
    /// The possible error of its count.
    over: u64,
}

/// The current window and the one before.
#[derive(Default)]
pub(super) struct Windows {
    number: u64,
    current: Sketch,
    before: Sketch,
}

/// Merged sketches.
#[derive(Default)]
pub(super) struct Merged {
    total: u64,
    /// How often a value without a counter came, at most.
    unseen: u64,
    values: HashMap<u64, Sum>,
}

struct Sum {
    text: Box<str>,
    at_least: u64,
    /// Its count at most, less the bound for values without a counter.
    above_unseen: u64,
}

impl Windows {
    /// Advances to the window with this number.
    pub(super) fn turn(&mut self, number: u64) {
        if number <= self.number {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.before);
        self.current.clear();
        if number > self.number + 1 {
            self.before.clear();
        }
        self.number = number;
    }

    /// Whether any count still belongs to the window with this number or the one before.
    pub(super) const fn is_of(&self, number: u64) -> bool {
        number <= self.number + 1
    }

    pub(super) fn count(&mut self, value: u64, spell: impl FnOnce() -> String) {
        self.current.count(value, spell);
    }

    pub(super) fn add_to(&self, merged: &mut Merged) {
        merged.add(&self.current);
        merged.add(&self.before);
    }
}

impl Sketch {
    fn count(&mut self, value: u64, spell: impl FnOnce() -> String) {
        self.total += 1;
        if let Some(at) = self.values.iter().position(|own| *own == value) {
            self.counts[at] += 1;
            return;
        }
        let text = spell().into_boxed_str();
        if self.values.len() < COUNTERS {
            self.values.push(value);
            self.counts.push(1);
            self.told.push(Told { text, over: 0 });
            return;
        }
        let Some((at, &over)) = self.counts.iter().enumerate().min_by_key(|(_, count)| **count)
        else {
            return;
        };
        self.values[at] = value;
        self.counts[at] = over + 1;
        self.told[at] = Told { text, over };
    }

    /// How often a value without a counter came, at most.
    fn unseen(&self) -> u64 {
        let is_full = self.values.len() == COUNTERS;
        self.counts.iter().min().filter(|_| is_full).copied().unwrap_or(0)
    }

    fn clear(&mut self) {
        self.total = 0;
        self.values.clear();
        self.counts.clear();
        self.told.clear();
    }
}

impl Merged {
    fn add(&mut self, sketch: &Sketch) {
        let unseen = sketch.unseen();
        self.total += sketch.total;
        self.unseen += unseen;
        let counted = sketch.values.iter().zip(&sketch.counts).zip(&sketch.told);
        for ((value, count), told) in counted {
            let sum = self.values.entry(*value).or_insert_with(|| Sum {
                text: told.text.clone(),
                at_least: 0,
                above_unseen: 0,
            });
            sum.at_least += count - told.over;
            sum.above_unseen += count - unseen;
        }
    }

    /// The exact number of values counted.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// The values with the highest certain counts, at most `max` of them.
    pub(super) fn most(self, max: usize) -> Vec<Offender> {
        let unseen = self.unseen;
        let offender = |sum: Sum| Offender {
            entries: sum.text.into(),
            rejections: sum.at_least,
            error_max: sum.above_unseen + unseen - sum.at_least,
        };
        let mut most: Vec<_> = self.values.into_values().map(offender).collect();
        most.sort_by(|a, b| {
            let may_be = |one: &Offender| one.rejections + one.error_max;
            let most = (b.rejections, may_be(b)).cmp(&(a.rejections, may_be(a)));
            most.then_with(|| a.entries.cmp(&b.entries))
        });
        most.truncate(max);
        most
    }
}
