//! Prints the limits of a rule set, as `tidegate check` understood them.

use super::super::{columns, printable};
use crate::rules::{Domain, Rule, RuleSet};

const HEADER: [&str; 5] = ["DOMAIN", "RULE", "LIMIT", "ALGORITHM", "FLAGS"];

type Row = [String; 5];

/// All rules of all domains in columns, one line per limit, followed by the settings of each
/// domain.
///
/// Rules without a limit that only contain other rules are left out.
pub(super) fn table(rules: &RuleSet) -> String {
    let mut rows = vec![HEADER.map(String::from)];
    rows.extend(rules.domains().flat_map(domain_rows));
    let mut text = columns(&rows);
    let own: String = rules.domains().filter_map(own_settings).collect();
    if !own.is_empty() {
        text.push('\n');
    }
    text + &own
}

fn domain_rows(domain: &Domain) -> Vec<Row> {
    let rows: Vec<Row> = domain.rules().flat_map(|rule| rule_rows(domain.name(), rule)).collect();
    if rows.is_empty() {
        return vec![row(domain.name(), "-", ["none", "-", ""])];
    }
    rows
}

fn rule_rows(domain: &str, rule: &Rule) -> Vec<Row> {
    if let Some(unlimited) = rule.unlimited() {
        let flags = flags(&[], rule, unlimited.given_name());
        return vec![row(domain, rule.path(), ["unlimited", "-", &flags])];
    }
    if rule.limits().is_empty() && !rule.is_inner() {
        return vec![row(domain, rule.path(), ["none", "-", "exempt"])];
    }
    let limits = rule.limits().iter().map(|one| {
        let limit = one.limit();
        let (rate, algorithm) = (limit.rate().to_string(), limit.algorithm_text());
        let overdraft: &[&str] = if limit.overdraft() { &["overdraft"] } else { &[] };
        row(domain, rule.path(), [&rate, &algorithm, &flags(overdraft, rule, one.given_name())])
    });
    limits.collect()
}

fn row(domain: &str, path: &str, rest: [&str; 3]) -> Row {
    let [limit, algorithm, flags] = rest;
    [domain, path, limit, algorithm, flags].map(|cell| printable(cell).into_owned())
}

fn flags(own: &[&str], rule: &Rule, given_name: Option<&str>) -> String {
    let mut flags: Vec<String> = own.iter().map(|flag| (*flag).to_owned()).collect();
    let enforcement = rule.enforcement().name();
    let told = [
        (enforcement, !enforcement.is_empty()),
        ("shared", rule.shares()),
        ("detailed", rule.exposes_values()),
        ("hashed", rule.hashes_values()),
    ];
    flags.extend(told.iter().filter(|(_, holds)| *holds).map(|(name, _)| (*name).to_owned()));
    flags.extend(given_name.map(|name| format!("name={name}")));
    flags.join(" ")
}

fn own_settings(domain: &Domain) -> Option<String> {
    let mut settings = vec![];
    if !domain.slot_by().is_empty() {
        settings.push(format!("slot_by {}", domain.slot_by().join(", ")));
    }
    if let Some(choice) = domain.on_store_failure() {
        settings.push(format!("on_store_failure {}", choice.name()));
    }
    let line = format!("{}: {}", domain.name(), settings.join("; "));
    (!settings.is_empty()).then(|| printable(&line).into_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Switches;
    use crate::rules::parse::parse;

    fn table_of(text: &str) -> Vec<String> {
        let rules = parse(&[("edge.yaml".into(), text.into())], Switches::default()).unwrap();
        table(&rules).lines().map(String::from).collect()
    }

    #[test]
    fn every_limit_is_a_line_in_columns() {
        let text = "
domain: edge
descriptors:
  - key: user_id
    shadow_mode: true
    rate_limit:
      - { limit: 100, period: 1m30s, algorithm: token_bucket, burst: 20 }
      - { limit: 9, period: 1h, name: hourly, overdraft: true }
  - key: user_id
    value: admin
  - key: tenant
    descriptors:
      - { key: path, rate_limit: { unlimited: true } }
";
        assert_eq!(
            table_of(text),
            [
                "DOMAIN  RULE           LIMIT          ALGORITHM              FLAGS",
                "edge    user_id        100 per 1m30s  token_bucket burst=20  shadow",
                "edge    user_id        9 per 1h       fixed_window           overdraft shadow name=hourly",
                "edge    user_id=admin  none           -                      exempt",
                "edge    tenant/path    unlimited      -",
            ]
        );
    }

    #[test]
    fn a_name_that_equals_the_path_is_shown_as_a_name() {
        let lines = table_of(
            "{domain: d, descriptors: [{key: k, rate_limit: {limit: 1, period: 1s, name: k}}, \
             {key: free, rate_limit: {unlimited: true, name: free}}]}",
        );
        assert!(lines[1].ends_with("name=k") && lines[2].ends_with("name=free"), "{lines:?}");
    }

    #[test]
    fn settings_of_a_domain_are_below_the_table() {
        let text = "
domain: edge
slot_by: [tenant]
on_store_failure: deny
descriptors: []
";
        assert_eq!(
            table_of(text),
            [
                "DOMAIN  RULE  LIMIT  ALGORITHM  FLAGS",
                "edge    -     none   -",
                "",
                "edge: slot_by tenant; on_store_failure deny",
            ]
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        let lines = table_of("{domain: \"a\\e[2J\", descriptors: [{key: k}]}");
        assert!(lines[1].starts_with("a\\u{1b}[2J  k"), "{lines:?}");
    }
}
