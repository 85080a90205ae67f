//! The rules in force, and what became of the limits files since.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use super::snapshot::{Load, Snapshot};
use crate::key::Spelling;
use crate::metrics::Metrics;
use crate::rules::RuleSet;
use crate::rules::parse::LoadErrors;

/// The rules in force, which all threads share and a reload swaps.
pub struct Rules {
    snapshot: ArcSwap<Snapshot>,
    refusal: ArcSwapOption<Refusal>,
    spelling: Spelling,
}

/// Limits files that were read after those in force, and why they are not in force.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// When, in milliseconds since the epoch.
    pub at_ms: u64,
    /// What is wrong with them.
    pub errors: LoadErrors,
}

impl Rules {
    /// Puts rules in force, whose keys are spelled so.
    pub fn new(rules: RuleSet, load: Load, metrics: &Metrics, spelling: Spelling) -> Self {
        let snapshot = Snapshot::new(rules, load, metrics, &spelling);
        Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            refusal: ArcSwapOption::empty(),
            spelling,
        }
    }

    /// The rules in force.
    pub fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// Puts other rules in force, for whole requests. The old ones are given back: whoever drops
    /// the last of them spends milliseconds if they are many.
    pub fn replace(&self, rules: RuleSet, load: Load, metrics: &Metrics) -> Arc<Snapshot> {
        let new = Snapshot::new(rules, load, metrics, &self.spelling);
        self.refusal.store(None);
        self.snapshot.swap(Arc::new(new))
    }

    /// Notes that limits files were refused; the rules stay.
    pub fn refuse(&self, refusal: Refusal) {
        self.refusal.store(Some(Arc::new(refusal)));
    }

    /// Why the newest limits files are not in force, if they are not.
    pub fn refusal(&self) -> Option<Arc<Refusal>> {
        self.refusal.load_full()
    }
}

/// The first mistake, and how many follow.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.errors.iter().next() else { return Ok(()) };
        match self.errors.count() - 1 {
            0 => write!(f, "{first}"),
            more => write!(f, "{first} (and {more} more)"),
        }
    }
}
