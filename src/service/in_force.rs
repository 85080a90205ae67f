//! The rules in force, and the outcome of the last reload.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use super::snapshot::{Load, Snapshot};
use crate::key::KeyFormat;
use crate::metrics::Metrics;
use crate::rules::RuleSet;
use crate::rules::parse::LoadErrors;

/// The rules in force. All threads share them, and a reload swaps them.
pub struct Rules {
    snapshot: ArcSwap<Snapshot>,
    refusal: ArcSwapOption<Refusal>,
    spelling: KeyFormat,
}

/// Limits files that were refused after those in force had been loaded.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// When, in milliseconds since the epoch.
    pub at_ms: u64,
    /// The mistakes in them.
    pub errors: LoadErrors,
}

impl Rules {
    /// Puts rules in force. Their keys are formatted by `spelling`.
    pub fn new(rules: RuleSet, load: Load, metrics: &Metrics, spelling: KeyFormat) -> Self {
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

    /// Swaps the rule set and returns the old one. Dropping a large set takes milliseconds: do it
    /// off the serving threads.
    pub fn replace(&self, rules: RuleSet, load: Load, metrics: &Metrics) -> Arc<Snapshot> {
        let new = Snapshot::new(rules, load, metrics, &self.spelling);
        self.refusal.store(None);
        self.snapshot.swap(Arc::new(new))
    }

    /// Records that limits files were refused. The rules in force stay.
    pub fn refuse(&self, refusal: Refusal) {
        self.refusal.store(Some(Arc::new(refusal)));
    }

    /// Why the newest limits files are not in force, if they were refused.
    pub fn refusal(&self) -> Option<Arc<Refusal>> {
        self.refusal.load_full()
    }
}

/// Formats the first mistake, and the number of further ones.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.errors.iter().next() else { return Ok(()) };
        match self.errors.count() - 1 {
            0 => write!(f, "{first}"),
            more => write!(f, "{first} (and {more} more)"),
        }
    }
}
