//! Counts the decisions of a replay by rule.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::WIDTH_MAX;
use crate::decision::LimitResult;
use crate::service::Answer;

/// The counts of a replay.
#[derive(Debug, Default)]
pub(super) struct Summary {
    rules: BTreeMap<(String, String), Counts>,
    requests: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    allowed: u64,
    rejected: u64,
    shadow_rejected: u64,
}

impl Summary {
    pub(super) fn count(&mut self, domain: &str, answer: &Answer<'_>) {
        if answer.allowed {
            self.requests.allowed += 1;
        } else {
            self.requests.rejected += 1;
        }
        for limit in &answer.limits {
            let rule = (domain.to_owned(), limit.rule.to_owned());
            let counts = self.rules.entry(rule).or_default();
            match limit.result(answer.allowed) {
                LimitResult::Allowed => counts.allowed += 1,
                LimitResult::Rejected => counts.rejected += 1,
                LimitResult::ShadowRejected => counts.shadow_rejected += 1,
            }
        }
    }

    pub(super) fn table(&self) -> String {
        let names = || self.rules.keys().map(|(domain, rule)| (domain.as_str(), rule.as_str()));
        let widest = |length: usize, least: usize| length.max(least);
        let domain = names().map(|(domain, _)| domain.chars().count()).fold(8, widest);
        let rule = names().map(|(_, rule)| rule.chars().count()).fold(4, widest);
        let [domain, rule] = [domain, rule].map(|width| width.min(WIDTH_MAX));
        let mut table = String::new();
        let mut line = |name: (&str, &str), counts: [String; 3]| {
            let [allowed, rejected, shadow] = counts;
            // Writing to a string does not fail.
            let _ = writeln!(
                table,
                "{:domain$}  {:rule$}  {allowed:>12}  {rejected:>12}  {shadow:>15}",
                name.0, name.1
            );
        };
        line(("DOMAIN", "RULE"), ["ALLOWED", "REJECTED", "SHADOW REJECTED"].map(String::from));
        for ((domain, rule), counts) in &self.rules {
            line((domain, rule), counts.columns());
        }
        line(("requests", ""), self.requests.columns());
        table
    }
}

impl Counts {
    fn columns(self) -> [String; 3] {
        [self.allowed, self.rejected, self.shadow_rejected].map(|count| count.to_string())
    }
}
