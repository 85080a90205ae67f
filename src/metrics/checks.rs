//! Results of limit checks, by domain and dimension.
//!
//! These series come and go with reloads, and with values of requests where rules put those into
//! labels. The number of series with values is bounded. Beyond the bound the oldest series that was
//! not used lately is dropped, and its counts are added to the series `other`, so that sums stay
//! right.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::configured::{Configured, escaped};
use super::declared::{CHECKS, NEAR_LIMIT, SERIES_DROPPED};
use crate::decision::LimitResult;

/// The dimension of dropped series.
const OTHER: &str = "other";

/// Series per domain and dimension: one per result, and one for near the limit.
const SERIES_EACH: usize = LimitResult::ALL.len() + 1;

/// Recently used series that are passed over, at most, before one is dropped anyway.
const SPARED_MAX: usize = 8;

/// The series of all rules in force, and of values.
pub struct Checks {
    configured: Configured<Name, Series>,
    values: RwLock<Values>,
    /// Values with series at a time.
    values_max: usize,
    dropped: AtomicU64,
    has_warned: AtomicBool,
}

/// Domain and dimension.
type Name = (Box<str>, Box<str>);

/// Counts of one domain and dimension.
#[derive(Default)]
pub struct Series {
    results: [AtomicU64; 3],
    near: AtomicU64,
}

#[derive(Default)]
struct Values {
    series: HashMap<Name, Value>,
    /// Oldest first.
    order: VecDeque<Name>,
    /// By domain.
    others: BTreeMap<Box<str>, Series>,
}

#[derive(Default)]
struct Value {
    series: Series,
    counted: AtomicBool,
}

impl Series {
    /// Counts one check. `near`: at least four fifths of the limit are used afterwards.
    pub fn count(&self, result: LimitResult, near: bool) {
        self.results[result as usize].fetch_add(1, Ordering::Relaxed);
        if near {
            self.near.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn add(&self, other: &Self) {
        for (own, other) in self.counts().zip(other.counts()) {
            own.fetch_add(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn counts(&self) -> impl Iterator<Item = &AtomicU64> {
        self.results.iter().chain([&self.near])
    }
}

impl Checks {
    /// No series yet; at most `series_max` series of values.
    pub fn new(series_max: usize) -> Self {
        Self {
            configured: Configured::default(),
            values: RwLock::default(),
            values_max: series_max / SERIES_EACH,
            dropped: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Sets the names of the rules in force. Existing series continue, and those no longer named
    /// end.
    pub(super) fn configure<'a>(
        &self,
        names: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Vec<Arc<Series>> {
        let domains: HashSet<&str> = names.clone().map(|(domain, _)| domain).collect();
        let names = names.map(|(domain, dimension)| (Box::from(domain), Box::from(dimension)));
        let series = self.configured.replace(names);
        self.values.write().retain(|domain| domains.contains(domain));
        self.has_warned.store(false, Ordering::Relaxed);
        series
    }

    /// Counts one check under a dimension that contains values of the request.
    pub fn count_value(&self, domain: &str, dimension: String, result: LimitResult, near: bool) {
        let name = (Box::from(domain), dimension.into_boxed_str());
        if let Some(value) = self.values.read().series.get(&name) {
            value.counted.store(true, Ordering::Relaxed);
            value.series.count(result, near);
            return;
        }
        let mut values = self.values.write();
        if self.values_max == 0 {
            return values.other(&name.0).count(result, near);
        }
        while values.order.len() >= self.values_max && !values.series.contains_key(&name) {
            values.drop_oldest();
            self.note_dropped();
        }
        values.entry(name).series.count(result, near);
    }

    fn note_dropped(&self) {
        self.dropped.fetch_add(SERIES_EACH as u64, Ordering::Relaxed);
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                values_kept = self.values_max,
                "values of requests make more metric series than --metric-max-series; the oldest \
                 are counted as \"other\""
            );
        }
    }

    /// Appends all series in Prometheus's text format.
    pub fn render(&self, text: &mut String) {
        let mut all = BTreeMap::<Name, Series>::new();
        let mut add = |name: &Name, series: &Series| match all.get(name) {
            Some(same) => same.add(series),
            None => all.entry(name.clone()).or_default().add(series),
        };
        self.configured.for_each(&mut add);
        let values = self.values.read();
        values.series.iter().for_each(|(name, value)| add(name, &value.series));
        for (domain, series) in &values.others {
            add(&(domain.clone(), OTHER.into()), series);
        }
        drop(values);
        // Writing to a string does not fail.
        let _ = write_families(text, &all, self.dropped.load(Ordering::Relaxed));
    }
}

impl Values {
    fn entry(&mut self, name: Name) -> &Value {
        let Self { series, order, .. } = self;
        series.entry(name).or_insert_with_key(|name| {
            order.push_back(name.clone());
            Value::default()
        })
    }

    fn drop_oldest(&mut self) {
        for spared in 0..=SPARED_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            let lately =
                self.series.get(&oldest).is_some_and(|v| v.counted.swap(false, Ordering::Relaxed));
            if lately && spared < SPARED_MAX {
                self.order.push_back(oldest);
                continue;
            }
            if let Some(value) = self.series.remove(&oldest) {
                self.other(&oldest.0).add(&value.series);
            }
            return;
        }
    }

    fn other(&mut self, domain: &str) -> &Series {
        self.others.entry(domain.into()).or_default()
    }

    fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.series.retain(|(domain, _), _| keeps(domain));
        self.order.retain(|(domain, _)| keeps(domain));
        self.others.retain(|domain, _| keeps(domain));
    }
}

fn write_families(
    text: &mut String,
    all: &BTreeMap<Name, Series>,
    dropped: u64,
) -> std::fmt::Result {
    text.push_str(&CHECKS.header());
    for ((domain, dimension), series) in all {
        for (result, count) in LimitResult::ALL.iter().zip(&series.results) {
            let (labels, result) = (labels(domain, dimension), result.name());
            let count = count.load(Ordering::Relaxed);
            writeln!(text, "{}{{{labels},result=\"{result}\"}} {count}", CHECKS.name)?;
        }
    }
    write!(text, "\n{}", NEAR_LIMIT.header())?;
    for ((domain, dimension), series) in all {
        let labels = labels(domain, dimension);
        let count = series.near.load(Ordering::Relaxed);
        writeln!(text, "{}{{{labels}}} {count}", NEAR_LIMIT.name)?;
    }
    write!(text, "\n{}{} {dropped}\n\n", SERIES_DROPPED.header(), SERIES_DROPPED.name)
}

fn labels(domain: &str, dimension: &str) -> String {
    format!("domain=\"{}\",dimension=\"{}\"", escaped(domain), escaped(dimension))
}
