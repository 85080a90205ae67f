//! Warns of rules that exempt requests by accident.
//!
//! A walk down the tree takes the most specific rule and never turns back. So a rule for one value takes
//! its requests away from everything that stands at and below the rule for any value of that key. With
//! rules of its own below, and no limit, it was probably meant to add to that rule and not to replace it.
//! A rule without anything below it is the usual way to exempt a value, and gets no warning.

use super::descriptor::Tree;
use super::errors::{LoadErrors, Message};
use crate::rules::rule::Rule;
use crate::rules::tree::{Level, Values};

/// The most rules that are compared for one domain, so that a large tree loads quickly.
const COMPARED_MAX: usize = 1_000_000;

/// What requests of a rule miss of the rule for any value, as its index.
enum Missed {
    /// Its limit.
    Limit(usize),
    /// This rule below it.
    Below(usize),
}

struct Search<'t> {
    tree: &'t Tree,
    /// Comparisons left.
    budget: usize,
}

/// Warns at each such rule. To be called before the tree is finished.
pub(super) fn warn(tree: &Tree, errors: &mut LoadErrors) {
    let mut search = Search { tree, budget: COMPARED_MAX };
    let below = tree.rules.iter().map(|rule| &rule.below);
    for (_, values) in std::iter::once(&tree.root).chain(below).flat_map(Level::by_key) {
        let Some(any) = values.any() else { continue };
        for special in values.exact().map(|(_, rule)| rule).chain(values.wildcards()) {
            if let Some(missed) = search.missed(special, any) {
                tell(tree, special, &missed, errors);
            }
        }
    }
}

impl<'t> Search<'t> {
    fn missed(&mut self, special: usize, any: usize) -> Option<Missed> {
        let (own, general) = (self.rule(special)?, self.rule(any)?);
        if !own.is_inner() {
            return None;
        }
        let has_no_limit = own.limits().is_empty() && own.unlimited().is_none();
        if has_no_limit && !general.limits().is_empty() {
            return Some(Missed::Limit(any));
        }
        self.missed_below(&own.below, &general.below).map(Missed::Below)
    }

    /// The first rule with a limit in `general` whose requests match nothing in `own`.
    fn missed_below(&mut self, own: &Level, general: &Level) -> Option<usize> {
        let mut first = None;
        for (key, values) in general.by_key() {
            let values_own = own.of_key(key);
            for (rule, counterpart) in counterparts(values, values_own, own, key) {
                self.budget = self.budget.checked_sub(1)?;
                let missed = match counterpart.and_then(|rule| self.rule(rule)) {
                    None => Some(rule).filter(|rule| self.limits(*rule)),
                    Some(counterpart) => {
                        let below = &self.rule(rule)?.below;
                        self.missed_below(&counterpart.below, below)
                    }
                };
                first = missed.into_iter().chain(first).min();
            }
        }
        first
    }

    /// Whether a rule or any below it has a limit.
    fn limits(&mut self, rule: usize) -> bool {
        let Some(rule) = self.rule(rule) else { return false };
        let Some(budget) = self.budget.checked_sub(1) else { return false };
        self.budget = budget;
        let all = |values: &'t Values| values.exact().map(|(_, rule)| rule).chain(values.any());
        !rule.limits().is_empty()
            || rule.below.by_key().any(|(_, values)| all(values).any(|below| self.limits(below)))
    }

    fn rule(&self, rule: usize) -> Option<&'t Rule> {
        self.tree.rules.get(rule)
    }
}

/// The rules for a key, each with the rule that its requests match in another tree. Wildcards are left
/// out: whether a value matches other ones depends on the value.
fn counterparts(
    values: &Values,
    values_own: Option<&Values>,
    own: &Level,
    key: &str,
) -> Vec<(usize, Option<usize>)> {
    let exact = values.exact().map(|(value, rule)| (rule, own.find(key, value)));
    let any = values.any().map(|rule| (rule, values_own.and_then(Values::any)));
    exact.chain(any).collect()
}

fn tell(tree: &Tree, special: usize, missed: &Missed, errors: &mut LoadErrors) {
    tree.report_at(special, errors, |report, at, subject| {
        let (Missed::Limit(by) | Missed::Below(by)) = *missed;
        let path = tree.rules.get(by).map_or("", Rule::path);
        let place = tree.place_of(by, report.file);
        let (text, help) = match missed {
            Missed::Limit(_) => (
                format!(
                    "requests that end here have no limit: that of {path:?} {place} does not apply to them"
                ),
                "add rate_limit; if they are to be exempt, add rate_limit: { unlimited: true }",
            ),
            Missed::Below(_) => (
                format!(
                    "requests for {path:?} {place} have no limit if they match this rule first"
                ),
                "repeat that rule below this one; with unlimited: true if they are to be exempt",
            ),
        };
        let message = Message { text, allowed: None, help: Some(help.to_owned()) };
        report.warn(at, message.about(subject));
    });
}
