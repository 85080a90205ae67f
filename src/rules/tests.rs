use std::path::PathBuf;
use std::time::Duration;

use super::Switches;
use super::parse::parse;
use super::*;
use crate::clock::Stopwatch;

fn rules(text: &str) -> RuleSet {
    parse(&[("edge.yaml".into(), text.into())], Switches::default()).unwrap()
}

/// The path of the rule that the `key=value` words find in the only domain, or "".
fn found(rules: &RuleSet, words: &str) -> String {
    let entries = words.split(' ').map(|word| word.split_once('=').unwrap());
    let domain = rules.domains().next().unwrap();
    domain.find(entries).map(|rule| rule.path().to_owned()).unwrap_or_default()
}

const TREE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 1, period: 1s }
  - key: user
    value: \"*\"
  - key: user
    value: vip
  - key: user
    value: vip-*
  - key: tenant
    descriptors:
      - key: path
        value: /login
        rate_limit: { limit: 1, period: 1s }
  - key: tenant
    value: acme
    descriptors:
      - key: user
  - key: ip
";

#[test]
fn the_exact_value_wins_over_wildcards_in_file_order() {
    let rules = rules(TREE);
    assert_eq!(found(&rules, "user=vip"), "user=vip");
    assert_eq!(found(&rules, "user=vip-7"), "user=*");
    assert_eq!(found(&rules, "user="), "user=*");
}

#[test]
fn the_bare_key_matches_any_other_value() {
    let rules = rules(TREE);
    assert_eq!(found(&rules, "ip=10.0.0.1"), "ip");
    assert_eq!(found(&rules, "ip="), "ip");
    assert_eq!(found(&rules, "port=1"), "");
}

#[test]
fn a_limit_applies_exactly_where_the_path_ends() {
    let rules = rules(TREE);
    assert_eq!(found(&rules, "tenant=t path=/login"), "tenant/path=/login");
    assert_eq!(found(&rules, "tenant=t path=/login ip=1"), "");
    assert_eq!(found(&rules, "tenant=t path=/logout"), "");
    assert_eq!(found(&rules, "path=/login tenant=t"), "");
}

#[test]
fn the_walk_never_backtracks() {
    let rules = rules(TREE);
    assert_eq!(found(&rules, "tenant=acme user=1"), "tenant=acme/user");
    assert_eq!(found(&rules, "tenant=acme path=/login"), "");
}

#[test]
fn a_rule_without_limits_is_found_so_that_it_exempts() {
    let rules = rules(TREE);
    let domain = rules.domain("edge").unwrap();
    for entry in [("ip", "1"), ("tenant", "t")] {
        let rule = domain.find([entry]).unwrap();
        assert!(rule.limits().is_empty() && rule.unlimited().is_none());
    }
}

#[test]
fn no_entries_find_nothing() {
    assert!(rules(TREE).domain("edge").unwrap().find([]).is_none());
    assert!(rules(TREE).domain("Edge").is_none());
}

#[test]
fn the_empty_value_is_the_bare_key() {
    let rules = rules("{domain: d, descriptors: [{key: k, value: \"\"}, {key: n, value: null}]}");
    assert_eq!(found(&rules, "k=x"), "k");
    assert_eq!(found(&rules, "n=x"), "n");
}

#[test]
fn every_limit_and_unlimited_rule_has_its_own_id() {
    let file = |domain: &str| {
        let text = format!(
            "{{domain: {domain}, descriptors: [
              {{key: a, rate_limit: [{{limit: 1, unit: day}}, {{limit: 2, unit: hour}}],
                descriptors: [{{key: b, rate_limit: {{unlimited: true, name: free}}}}]}},
              {{key: c}}, {{key: d, rate_limit: {{limit: 3, unit: day}}}}]}}"
        );
        (PathBuf::from(format!("{domain}.yaml")), text)
    };
    let rules = parse(&[file("z"), file("b")], Switches::default()).unwrap();
    assert_eq!(rules.domains().map(Domain::name).collect::<Vec<_>>(), ["b", "z"]);
    let mut ids = vec![];
    for rule in rules.domains().flat_map(Domain::rules) {
        ids.extend(rule.limits().iter().map(RuleLimit::id));
        ids.extend(rule.unlimited().map(Unlimited::id));
    }
    assert_eq!(ids, (0..rules.limits_count()).collect::<Vec<_>>());
    assert_eq!(ids.len(), 8);
}

#[test]
fn rules_come_in_file_order_depth_first() {
    let rules = rules(TREE);
    let paths: Vec<&str> = rules.domains().flat_map(Domain::rules).map(Rule::path).collect();
    let expected = [
        "user",
        "user=*",
        "user=vip",
        "user=vip-*",
        "tenant",
        "tenant/path=/login",
        "tenant=acme",
        "tenant=acme/user",
        "ip",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn equal_limits_of_one_rule_have_different_counters() {
    let rules = rules(
        "{domain: d, descriptors: [{key: k, rate_limit: [
          {limit: 1, period: 1m}, {limit: 2, unit: minute}, {limit: 3, period: 1h},
          {limit: 1, period: 1m, algorithm: sliding_window_counter},
          {limit: 2, period: 1m, algorithm: sliding_window_counter, sub_windows: 10},
          {limit: 2, period: 1m, algorithm: sliding_window_counter, sub_windows: 5},
          {limit: 4, period: 60s}]}]}",
    );
    let rule = rules.domain("d").unwrap().find([("k", "")]).unwrap();
    let suffix = |limit: &RuleLimit| String::from_utf8(limit.key_suffix().as_bytes().to_vec());
    let suffixes: Vec<_> = rule.limits().iter().map(|limit| suffix(limit).unwrap()).collect();
    let expected = [
        ":fixed:1m",
        ":fixed:1m#1",
        ":fixed:1h",
        ":counter10:1m",
        ":counter10:1m#1",
        ":counter5:1m",
        ":fixed:1m#2",
    ];
    assert_eq!(suffixes, expected);
}

#[test]
fn a_limit_is_named_by_its_name_or_its_path() {
    let rules = rules(
        "{domain: d, descriptors: [{key: k, value: 404, rate_limit: [
          {limit: 1, unit: day}, {limit: 1, unit: day, name: daily}]}]}",
    );
    let rule = rules.domain("d").unwrap().find([("k", "404")]).unwrap();
    let names: Vec<&str> = rule.limits().iter().map(RuleLimit::name).collect();
    assert_eq!(names, ["k=404", "daily"]);
}

/// Rules for `count` wildcards of one key, each made from its number.
fn wildcards(count: usize, spelt: impl Fn(usize) -> String) -> RuleSet {
    let rule = |at| format!("- {{key: user, value: \"{}\"}}\n", spelt(at));
    rules(&format!("domain: edge\ndescriptors:\n{}", (0..count).map(rule).collect::<String>()))
}

/// The shortest time of several lookups of a value that no wildcard matches.
fn lookup_time(rules: &RuleSet, value: &str) -> Duration {
    let domain = rules.domain("edge").unwrap();
    let timed = |_| {
        let watch = Stopwatch::start();
        assert!(domain.find([("user", value)]).is_none());
        watch.elapsed()
    };
    (0..20).map(timed).min().unwrap()
}

#[test]
fn a_lookup_of_a_long_value_is_as_fast_with_a_thousand_wildcards_as_with_ten() {
    let inner_stars = |count| wildcards(count, |at| format!("*a{at:04}*"));
    let value = "a".repeat(4_096);
    let (ten, thousand) =
        (lookup_time(&inner_stars(10), &value), lookup_time(&inner_stars(1_000), &value));
    assert!(thousand < 10 * ten, "{ten:?} for ten, {thousand:?} for a thousand");
}

#[test]
fn ten_thousand_wildcards_of_one_key_load_and_are_found() {
    let all = wildcards(10_000, |at| match at % 4 {
        0 => format!("u{at:04}*"),
        1 => format!("*{at:04}u"),
        2 => format!("*-{at:04}-*"),
        _ => format!("v*-{at:04}-*w"),
    });
    assert_eq!(found(&all, "user=u0400-1"), "user=u0400*");
    assert_eq!(found(&all, "user=1-0401u"), "user=*0401u");
    assert_eq!(found(&all, "user=1-0402-1"), "user=*-0402-*");
    assert_eq!(found(&all, "user=v1-0403-1w"), "user=v*-0403-*w");
    assert_eq!(found(&all, "user=u0402"), "");
}
