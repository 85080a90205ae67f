//! Explains which rule each descriptor of a request matches, or why it matches none.

use std::collections::HashMap;

use crate::plan::{MatchedLimit, Origin};
use crate::request::{Descriptor, Request};
use crate::rules::{DeadEnd, Domain, Rule, RuleSet};
use crate::suggest::{nearest, quoted};

/// Known names that one request is compared with at most: a thousand take about a millisecond.
const COMPARED_MAX: usize = 1_000;

/// Keys listed in one explanation.
const LISTED_MAX: usize = 8;

/// Why a descriptor matches its limits, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Index into the request's descriptors.
    pub descriptor: usize,
    /// What the descriptor matches.
    pub matches: Match,
    /// The path of the rule, or of the last rule on the way.
    pub path: String,
    /// For people: the nearest known name, or what replaces a limit.
    pub detail: String,
}

/// What a descriptor matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// One or more limits.
    Limited,
    /// A rule that has no limit for it.
    Exempt,
    /// No rule.
    NoRule,
    /// Not even a domain.
    UnknownDomain,
}

/// Explains each descriptor of a request to a domain that no limits file has.
pub(super) fn unknown_domain(rules: &RuleSet, request: &Request) -> Vec<Explanation> {
    let known = rules.domains().map(Domain::name).take(COMPARED_MAX);
    let wrong = format!("no limits file has the domain {}", quoted(request.domain()));
    let detail = with_nearest(wrong, nearest(request.domain(), known));
    let explanation = |descriptor| Explanation {
        descriptor,
        matches: Match::UnknownDomain,
        path: String::new(),
        detail: detail.clone(),
    };
    (0..request.descriptors().len()).map(explanation).collect()
}

/// Explains each descriptor of a request, which matched these limits.
pub(super) fn of_domain(
    domain: &Domain,
    request: &Request,
    matched: &[MatchedLimit<'_>],
) -> Vec<Explanation> {
    let mut explainer =
        Explainer { matched, replaced_by: replaced_by(domain, request), left: COMPARED_MAX };
    let explain = |(at, descriptor): (usize, Descriptor<'_>)| match domain.walk(descriptor.entries)
    {
        Ok(rule) => explainer.rule(at, rule),
        Err(end) => explainer.dead_end(at, &descriptor, &end),
    };
    request.descriptors().enumerate().map(explain).collect()
}

/// The paths of the rules whose limits replace others, by the name of the replaced limit.
fn replaced_by<'d>(domain: &'d Domain, request: &Request) -> HashMap<&'d str, &'d str> {
    let rules = request.descriptors().filter_map(|descriptor| domain.find(descriptor.entries));
    rules.flat_map(|rule| rule.replaces().map(|name| (name, rule.path()))).collect()
}

struct Explainer<'a, 'd> {
    matched: &'a [MatchedLimit<'a>],
    replaced_by: HashMap<&'d str, &'d str>,
    /// Names that may still be compared.
    left: usize,
}

impl Explainer<'_, '_> {
    fn rule(&self, descriptor: usize, rule: &Rule) -> Explanation {
        let mut own = self.matched.iter().filter(|limit| limit.descriptor == descriptor);
        let is_limited = own.any(|limit| !matches!(limit.origin, Origin::Unlimited(_)));
        let matches = if is_limited { Match::Limited } else { Match::Exempt };
        let detail = match self.replaced(rule) {
            replaced if !replaced.is_empty() => replaced,
            _ if is_limited => String::new(),
            _ if rule.unlimited().is_some() => "the rule is unlimited".to_owned(),
            _ if rule.is_inner() => {
                format!("the rule has no limit itself; {}", nested(rule.keys_below()))
            }
            _ => "the rule has no limit".to_owned(),
        };
        Explanation { descriptor, matches, path: rule.path().to_owned(), detail }
    }

    /// Which of the rule's limits are replaced, and by which rules.
    fn replaced(&self, rule: &Rule) -> String {
        let replaced = rule.given_names().filter_map(|name| {
            let by = self.replaced_by.get(name)?;
            Some(format!("{} is replaced by {}", quoted(name), quoted(by)))
        });
        replaced.collect::<Vec<_>>().join("; ")
    }

    fn dead_end(
        &mut self,
        descriptor: usize,
        asked: &Descriptor<'_>,
        end: &DeadEnd<'_>,
    ) -> Explanation {
        let (key, value) = asked.entries.clone().nth(end.entry).unwrap_or_default();
        let detail = if let Some(values) = end.values(key) {
            let wrong = format!("no rule of the key {} has this value", quoted(key));
            with_nearest(wrong, self.nearest(value, values))
        } else if end.keys().next().is_none() {
            format!("no rules are nested here, so the entry {} is too much", quoted(key))
        } else {
            let wrong = format!("no rule has the key {} here", quoted(key));
            match self.nearest(key, end.keys()) {
                None => format!("{wrong}; {}", known(end.keys())),
                near @ Some(_) => with_nearest(wrong, near),
            }
        };
        let path = end.last.map_or_else(String::new, |rule| rule.path().to_owned());
        Explanation { descriptor, matches: Match::NoRule, path, detail }
    }

    fn nearest<'n>(&mut self, name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
        let left = &mut self.left;
        nearest(name, names.take(*left).inspect(|_| *left -= 1))
    }
}

fn with_nearest(wrong: String, near: Option<&str>) -> String {
    near.map_or_else(|| wrong.clone(), |near| format!("{wrong}; did you mean {}", quoted(near)))
}

fn nested<'n>(keys: impl Iterator<Item = &'n str>) -> String {
    format!("its limits are nested below, under {}", listed(keys))
}

fn known<'n>(keys: impl Iterator<Item = &'n str>) -> String {
    format!("known are {}", listed(keys))
}

/// The first names in order, at most [`LISTED_MAX`].
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut names: Vec<_> = names.take(COMPARED_MAX).collect();
    names.sort_unstable();
    let more = if names.len() > LISTED_MAX { ", …" } else { "" };
    names.truncate(LISTED_MAX);
    names.join(", ") + more
}
