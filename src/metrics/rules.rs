//! The handles of a rule set's series. They are made when rules load, so that counting a request costs
//! no lookup.
//!
//! The caller passes names only: this module knows nothing of rules.

use std::sync::Arc;

use super::checks::{self, Checks};
use super::decisions::{self, Decisions};
use crate::decision::Source;

/// The dimension of limits that requests bring.
pub(crate) const OVERRIDE: &str = "override";

/// The domain label of requests whose domain is in no limits file.
const UNKNOWN: &str = "unknown";

/// The names that a rule set's series are made from.
pub struct RuleNames<'a> {
    /// The domains, by their ids.
    pub domains: Vec<&'a str>,
    /// The domain and the dimension of each limit, by the limits' ids.
    pub limits: Vec<(&'a str, &'a str)>,
}

/// The handles of one rule set.
pub struct RuleMetrics {
    limits: Vec<Arc<checks::Series>>,
    /// By the domain's id. The last one is shared by all unknown domains.
    domains: Vec<DomainMetrics>,
}

/// The handles of one domain.
struct DomainMetrics {
    decisions: Arc<decisions::Series>,
    overrides: Arc<checks::Series>,
}

impl RuleMetrics {
    pub(super) fn new(names: &RuleNames<'_>, checks: &Checks, decisions: &Decisions) -> Self {
        let domains = || names.domains.iter().copied().chain([UNKNOWN]);
        let overrides = domains().map(|domain| (domain, OVERRIDE));
        let mut limits = checks.configure(names.limits.iter().copied().chain(overrides));
        let overrides = limits.split_off(names.limits.len());
        let decisions = decisions.configure(domains());
        let both = decisions.into_iter().zip(overrides);
        let domains = both.map(|(decisions, overrides)| DomainMetrics { decisions, overrides });
        Self { limits, domains: domains.collect() }
    }

    fn domain(&self, id: Option<usize>) -> &DomainMetrics {
        &self.domains[id.unwrap_or(self.domains.len() - 1)]
    }

    /// Where checks of a rule's limit are counted, by the limit's id.
    pub fn limit(&self, id: usize) -> &checks::Series {
        &self.limits[id]
    }

    /// Where checks of limits are counted that requests bring to a domain.
    pub fn overrides(&self, domain_id: usize) -> &checks::Series {
        &self.domain(Some(domain_id)).overrides
    }

    /// Counts a decision, of an unknown domain where `domain_id` is `None`.
    pub fn count_decision(&self, domain_id: Option<usize>, allowed: bool, source: Source) {
        self.domain(domain_id).decisions.count(allowed, source);
    }
}
