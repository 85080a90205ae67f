//! The rule set: finds the limits that apply to a descriptor.
//!
//! A limits file is a tree. A request's descriptor walks down it, one level per entry: at each
//! level the exact value wins, then the wildcards in file order, then the rule for any value. The
//! walk never backtracks, and a limit applies only to descriptors that end at its rule. The result
//! of the walk is a [`Rule`]; a rule without limits exempts its requests.
//!
//! A [`RuleSet`] is an immutable snapshot: a reload builds a new one, and requests in progress keep
//! the old one. All text that a request needs (paths, names) is formatted when the set is built, so
//! that [`Domain::find`] only hashes and compares. The maps are seeded at random: callers cannot
//! choose values that collide.
//!
//! [`parse`] builds rule sets from files and reports all mistakes at once. This module does no IO.

use std::path::{Path, PathBuf};

use hashbrown::HashMap;
use rapidhash::fast::RandomState;

use crate::key::Group;

pub mod parse;
mod rule;
mod tree;
mod wildcard;

use parse::LoadError;
pub(crate) use rule::Segment;
pub use rule::{Role, Rule, RuleLimit, Unlimited};
use tree::Level;

/// The deepest nesting of descriptors.
pub const LEVELS_MAX: usize = 32;

/// The most limits on one descriptor.
pub const RULE_LIMITS_MAX: usize = 32;

/// All domains and their rules: one snapshot.
#[derive(Debug, Default)]
pub struct RuleSet {
    domains: Vec<Domain>,
    by_name: HashMap<Box<str>, usize, RandomState>,
    limits_count: usize,
    warnings: Vec<LoadError>,
}

/// The rules of one limits file, or of several that are merged.
#[derive(Debug)]
pub struct Domain {
    name: String,
    id: usize,
    sources: Vec<PathBuf>,
    own: Own,
    switches: Switches,
    replaces: bool,
    overrides: Group,
    rules: Vec<Rule>,
    root: Level,
}

/// How limits files are read, and what then applies to all their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Files with the same domain are merged; otherwise that is a mistake.
    pub merge_domains: bool,
    /// No limit rejects.
    pub shadow: bool,
    /// A request is rejected only if all the limits that it matches are over.
    pub quota: bool,
    /// Fixed windows count the hits of rejected requests too, as envoyproxy/ratelimit does.
    pub count_rejected: bool,
}

/// The settings of one domain.
#[derive(Debug, Default)]
struct Own {
    slot_by: Vec<String>,
    on_store_failure: Option<OnStoreFailure>,
    raw_body: Option<Box<str>>,
}

/// How requests of a domain are answered while its store cannot decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnStoreFailure {
    /// Decide in this process alone.
    Local,
    /// Let every request through.
    Allow,
    /// Reject every request.
    Deny,
    /// Answer with an error, so that the caller decides.
    Error,
}

impl RuleSet {
    /// The domain with this name.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.by_name.get(name).and_then(|&index| self.domains.get(index))
    }

    /// All domains, sorted by name.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.iter()
    }

    /// The number of limits and unlimited rules; their ids are 0 up to this number.
    pub fn limits_count(&self) -> usize {
        self.limits_count
    }

    /// Configuration that is valid but probably a mistake.
    pub fn warnings(&self) -> impl Iterator<Item = &LoadError> {
        self.warnings.iter()
    }

    /// Sorts the domains, whose names differ, and assigns ids to their limits.
    fn new(mut domains: Vec<Domain>, warnings: Vec<LoadError>) -> Self {
        domains.sort_by(|a, b| a.name.cmp(&b.name));
        domains.iter_mut().zip(0..).for_each(|(domain, id)| domain.id = id);
        let mut ids = 0..;
        for rule in domains.iter_mut().flat_map(|domain| &mut domain.rules) {
            rule.take_ids(&mut ids);
        }
        let names = domains.iter().map(|domain| Box::from(domain.name()));
        let by_name = names.zip(0..).collect();
        Self { by_name, limits_count: ids.start, domains, warnings }
    }
}

impl Domain {
    /// The domain in requests.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index among all domains of the rule set, which are sorted by name.
    pub fn id(&self) -> usize {
        self.id
    }

    /// The entry keys whose values choose the cluster's shard; if empty, the domain chooses it.
    pub fn slot_by(&self) -> &[String] {
        &self.own.slot_by
    }

    /// The policy while the store cannot decide; `None`: the service's default.
    pub fn on_store_failure(&self) -> Option<OnStoreFailure> {
        self.own.on_store_failure
    }

    /// The body of answers to rejected requests, unless the rule has its own.
    pub fn raw_body(&self) -> Option<&str> {
        self.own.raw_body.as_deref()
    }

    /// The files that configure it.
    pub fn sources(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().map(PathBuf::as_path)
    }

    /// The switches for all its limits, including limits that requests bring.
    pub const fn switches(&self) -> Switches {
        self.switches
    }

    /// Whether some limit replaces others.
    pub(crate) const fn replaces(&self) -> bool {
        self.replaces
    }

    /// The group of counters of limits that requests bring where no rule has a limit.
    pub(crate) const fn overrides(&self) -> Group {
        self.overrides
    }

    /// The rule at which these entries, (key, value) in order, end; `None` if none matches.
    ///
    /// Takes one or two hash lookups per entry, for any number of rules. If the entry's key has
    /// wildcards, it also reads the value: a few times, or once for all if there are many.
    /// Allocates nothing except a scratch buffer once per thread.
    pub fn find<'a>(&self, entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<&Rule> {
        let mut level = &self.root;
        let mut found = None;
        for (key, value) in entries {
            let rule = self.rules.get(level.find(key, value)?)?;
            level = &rule.below;
            found = Some(rule);
        }
        found
    }

    /// All rules in file order, each before its nested rules.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }
}

impl Switches {
    /// The role of the limits of a rule with these flags.
    pub(crate) const fn role(self, shadow: bool, quota: bool) -> Role {
        if self.shadow || shadow {
            Role::Shadow
        } else if self.quota || quota {
            Role::Quota
        } else {
            Role::Enforced
        }
    }
}

impl OnStoreFailure {
    /// All policies, in the order in which messages list them.
    pub const ALL: [Self; 4] = [Self::Local, Self::Allow, Self::Deny, Self::Error];

    /// The name in limits files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }

    /// The policy with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

#[cfg(test)]
mod tests;
