//! The rules in force, and what became of the limits files since.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};

use super::Snapshot;
use crate::key::Spelling;
use crate::metrics::{Metrics, RuleNames};
use crate::rules::parse::{Files, LoadErrors};
use crate::rules::{Domain, RuleSet};

/// The rules in force, which all threads share and a reload swaps.
pub struct Rules {
    snapshot: ArcSwap<Snapshot>,
    refusal: ArcSwapOption<Refusal>,
    spelling: Spelling,
}

/// One reading of limits files that was put in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Counts the readings put in force by this process, from 1.
    pub version: u64,
    /// Names the contents.
    pub hash: String,
    /// When, in milliseconds since the epoch.
    pub at_ms: u64,
    /// The limits files.
    pub files: Vec<PathBuf>,
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

impl Load {
    /// Files that are put in force now, after those of `version` - 1.
    pub fn of(files: &Files, version: u64, at_ms: u64) -> Self {
        let paths = files.paths().map(ToOwned::to_owned).collect();
        Self { version, hash: files.hash(), at_ms, files: paths }
    }
}

/// The names under which metrics count the checks of a rule set's limits.
pub(super) fn rule_names(rules: &RuleSet) -> RuleNames<'_> {
    let mut limits = vec![("", ""); rules.limits_count()];
    for domain in rules.domains() {
        for rule in domain.rules() {
            let named = rule.limits().iter().map(|limit| (limit.id(), limit.name()));
            let unlimited = rule.unlimited().map(|rule| (rule.id(), rule.name()));
            for (id, name) in named.chain(unlimited) {
                limits[id] = (domain.name(), name);
            }
        }
    }
    RuleNames { domains: rules.domains().map(Domain::name).collect(), limits }
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
