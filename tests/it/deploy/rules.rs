//! Recording rules and alerts, checked by promtool.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::client::{Served, request};
use crate::support::tools::{installed, run_checked, text, yaml};

const RULES: &str = "deploy/prometheus/rules.yml";
const TESTS: &str = "deploy/prometheus/rules_test.yml";

fn promtool(args: &[&str], stdin: &str) -> String {
    run_checked(installed("prometheus/promtool"), args, stdin)
}

/// The rules of the file that have this field, `alert` or `record`.
fn rules_with(field: &str) -> Vec<Value> {
    let groups = yaml(&text(RULES))["groups"].as_array().unwrap().clone();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone());
    rules.filter(|rule| rule.get(field).is_some()).collect()
}

fn names(rules: &[Value], field: &str) -> BTreeSet<String> {
    rules.iter().map(|rule| rule[field].as_str().unwrap().to_owned()).collect()
}

/// The expectations in `rules_test.yml`: the alerts, and whether they fire.
fn expectations() -> BTreeSet<(String, bool)> {
    let tests = yaml(&text(TESTS))["tests"].as_array().unwrap().clone();
    let mut found = BTreeSet::new();
    for test in tests {
        for case in test["alert_rule_test"].as_array().into_iter().flatten() {
            let fires = !case["exp_alerts"].as_array().unwrap().is_empty();
            found.insert((case["alertname"].as_str().unwrap().to_owned(), fires));
        }
    }
    found
}

#[test]
fn promtool_accepts_the_rules_and_the_scrape_configuration() {
    promtool(&["check", "rules", "--lint-fatal", RULES], "");
    promtool(&["check", "config", "--lint-fatal", "deploy/prometheus/prometheus.yml"], "");
}

#[test]
fn alerts_fire_when_they_should_and_only_then() {
    promtool(&["test", "rules", TESTS], "");
}

#[test]
fn every_alert_is_tested_both_ways_and_every_recorded_series_once() {
    let expected = expectations();
    for name in names(&rules_with("alert"), "alert") {
        for fires in [true, false] {
            let tested = expected.contains(&(name.clone(), fires));
            assert!(tested, "{TESTS} has no case where {name} fires: {fires}");
        }
    }
    let tests = text(TESTS);
    for name in names(&rules_with("record"), "record") {
        assert!(tests.contains(&format!("- expr: {name}\n")), "{TESTS} asks nothing of {name}");
    }
}

#[test]
fn every_alert_has_a_summary_and_a_link() {
    let operating = text("docs/operating.md");
    for alert in rules_with("alert") {
        let name = alert["alert"].as_str().unwrap();
        let annotation = |field: &str| alert["annotations"][field].as_str().unwrap().to_owned();
        assert!(!annotation("summary").is_empty() && !annotation("description").is_empty());
        let anchor = format!("docs/operating.md#{}", name.to_lowercase());
        assert_eq!(annotation("runbook_url"), anchor);
        assert!(operating.contains(&format!("\n### {name}\n")), "docs/operating.md lacks {name}");
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
    }
}

#[test]
fn recorded_series_are_named_by_level_metric_and_operation() {
    for name in names(&rules_with("record"), "record") {
        let parts: Vec<_> = name.split(':').collect();
        let [level, metric, operation] = parts[..] else { panic!("{name}") };
        assert!(["job", "dimension"].contains(&level), "{name}");
        assert!(metric.starts_with("rate_limit_") || metric.starts_with("redis_"), "{name}");
        assert!(operation.ends_with("rate5m"), "{name}");
    }
}

#[tokio::test]
async fn promtool_accepts_the_metrics_of_a_service() {
    let served = Served::with_limits(&text("deploy/example/limits.yaml"));
    served.caller().await.check(&request("edge").about("user_id", "42")).await.unwrap();
    let page = served.page("/metrics").body;
    assert!(page.contains("rate_limit_check_total{"), "{page}");
    promtool(&["check", "metrics"], &page);
}
