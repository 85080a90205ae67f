//! Where requests count that meet a rule set: handles made when rules load, so that counting costs no
//! lookup.

use std::sync::Arc;

use super::OVERRIDE;
use super::checks::{self, Checks};
use super::decisions::{self, Decisions};
use crate::rules::{Domain, RuleSet};
use crate::store::Source;

/// Stands for every domain that no limits file has.
const UNKNOWN: &str = "unknown";

/// The handles of one rule set.
pub struct RuleMetrics {
    limits: Vec<Arc<checks::Series>>,
    /// By the domain's id; behind them that of all other domains.
    domains: Vec<DomainMetrics>,
}

/// The handles of one domain.
struct DomainMetrics {
    decisions: Arc<decisions::Series>,
    overrides: Arc<checks::Series>,
}

impl RuleMetrics {
    pub(super) fn new(rules: &RuleSet, checks: &Checks, decisions: &Decisions) -> Self {
        let mut names = vec![("", ""); rules.limits_count()];
        for domain in rules.domains() {
            for rule in domain.rules() {
                let limits = rule.limits().iter().map(|limit| (limit.id(), limit.name()));
                let unlimited = rule.unlimited().map(|rule| (rule.id(), rule.name()));
                for (id, name) in limits.chain(unlimited) {
                    names[id] = (domain.name(), name);
                }
            }
        }
        let domains = || rules.domains().map(Domain::name).chain([UNKNOWN]);
        names.extend(domains().map(|domain| (domain, OVERRIDE)));
        let mut limits = checks.configure(names, rules);
        let overrides = limits.split_off(rules.limits_count());
        let decisions = decisions.configure(domains());
        let both = decisions.into_iter().zip(overrides);
        let domains = both.map(|(decisions, overrides)| DomainMetrics { decisions, overrides });
        Self { limits, domains: domains.collect() }
    }

    fn domain(&self, domain: Option<&Domain>) -> &DomainMetrics {
        &self.domains[domain.map_or(self.domains.len() - 1, Domain::id)]
    }

    /// Where tests of a rule's limit count, by the id that the rule set gave it.
    pub fn limit(&self, id: usize) -> &checks::Series {
        &self.limits[id]
    }

    /// Where tests of limits count that a domain's requests bring.
    pub fn overrides(&self, domain: &Domain) -> &checks::Series {
        &self.domain(Some(domain)).overrides
    }

    /// Counts a decision.
    pub fn count_decision(&self, domain: Option<&Domain>, allowed: bool, source: Source) {
        self.domain(domain).decisions.count(allowed, source);
    }
}
