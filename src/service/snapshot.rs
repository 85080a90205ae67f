//! What one request sees: the rules of one load, with everything that was prepared for them.

use std::path::PathBuf;

use crate::key::{KeyFormat, KeyPrefix};
use crate::metrics::{Metrics, RuleMetrics, RuleNames};
use crate::plan::Plan;
use crate::request::{Request, RequestError};
use crate::rules::parse::Files;
use crate::rules::{Domain, RuleSet};

/// One immutable load of the rules. A request uses the same snapshot from start to end.
pub struct Snapshot {
    /// The rules.
    pub rules: RuleSet,
    /// The files that they were loaded from.
    pub load: Load,
    pub(super) metrics: RuleMetrics,
    /// The key prefix of each domain, by the domain's id.
    key_prefixes: Vec<KeyPrefix>,
}

/// A load of limits files that came into force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Numbers the loads of this process, from 1.
    pub version: u64,
    /// The hash of the files' contents.
    pub hash: String,
    /// When, in milliseconds since the epoch.
    pub at_ms: u64,
    /// The limits files.
    pub files: Vec<PathBuf>,
}

impl Snapshot {
    pub(super) fn new(rules: RuleSet, load: Load, metrics: &Metrics, spelling: &KeyFormat) -> Self {
        let head = |domain: &Domain| KeyPrefix::of(spelling, domain.name());
        let key_prefixes = rules.domains().map(head).collect();
        let metrics = metrics.of_rules(&rule_names(&rules));
        Self { metrics, key_prefixes, rules, load }
    }

    /// Plans what to ask of the store for a request to one of these domains.
    ///
    /// # Errors
    /// Two descriptors contradict each other.
    pub fn plan<'s>(
        &self,
        domain: &'s Domain,
        request: &Request,
    ) -> Result<Plan<'s>, RequestError> {
        Plan::of(request, domain, &self.key_prefixes[domain.id()])
    }
}

impl Load {
    /// Describes files that come into force now.
    pub fn of(files: &Files, version: u64, at_ms: u64) -> Self {
        let paths = files.paths().map(ToOwned::to_owned).collect();
        Self { version, hash: files.hash().to_owned(), at_ms, files: paths }
    }
}

/// The names under which metrics count the checks of a rule set's limits.
fn rule_names(rules: &RuleSet) -> RuleNames<'_> {
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
