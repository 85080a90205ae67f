//! What a new rule set changes, for the log of a reload.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::domain::Domain;
use super::rule::{Kind, Rule, RuleLimit};
use super::rule_set::RuleSet;

/// Rules of each kind of change that are named; the rest is counted.
const NAMED_MAX: usize = 5;

/// Domains that are named.
const DOMAINS_MAX: usize = 20;

/// What a new rule set changes.
#[derive(Debug)]
pub struct Changes(Vec<DomainChange>);

#[derive(Debug)]
struct DomainChange {
    domain: String,
    kind: DomainChangeKind,
}

#[derive(Debug)]
enum DomainChangeKind {
    Added(usize),
    Removed,
    Changed { settings: bool, added: Rules, changed: Rules, removed: Rules },
}

/// The paths of some rules, and their number.
#[derive(Debug, Default)]
struct Rules {
    named: Vec<String>,
    count: usize,
}

impl Changes {
    /// Compares two rule sets.
    pub fn between(old: &RuleSet, new: &RuleSet) -> Self {
        let mut domains: BTreeMap<&str, [Option<&Domain>; 2]> = BTreeMap::new();
        for (at, set) in [old, new].into_iter().enumerate() {
            for domain in set.domains() {
                domains.entry(domain.name()).or_default()[at] = Some(domain);
            }
        }
        let changes = domains.into_iter().filter_map(|(domain, pair)| {
            let kind = match pair {
                [None, None] => return None,
                [None, Some(new)] => DomainChangeKind::Added(new.rules().count()),
                [Some(_), None] => DomainChangeKind::Removed,
                [Some(old), Some(new)] => DomainChangeKind::between(old, new)?,
            };
            Some(DomainChange { domain: domain.to_owned(), kind })
        });
        Self(changes.collect())
    }
}

impl DomainChangeKind {
    fn between(old: &Domain, new: &Domain) -> Option<Self> {
        let settings = old.own != new.own;
        let [mut added, mut changed, mut removed] = [(); 3].map(|()| Rules::default());
        // Two rules can have one path: the pairs are made in file order.
        let mut before: HashMap<&str, Vec<&Rule>> = HashMap::new();
        for rule in old.rules() {
            before.entry(rule.path()).or_default().push(rule);
        }
        before.values_mut().for_each(|rules| rules.reverse());
        for rule in new.rules() {
            match before.get_mut(rule.path()).and_then(Vec::pop) {
                None => added.add(rule),
                Some(earlier) if !is_same(earlier, rule) => changed.add(rule),
                Some(_) => {}
            }
        }
        let is_left = |rule: &&Rule| {
            let left = before.get(rule.path());
            left.is_some_and(|left| left.iter().any(|other| std::ptr::eq(*other, *rule)))
        };
        old.rules().filter(is_left).for_each(|rule| removed.add(rule));
        let is_changed =
            settings || [&added, &changed, &removed].iter().any(|rules| rules.count > 0);
        is_changed.then_some(Self::Changed { settings, added, changed, removed })
    }
}

impl Rules {
    fn add(&mut self, rule: &Rule) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(rule.path().to_owned());
        }
    }
}

/// Whether two rules of one path do the same.
fn is_same(one: &Rule, other: &Rule) -> bool {
    one.enforcement == other.enforcement
        && one.shared == other.shared
        && one.segments == other.segments
        && one.hashes == other.hashes
        && one.metadata == other.metadata
        && one.raw_body == other.raw_body
        && one.replaces().eq(other.replaces())
        && is_same_kind(&one.kind, &other.kind)
}

fn is_same_kind(one: &Kind, other: &Kind) -> bool {
    let is_same_limit = |(one, other): (&RuleLimit, &RuleLimit)| {
        one.limit == other.limit && one.given_name() == other.given_name()
    };
    match (one, other) {
        (Kind::Exempt, Kind::Exempt) => true,
        (Kind::Unlimited(one), Kind::Unlimited(other)) => one.given_name() == other.given_name(),
        (Kind::Limited(one), Kind::Limited(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(is_same_limit)
        }
        (Kind::Exempt | Kind::Unlimited(_) | Kind::Limited(_), _) => false,
    }
}

/// Shows all changes in one line.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (at, DomainChange { domain, kind }) in self.0.iter().take(DOMAINS_MAX).enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{domain}: {kind}")?;
        }
        match self.0.len().saturating_sub(DOMAINS_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more domains"),
        }
    }
}

impl fmt::Display for DomainChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (settings, added, changed, removed) = match self {
            Self::Added(1) => return f.write_str("new, with 1 rule"),
            Self::Added(rules) => return write!(f, "new, with {rules} rules"),
            Self::Removed => return f.write_str("removed"),
            Self::Changed { settings, added, changed, removed } => {
                (settings, added, changed, removed)
            }
        };
        let mut parts = Vec::new();
        if *settings {
            parts.push("settings changed".to_owned());
        }
        for (what, rules) in [("added", added), ("changed", changed), ("removed", removed)] {
            if rules.count > 0 {
                parts.push(format!("{} {what} ({rules})", rules.count));
            }
        }
        f.write_str(&parts.join(", "))
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named.join(", "))?;
        if self.count > self.named.len() { f.write_str(", …") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Switches;
    use crate::rules::parse::parse;

    fn rules(files: &[&str]) -> RuleSet {
        let files: Vec<_> = (0..)
            .zip(files)
            .map(|(n, text)| (format!("{n}.yaml").into(), (*text).into()))
            .collect();
        parse(&files, Switches::default()).unwrap()
    }

    fn changes(old: &[&str], new: &[&str]) -> String {
        Changes::between(&rules(old), &rules(new)).to_string()
    }

    const EDGE: &str = "{domain: edge, descriptors: [{key: a, rate_limit: {limit: 1, unit: day}}, \
        {key: b, value: x, rate_limit: {limit: 1, unit: day}}, {key: c}]}";

    #[test]
    fn rules_are_added_changed_and_removed() {
        assert_eq!(changes(&[EDGE], &[EDGE]), "none");
        let new =
            EDGE.replace("{limit: 1, unit: day}}, {key: b", "{limit: 2, unit: day}}, {key: b");
        assert_eq!(changes(&[EDGE], &[&new]), "edge: 1 changed (a)");
        let new = EDGE.replace("key: c}", "key: d}, {key: e}");
        assert_eq!(changes(&[EDGE], &[&new]), "edge: 2 added (d, e), 1 removed (c)");
        for option in [
            "shadow_mode: true",
            "hash_values: true",
            "detailed_metric: true",
            "metadata: {a: b}",
            "raw_body: x",
        ] {
            let new = EDGE.replace("{key: a,", &format!("{{key: a, {option},"));
            assert_eq!(changes(&[EDGE], &[&new]), "edge: 1 changed (a)", "{option}");
        }
        let many: String = (0..9).map(|n| format!(", {{key: n{n}}}")).collect();
        let new = EDGE.replace(", {key: c}", &many);
        assert_eq!(
            changes(&[EDGE], &[&new]),
            "edge: 9 added (n0, n1, n2, n3, n4, …), 1 removed (c)"
        );
    }

    #[test]
    fn domains_come_and_go_and_change_their_settings() {
        let other = EDGE.replace("edge", "other");
        assert_eq!(changes(&[EDGE], &[EDGE, &other]), "other: new, with 3 rules");
        assert_eq!(changes(&[EDGE, &other], &[&other]), "edge: removed");
        let new = EDGE.replace("domain: edge", "domain: edge, on_store_failure: deny");
        assert_eq!(changes(&[EDGE], &[&new]), "edge: settings changed");
    }
}
