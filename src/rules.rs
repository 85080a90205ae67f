//! The rule set: which limits a descriptor meets.
//!
//! A limits file is a tree. A request's descriptor walks down it, one entry a level: at each
//! level the exact value wins, then the wildcards in file order, then the rule for any value.
//! The walk never turns back, and a limit counts only where the descriptor's last entry ends.
//! What the walk finds is a [`Rule`]; a rule without limits exempts its requests.
//!
//! A [`RuleSet`] is an immutable snapshot: a reload makes a new one and the old one stays whole
//! for the requests that still read it. Everything that a request needs in text (paths, names) is
//! spelt when the set is built, so that [`Domain::find`] hashes and compares, and allocates
//! nothing. The maps are seeded at random: callers cannot choose values that collide.
//!
//! [`parse`] builds rule sets from files and reports every mistake at once. Here is no IO.

use std::path::{Path, PathBuf};

use hashbrown::HashMap;
use rapidhash::fast::RandomState;

use crate::key::Tail;
use crate::limit::{Limit, Shape};

pub mod parse;
mod tree;

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
}

/// The rules of one limits file.
#[derive(Debug)]
pub struct Domain {
    name: String,
    id: usize,
    source: PathBuf,
    slot_by: Vec<String>,
    on_store_failure: Option<OnStoreFailure>,
    rules: Vec<Rule>,
    root: Level,
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

/// A configured node that a descriptor can match.
#[derive(Debug)]
pub struct Rule {
    path: Box<str>,
    kind: Kind,
    shadow: bool,
    below: Level,
}

/// What a rule does with the requests that end at it.
#[derive(Debug)]
enum Kind {
    Exempt,
    Unlimited(Unlimited),
    Limited(Box<[RuleLimit]>),
}

/// A rule that counts nothing and says so: `unlimited: true`.
#[derive(Debug)]
pub struct Unlimited {
    name: Box<str>,
    id: usize,
}

/// One limit of a rule.
#[derive(Debug)]
pub struct RuleLimit {
    name: Box<str>,
    limit: Limit,
    id: usize,
    ordinal: u8,
    key_tail: Tail,
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

    /// Sorts the domains, whose names differ, and numbers their limits.
    fn new(mut domains: Vec<Domain>) -> Self {
        domains.sort_by(|a, b| a.name.cmp(&b.name));
        domains.iter_mut().zip(0..).for_each(|(domain, id)| domain.id = id);
        let mut ids = 0..;
        for rule in domains.iter_mut().flat_map(|domain| &mut domain.rules) {
            rule.take_ids(&mut ids);
        }
        let names = domains.iter().map(|domain| Box::from(domain.name()));
        let by_name = names.zip(0..).collect();
        Self { by_name, limits_count: ids.start, domains }
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
        &self.slot_by
    }

    /// What this domain wants while the store cannot decide; `None`: what the service does.
    pub fn on_store_failure(&self) -> Option<OnStoreFailure> {
        self.on_store_failure
    }

    /// The file that configures it.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// The rule at which these entries, (key, value) in order, end; `None` where none matches.
    ///
    /// Takes one or two hash lookups an entry, however many rules there are, and besides looks
    /// at the wildcards of the entry's key one by one. Never allocates.
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

impl Rule {
    /// Its place in the configuration, such as `user_id` or `tenant=acme/path`.
    ///
    /// For people: keys and values stand in it as they are, so two rules can share a path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// All the limits that hold here; none where the rule exempts or is unlimited.
    pub fn limits(&self) -> &[RuleLimit] {
        match &self.kind {
            Kind::Limited(limits) => limits,
            Kind::Exempt | Kind::Unlimited(_) => &[],
        }
    }

    /// The rule as one that says `unlimited: true`.
    pub fn unlimited(&self) -> Option<&Unlimited> {
        match &self.kind {
            Kind::Unlimited(unlimited) => Some(unlimited),
            Kind::Exempt | Kind::Limited(_) => None,
        }
    }

    /// Whether its limits are counted and reported but reject nobody.
    pub fn shadow(&self) -> bool {
        self.shadow
    }

    /// Whether rules are nested below it.
    pub fn is_inner(&self) -> bool {
        !self.below.is_empty()
    }

    fn take_ids(&mut self, ids: &mut std::ops::RangeFrom<usize>) {
        match &mut self.kind {
            Kind::Exempt => {}
            Kind::Unlimited(unlimited) => unlimited.id = next(ids),
            Kind::Limited(limits) => limits.iter_mut().for_each(|limit| limit.id = next(ids)),
        }
    }
}

fn next(ids: &mut std::ops::RangeFrom<usize>) -> usize {
    let id = ids.start;
    ids.start += 1;
    id
}

impl Unlimited {
    /// Its `name`, else the rule's path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number among all limits of the rule set.
    pub fn id(&self) -> usize {
        self.id
    }
}

impl RuleLimit {
    /// Its `name`, else the rule's path: the metric label `dimension`. Names can repeat.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Its number among all limits of the rule set, from 0 to [`RuleSet::limits_count`].
    pub fn id(&self) -> usize {
        self.id
    }

    /// Which one it is among the limits of its rule that have the same algorithm, period and
    /// sub-windows: what keeps their counters apart. 0 where it is the first or the only one.
    pub fn ordinal(&self) -> u8 {
        self.ordinal
    }

    /// What ends the keys of its counters.
    pub(crate) fn key_tail(&self) -> &Tail {
        &self.key_tail
    }

    /// Whether a state of the one would be read as a state of the other.
    fn counts_like(&self, other: &Limit) -> bool {
        let grid = |limit: &Limit| match limit.shape() {
            Shape::SlidingWindowCounter(sub_windows) => Some(sub_windows.count),
            Shape::FixedWindow | Shape::SlidingWindowLog | Shape::Bucket(_) => None,
        };
        let shape = |limit: &Limit| (limit.algorithm(), limit.period_ms(), grid(limit));
        shape(&self.limit) == shape(other)
    }
}

#[cfg(test)]
mod tests;
