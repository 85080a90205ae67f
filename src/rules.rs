//! The rule set: which limits a descriptor meets.
//!
//! A limits file is a tree. A request's descriptor walks down it, one entry a level: at each
//! level the exact value wins, then the wildcards in file order, then the rule for any value.
//! The walk never turns back, and a limit counts only where the descriptor's last entry ends.
//! What the walk finds is a [`Rule`]; a rule without limits exempts its requests.
//!
//! A [`RuleSet`] is an immutable snapshot: a reload makes a new one and the old one stays whole
//! for the requests that still read it. Everything that a request needs in text (paths, names) is
//! spelt when the set is built, so that [`Domain::find`] hashes and compares. The maps are seeded at random: callers cannot choose values that collide.
//!
//! [`parse`] builds rule sets from files and reports every mistake at once. Here is no IO.

use std::path::{Path, PathBuf};

use hashbrown::HashMap;
use rapidhash::fast::RandomState;

use crate::decision::Enforcement;
use crate::key::Group;

pub mod parse;
mod rule;
mod tree;
mod wildcard;

use parse::LoadError;
pub(crate) use rule::Segment;
pub use rule::{Rule, RuleLimit, Unlimited};
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

/// How limits files are read, and what then holds for all their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Files that name the same domain are parts of it; else that is a mistake.
    pub merge_domains: bool,
    /// No limit rejects.
    pub shadow: bool,
    /// Limits reject a request only where all that it meets are over.
    pub quota: bool,
    /// Fixed windows count the hits of rejected requests too, as envoyproxy/ratelimit does.
    pub count_rejected: bool,
}

/// What a domain sets for itself.
#[derive(Debug, Default)]
struct Own {
    slot_by: Vec<String>,
    on_store_failure: Option<OnStoreFailure>,
    raw_body: Option<Box<str>>,
}

/// What a domain's requests get while its store cannot decide.
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
    /// The domain of that name.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.by_name.get(name).and_then(|&index| self.domains.get(index))
    }

    /// All domains, sorted by name.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.iter()
    }

    /// How many limits and unlimited rules there are; their ids run from 0 to just below it.
    pub fn limits_count(&self) -> usize {
        self.limits_count
    }

    /// What is probably not meant, though it can be done.
    pub fn warnings(&self) -> impl Iterator<Item = &LoadError> {
        self.warnings.iter()
    }

    /// Sorts the domains, whose names differ, and numbers their limits.
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
    /// The name that requests give.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number among all domains of the rule set, which are sorted by name.
    pub fn id(&self) -> usize {
        self.id
    }

    /// The entry keys whose values choose the cluster's shard; none: the domain does.
    pub fn slot_by(&self) -> &[String] {
        &self.own.slot_by
    }

    /// What this domain wants while the store cannot decide; `None`: what the service does.
    pub fn on_store_failure(&self) -> Option<OnStoreFailure> {
        self.own.on_store_failure
    }

    /// The body of answers to its rejected requests, where the rule that rejects has none.
    pub fn raw_body(&self) -> Option<&str> {
        self.own.raw_body.as_deref()
    }

    /// The files that configure it.
    pub fn sources(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().map(PathBuf::as_path)
    }

    /// What holds for all its limits, also for those that requests bring.
    pub const fn switches(&self) -> Switches {
        self.switches
    }

    /// Whether some limit stands in for others.
    pub(crate) const fn replaces(&self) -> bool {
        self.replaces
    }

    /// The group of counters whose limits requests bring, where no rule has a limit.
    pub(crate) const fn overrides(&self) -> Group {
        self.overrides
    }

    /// The rule at which these entries, (key, value) in order, end; `None` where none matches.
    ///
    /// Takes one or two hash lookups an entry, however many rules there are. Where the entry's key
    /// has wildcards, it reads the value besides: a few times, or once for all where there are many.
    /// Allocates nothing but what such a lookup needs, once a thread.
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

    /// All rules in file order, each before those below it.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }
}

impl Switches {
    /// The enforcement of a limit whose own is `own`: a switch of the domain applies to all its
    /// limits, and shadow applies before quota.
    pub(crate) const fn enforcement(self, own: Enforcement) -> Enforcement {
        match own {
            _ if self.shadow => Enforcement::Shadow,
            Enforcement::Enforced if self.quota => Enforcement::Quota,
            Enforcement::Enforced | Enforcement::Shadow | Enforcement::Quota => own,
        }
    }
}

impl OnStoreFailure {
    /// All, in the order in which messages list them.
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

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

#[cfg(test)]
mod tests;
