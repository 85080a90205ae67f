//! The values whose requests are rejected most at the moment, by rule, in bounded memory.
//!
//! Values of requests never become metric labels, because callers can invent any number of them.
//! Instead, each rule has a `sketch` with a fixed number of counters, which keeps the frequent
//! values. A value with more than a 64th of a rule's rejections always has a counter, and the error
//! of each count is known.
//!
//! "At the moment" means two windows of ten seconds, the current one and the one before: counts are
//! whole numbers of rejections in the last ten to twenty seconds. A single sketch whose counts
//! decay was rejected, because its numbers mean nothing to people.
//!
//! Only rejections are counted. Threads write to stripes, so that they rarely contend for a lock. A
//! reader merges the stripes and holds each lock for one rule at a time. Rejected designs: an exact
//! count of everything, which is unbounded, and one stripe per value, where all threads contend
//! when a single caller floods the service.
//!
//! Memory: at most `STRIPES` x `RULES_MAX` rules x 2 windows x `COUNTERS` values of
//! [`TEXT_BYTES_MAX`] bytes, 20 MiB; a tenth of that with usual values and thirty rules.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::clock::uptime_us;

mod sketch;

pub use sketch::Offender;
use sketch::{Merged, Windows};

/// Seconds per window.
pub const WINDOW_SECONDS: u64 = 10;

/// Values reported per rule, at most.
pub const VALUES_MAX: usize = 32;

/// Rules per stripe, at most. Rules without rejections make room.
const RULES_MAX: usize = 128;

/// Stripes, which threads are assigned to round robin.
const STRIPES: usize = 4;

/// The longest text reported for a value. A longer one is reported as its hash.
pub const TEXT_BYTES_MAX: usize = 256;

/// The rejections of all rules.
pub struct Top {
    stripes: [Mutex<Stripe>; STRIPES],
    writers: AtomicUsize,
    /// Seeded at random, so that callers cannot choose values whose hashes collide.
    names: RandomState,
    left_out: AtomicU64,
}

type Stripe = HashMap<u64, Rule>;

/// One rule's counts in one stripe.
struct Rule {
    domain: Box<str>,
    name: Box<str>,
    windows: Windows,
}

/// The handle of one thread.
pub struct Writer {
    top: Arc<Top>,
    stripe: usize,
}

/// The limit that rejects.
#[derive(Clone, Copy, Debug, Hash)]
pub struct Rejecting<'a> {
    /// The domain of the limits file.
    pub domain: &'a str,
    /// The limit's name or its rule's path, as in metrics.
    pub rule: &'a str,
}

/// One rule's rejections in the last ten to twenty seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offenders {
    /// The domain of the limits file.
    pub domain: String,
    /// The limit's name or its rule's path.
    pub rule: String,
    /// All rejections of the rule.
    pub rejections: u64,
    /// Most rejected first, at most [`VALUES_MAX`].
    pub values: Vec<Offender>,
}

impl Top {
    /// No rejections yet.
    pub fn new() -> Self {
        Self {
            stripes: std::array::from_fn(|_| Mutex::default()),
            writers: AtomicUsize::new(0),
            names: RandomState::new(),
            left_out: AtomicU64::new(0),
        }
    }

    /// A handle for one more thread.
    pub fn writer(self: &Arc<Self>) -> Writer {
        let stripe = self.writers.fetch_add(1, Ordering::Relaxed) % STRIPES;
        Writer { top: Arc::clone(self), stripe }
    }

    /// The current rejections by rule, most first. Takes milliseconds if there are many.
    pub fn offenders(&self) -> Vec<Offenders> {
        self.offenders_in(window())
    }

    /// Rejections since the start that were not counted, because too many rules rejected at once.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    fn offenders_in(&self, window: u64) -> Vec<Offenders> {
        let mut all = HashMap::<u64, (Offenders, Merged)>::new();
        for stripe in &self.stripes {
            let rules: Vec<u64> = stripe.lock().keys().copied().collect();
            for id in rules {
                if let Some(rule) = stripe.lock().get_mut(&id) {
                    let (_, merged) = all.entry(id).or_insert_with(|| rule.none_yet());
                    rule.windows.turn(window);
                    rule.windows.add_to(merged);
                }
            }
        }
        let summaries = all.into_values().map(|(own, merged)| summarize(own, merged));
        let mut offenders: Vec<_> = summaries.filter(|own| own.rejections > 0).collect();
        offenders.sort_by(|a, b| {
            let names = || (&a.domain, &a.rule).cmp(&(&b.domain, &b.rule));
            b.rejections.cmp(&a.rejections).then_with(names)
        });
        offenders
    }
}

impl Default for Top {
    fn default() -> Self {
        Self::new()
    }
}

impl Rule {
    fn none_yet(&self) -> (Offenders, Merged) {
        let (domain, rule) = (self.domain.to_string(), self.name.to_string());
        (Offenders { domain, rule, rejections: 0, values: Vec::new() }, Merged::default())
    }
}

fn summarize(own: Offenders, merged: Merged) -> Offenders {
    Offenders { rejections: merged.total(), values: merged.most(VALUES_MAX), ..own }
}

impl Writer {
    /// Counts one rejection of a descriptor. `spell` formats its entries, and is called only if the
    /// value is new to the sketch.
    pub fn count<'a>(
        &self,
        by: Rejecting<'_>,
        entries: impl Iterator<Item = (&'a str, &'a str)>,
        spell: impl FnOnce() -> String,
    ) {
        let mut value = self.top.names.build_hasher();
        entries.for_each(|entry| entry.hash(&mut value));
        self.count_in(window(), by, value.finish(), spell);
    }

    fn count_in(&self, window: u64, by: Rejecting<'_>, value: u64, spell: impl FnOnce() -> String) {
        let id = self.top.names.hash_one(by);
        let mut rules = self.top.stripes[self.stripe].lock();
        if !rules.contains_key(&id) && rules.len() >= RULES_MAX {
            rules.retain(|_, rule| rule.windows.is_of(window));
            if rules.len() >= RULES_MAX {
                self.top.left_out.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let rule = rules.entry(id).or_insert_with(|| Rule {
            domain: by.domain.into(),
            name: by.rule.into(),
            windows: Windows::default(),
        });
        rule.windows.turn(window);
        rule.windows.count(value, spell);
    }
}

fn window() -> u64 {
    uptime_us() / (WINDOW_SECONDS * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::sketch::COUNTERS;
    use super::*;

    const BY: Rejecting<'_> = Rejecting { domain: "edge", rule: "user" };

    fn reject(writer: &Writer, window: u64, value: u64, times: u64) {
        for _ in 0..times {
            writer.count_in(window, BY, value, || format!("user={value}"));
        }
    }

    #[test]
    fn three_that_storm_among_ten_thousand_are_on_top_within_the_bound() {
        let top = Arc::new(Top::new());
        let writers: Vec<_> = (0..6).map(|_| top.writer()).collect();
        let mut dice = fastrand::Rng::with_seed(7);
        let mut all: Vec<u64> = (0..10_000).collect();
        for (value, more) in [(17, 900), (4_711, 600), (9_999, 500)] {
            all.extend(std::iter::repeat_n(value, more - 1));
        }
        dice.shuffle(&mut all);
        for (at, value) in all.iter().enumerate() {
            reject(&writers[at % 6], 3 + at as u64 % 2, *value, 1);
        }
        let told = top.offenders_in(4);
        assert_eq!((told.len(), told[0].rejections), (1, all.len() as u64));
        assert_eq!(told[0].values.len(), VALUES_MAX);
        for (at, (value, count)) in [(17, 900), (4_711, 600), (9_999, 500)].iter().enumerate() {
            let one = &told[0].values[at];
            assert_eq!(one.entries, format!("user={value}"));
            let range = one.rejections..=one.rejections + one.error_max;
            assert!(range.contains(count), "{count} is not in {range:?}");
            assert!(one.error_max <= all.len() as u64 / COUNTERS as u64, "{one:?}");
        }
    }

    #[test]
    fn few_values_are_counted_exactly() {
        let top = Arc::new(Top::new());
        for value in 1..=COUNTERS as u64 {
            reject(&top.writer(), 1, value, value);
        }
        let values = &top.offenders_in(1)[0].values;
        for (one, value) in values.iter().zip((1..=COUNTERS as u64).rev()) {
            assert_eq!((one.rejections, one.error_max), (value, 0), "{}", one.entries);
        }
    }

    #[test]
    fn what_is_over_is_forgotten_after_two_windows() {
        let top = Arc::new(Top::new());
        let writer = top.writer();
        reject(&writer, 5, 1, 3);
        reject(&writer, 6, 2, 1);
        let told = |window| -> Vec<u64> {
            let rules = top.offenders_in(window);
            rules.iter().flat_map(|rule| &rule.values).map(|value| value.rejections).collect()
        };
        assert_eq!(told(6), [3, 1]);
        assert_eq!(told(7), [1]);
        assert!(told(8).is_empty());
    }

    #[test]
    fn rules_beyond_the_bound_are_left_out_until_others_are_quiet() {
        let top = Arc::new(Top::new());
        let writer = top.writer();
        let names: Vec<String> = (0..=RULES_MAX).map(|rule| rule.to_string()).collect();
        let all = |window| {
            for rule in &names {
                let by = Rejecting { domain: "edge", rule };
                writer.count_in(window, by, 1, || "a=b".to_owned());
            }
        };
        all(1);
        assert_eq!((top.offenders_in(1).len(), top.left_out()), (RULES_MAX, 1));
        let by = Rejecting { domain: "edge", rule: "late" };
        writer.count_in(3, by, 1, || "a=b".to_owned());
        assert_eq!((top.offenders_in(3).len(), top.left_out()), (1, 1));
    }
}
