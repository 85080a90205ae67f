//! A rule: its limits, and how it treats requests whose descriptor ends at it.
//!
//! A rule is a node in the tree of a limits file. It either exempts requests, or is unlimited, or
//! has one or more limits. The parser builds rules; matching a descriptor and metrics only read
//! them.
//!
//! Lists by level are empty if no level of the rule's path uses them.

use prost_types::Struct;

use super::tree::Level;
use crate::decision::Enforcement;
use crate::key::{Group, KeySuffix};
use crate::limit::Limit;

/// A configured node that a descriptor can match.
#[derive(Debug)]
pub struct Rule {
    pub(super) path: Box<str>,
    pub(super) kind: Kind,
    pub(super) enforcement: Enforcement,
    /// By level: the wildcard whose values share one counter, if any. Empty if no level has one.
    pub(super) shared: Box<[Option<Box<str>>]>,
    /// The path in metrics, by level. Empty if it has no values of requests.
    pub(super) segments: Box<[Segment]>,
    /// By level: whether values are reported only as their hash. Empty if no level does so.
    pub(super) hashes: Box<[bool]>,
    pub(super) metadata: Option<Struct>,
    pub(super) raw_body: Option<Box<str>>,
    pub(super) below: Level,
}

/// How a rule treats the requests that end at it.
#[derive(Debug)]
pub(super) enum Kind {
    Exempt,
    Unlimited(Unlimited),
    Limited(Box<[RuleLimit]>),
}

/// A level of a rule's path in metrics.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// The text in the configuration.
    Configured(Box<str>),
    /// The key, with the value of the request.
    Value(Box<str>),
    /// The key, with the hash of the request's value.
    Hash(Box<str>),
}

/// The name of a limit in answers and metrics. A given name can have the text of a path.
#[derive(Debug)]
pub(super) enum Name {
    /// Its `name` in the limits file.
    Given(Box<str>),
    /// Its rule's path, if the limits file gives it no name.
    Path(Box<str>),
}

/// A rule with `unlimited: true`, which counts nothing.
#[derive(Debug)]
pub struct Unlimited {
    pub(super) name: Name,
    pub(super) replaces: Box<[Box<str>]>,
    pub(super) id: usize,
}

/// One limit of a rule.
#[derive(Debug)]
pub struct RuleLimit {
    pub(super) name: Name,
    pub(super) replaces: Box<[Box<str>]>,
    pub(super) limit: Limit,
    pub(super) id: usize,
    pub(super) key_suffix: KeySuffix,
    pub(super) group: Group,
}

impl Rule {
    /// Its path in the configuration, such as `user_id` or `tenant=acme/path`.
    ///
    /// For display only: keys and values are not escaped, so two rules can have the same path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The limits of the rule; none if it exempts or is unlimited.
    pub fn limits(&self) -> &[RuleLimit] {
        match &self.kind {
            Kind::Limited(limits) => limits,
            Kind::Exempt | Kind::Unlimited(_) => &[],
        }
    }

    /// The rule's data if it has `unlimited: true`.
    pub fn unlimited(&self) -> Option<&Unlimited> {
        match &self.kind {
            Kind::Unlimited(unlimited) => Some(unlimited),
            Kind::Exempt | Kind::Limited(_) => None,
        }
    }

    /// What its limits do to requests whose hits do not fit.
    pub const fn enforcement(&self) -> Enforcement {
        self.enforcement
    }

    /// By level: the wildcard that replaces every value in the keys of counters, if any. Levels
    /// beyond the end of the slice have none.
    pub(crate) fn shared(&self) -> &[Option<Box<str>>] {
        &self.shared
    }

    /// Whether all values of some wildcard on its path share one counter: `share_threshold`.
    pub fn shares(&self) -> bool {
        !self.shared.is_empty()
    }

    /// The path in metrics if it has values of requests, else empty.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether values of requests become labels of its metrics: `detailed_metric`,
    /// `value_to_metric`.
    pub fn exposes_values(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Whether values at a level of its path are reported only as their hash: `hash_values`.
    pub fn hashes(&self, level: usize) -> bool {
        self.hashes.get(level).copied().unwrap_or(false)
    }

    /// Whether values at any level are reported only as their hash.
    pub fn hashes_values(&self) -> bool {
        !self.hashes.is_empty()
    }

    /// The metadata to send to the proxy for requests that match this rule.
    pub const fn metadata(&self) -> Option<&Struct> {
        self.metadata.as_ref()
    }

    /// The body of answers to requests that this rule rejects.
    pub fn raw_body(&self) -> Option<&str> {
        self.raw_body.as_deref()
    }

    /// Whether rules are nested below it.
    pub fn is_inner(&self) -> bool {
        !self.below.is_empty()
    }

    /// The names in the limits file of its limits, or of the rule itself if it is unlimited.
    pub(crate) fn given_names(&self) -> impl Iterator<Item = &str> {
        let limits = self.limits().iter().filter_map(RuleLimit::given_name);
        limits.chain(self.unlimited().and_then(Unlimited::given_name))
    }

    /// The names of the limits that its own limits replace.
    pub(crate) fn replaces(&self) -> impl Iterator<Item = &str> {
        let unlimited = self.unlimited().into_iter().flat_map(|unlimited| &unlimited.replaces);
        let limits = self.limits().iter().flat_map(|limit| &limit.replaces);
        unlimited.chain(limits).map(|name| &**name)
    }

    /// Assigns each of its limits the group of its counters.
    pub(super) fn take_groups(&mut self, domain: &str) {
        if let Kind::Limited(limits) = &mut self.kind {
            for limit in limits {
                limit.group = Group::of_limit(domain, &self.path, &limit.key_suffix);
            }
        }
    }

    /// Assigns each of its limits the next id.
    pub(super) fn take_ids(&mut self, ids: &mut std::ops::RangeFrom<usize>) {
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

impl Kind {
    /// The same kind, with limits that also count rejected requests.
    pub(super) fn into_counted(mut self) -> Self {
        if let Self::Limited(limits) = &mut self {
            limits.iter_mut().for_each(|one| one.limit = one.limit.into_counted());
        }
        self
    }
}

impl Name {
    pub(super) fn of(given: Option<&str>, path: &str) -> Self {
        given.map_or_else(|| Self::Path(path.into()), |name| Self::Given(name.into()))
    }

    fn text(&self) -> &str {
        match self {
            Self::Given(text) | Self::Path(text) => text,
        }
    }

    fn given(&self) -> Option<&str> {
        match self {
            Self::Given(name) => Some(name),
            Self::Path(_) => None,
        }
    }
}

impl Unlimited {
    /// Its `name`, else the rule's path.
    pub fn name(&self) -> &str {
        self.name.text()
    }

    /// Its `name` in the limits file, if it has one.
    pub fn given_name(&self) -> Option<&str> {
        self.name.given()
    }

    /// Its number among all limits of the rule set.
    pub fn id(&self) -> usize {
        self.id
    }
}

impl RuleLimit {
    /// Its `name`, else the rule's path: the metric label `dimension`. Names can repeat.
    pub fn name(&self) -> &str {
        self.name.text()
    }

    /// Its `name` in the limits file, if it has one. `replaces` of other limits refers to it.
    pub fn given_name(&self) -> Option<&str> {
        self.name.given()
    }

    /// The names of the limits that this one replaces: `replaces`.
    pub fn replaces(&self) -> impl Iterator<Item = &str> {
        self.replaces.iter().map(|name| &**name)
    }

    /// The limit.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Its number among all limits of the rule set, from 0 to
    /// [`super::RuleSet::limits_count`].
    pub fn id(&self) -> usize {
        self.id
    }

    /// The suffix of its counters' keys.
    pub(crate) fn key_suffix(&self) -> &KeySuffix {
        &self.key_suffix
    }

    /// The group of its counters.
    pub(crate) fn group(&self) -> Group {
        self.group
    }

    /// Whether a state of one limit would be read as a state of the other.
    pub(super) fn counts_like(&self, other: &Limit) -> bool {
        let stored_as = |limit: &Limit| (limit.key_name(), limit.period_ms());
        stored_as(&self.limit) == stored_as(other)
    }
}
