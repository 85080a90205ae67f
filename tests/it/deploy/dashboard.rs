//! The dashboard and the rules, queried on a real Prometheus that scrapes a real Tidegate and a
//! real Redis under load, while that Redis stops answering for a while.
//!
//! `make dashboard` runs the same for a longer time and draws the results.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use std::{env, fs};

use serde_json::Value;

use super::drawing;
use crate::support::client::{Request, Served, request};
use crate::support::load::Load;
use crate::support::process::wait_until;
use crate::support::prometheus::{Prometheus, RedisExporter};
use crate::support::servers::{RedisServer, Version};
use crate::support::tools::{text, yaml};

/// The time from the end of the load until Prometheus has scraped all of it.
const SCRAPED_DEADLINE: Duration = Duration::from_secs(20);

/// A query of the dashboard.
pub(super) struct Target {
    pub expr: String,
    /// `{{label}}` is replaced by the label's value.
    pub legend: String,
}

/// A panel of the dashboard.
pub(super) struct Panel {
    pub title: String,
    pub kind: String,
    pub unit: String,
    /// Left, top, width, height, in Grafana's grid of 24 columns.
    pub place: [i32; 4],
    pub targets: Vec<Target>,
    /// Patterns of series' names, and their colours.
    pub colours: Vec<(String, String)>,
    /// Dashed lines: a value and its colour.
    pub thresholds: Vec<(f64, String)>,
    /// Words for values: the value, its word and colour.
    pub words: Vec<(String, String, String)>,
}

/// The duration of the load, and the scrape interval.
#[derive(Clone, Copy)]
struct Pace {
    phase: Duration,
    scrape: &'static str,
    rate_interval: &'static str,
}

/// The scraped programs, and Prometheus.
struct Installation {
    redis: RedisServer,
    served: Served,
    _exporter: RedisExporter,
    prometheus: Prometheus,
}

impl Installation {
    fn start(pace: Pace) -> Self {
        let redis = RedisServer::start_with(Version::Redis70, &["--maxmemory", "64mb"]);
        let served =
            Served::with(&[&text("deploy/example/limits.yaml")], &["--store", &redis.url()]);
        let exporter = RedisExporter::of(&redis);
        // The series keep the names of the shipped configuration.
        let target = |addr: SocketAddr, name: &str| {
            format!("[\"{addr}\"]\n        labels: {{ instance: \"{name}\" }}")
        };
        let config = text("deploy/prometheus/prometheus.yml")
            .replace("[\"tidegate:8080\"]", &target(served.tidegate.http, "tidegate:8080"))
            .replace("[\"redis-exporter:9121\"]", &target(exporter.addr(), "redis:6379"))
            .replace("15s", pace.scrape);
        let prometheus = Prometheus::start(&config, &text("deploy/prometheus/rules.yml"), 2);
        Self { redis, served, _exporter: exporter, prometheus }
    }

    fn load(&self, rate_per_second: u32, request: &Request) -> Load {
        Load::start(self.served.tidegate.grpc, rate_per_second, request)
    }

    /// Phases: traffic, more of it with callers over their limits, no Redis, traffic again.
    fn bear(&self, phase: Duration) {
        let page = request("edge").about("ip", "203.0.113.9").about("everyone", "");
        let steady = self.load(60, &page);
        let trial = self.load(40, &request("edge").about("api_key", "k-1"));
        steady.go_on_for(phase);
        let greedy = self.load(30, &request("edge").about("user_id", "42").about("api", "/search"));
        let export = self.load(10, &request("edge").about("api", "/v1/export"));
        steady.go_on_for(2 * phase);
        self.redis.pause();
        steady.go_on_for(phase);
        self.redis.resume();
        greedy.stop();
        steady.go_on_for(phase);
        for load in [export, trial, steady] {
            load.stop();
        }
    }
}

/// The panels, including headings.
fn panels(pace: Pace) -> Vec<Panel> {
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/tidegate.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    panels.map(|value| panel(value, pace)).collect()
}

fn annotations() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/tidegate.json")).unwrap();
    dashboard["annotations"]["list"].as_array().unwrap().clone()
}

fn panel(panel: &Value, pace: Pace) -> Panel {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let place = |name: &str| i32::try_from(panel["gridPos"][name].as_i64().unwrap()).unwrap();
    let target = |target: &Value| Target {
        expr: filled_in(target["expr"].as_str().unwrap(), pace),
        legend: text(&target["legendFormat"]),
    };
    Panel {
        title: text(&panel["title"]),
        kind: text(&panel["type"]),
        unit: panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap_or_default().to_owned(),
        place: ["x", "y", "w", "h"].map(place),
        targets: panel["targets"].as_array().into_iter().flatten().map(target).collect(),
        colours: colours(panel),
        thresholds: thresholds(panel),
        words: words(panel),
    }
}

fn string(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn colours(panel: &Value) -> Vec<(String, String)> {
    let overrides = panel["fieldConfig"]["overrides"].as_array().into_iter().flatten();
    let colour = |one: &Value| {
        let colour = &one["properties"][0]["value"]["fixedColor"];
        (string(&one["matcher"]["options"]), string(colour))
    };
    overrides.map(colour).collect()
}

/// The threshold lines of a graph. The first step is below all of them.
fn thresholds(panel: &Value) -> Vec<(f64, String)> {
    let defaults = &panel["fieldConfig"]["defaults"];
    if defaults["custom"].get("thresholdsStyle").is_none() {
        return Vec::new();
    }
    let steps = defaults["thresholds"]["steps"].as_array().into_iter().flatten();
    steps.skip(1).map(|step| (step["value"].as_f64().unwrap(), string(&step["color"]))).collect()
}

fn words(panel: &Value) -> Vec<(String, String, String)> {
    let mappings = panel["fieldConfig"]["defaults"]["mappings"].as_array().into_iter().flatten();
    let values = mappings.filter(|one| one["type"] == "value");
    let options = values.flat_map(|one| one["options"].as_object().unwrap());
    options
        .map(|(value, result)| (value.clone(), string(&result["text"]), string(&result["color"])))
        .collect()
}

/// A query with Grafana's variables filled in.
fn filled_in(expr: &str, pace: Pace) -> String {
    let variables = [
        ("$__rate_interval", pace.rate_interval),
        ("$__range", "5m"),
        ("$namespace", ".*"),
        ("$instance", ".*"),
        ("$redis_job", "tidegate-redis"),
        ("$job", "tidegate"),
        ("$domain", ".*"),
    ];
    let filled =
        variables.iter().fold(expr.to_owned(), |expr, (name, value)| expr.replace(name, value));
    assert!(!filled.contains('$'), "{expr} has a variable that nobody sets");
    filled
}

/// The left side of an alert's comparison, which has a result whether it fires or not.
fn compared(expr: &str) -> Vec<String> {
    let side = |side: &str| {
        let found = side.rsplit_once(" > ").or_else(|| side.rsplit_once(" < "));
        let left = found.filter(|(_, right)| right.trim().parse::<f64>().is_ok());
        let left = left.map_or(side, |(left, _)| left).trim();
        left.strip_prefix("absent(").map_or(left, |inner| inner.trim_end_matches(')')).to_owned()
    };
    expr.split(" and ").map(side).collect()
}

/// Every query with its position.
fn queries(pace: Pace) -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for panel in panels(pace) {
        let named = |target: Target| (panel.title.clone(), target.expr);
        queries.extend(panel.targets.into_iter().map(named));
    }
    for annotation in annotations() {
        let expr = filled_in(annotation["expr"].as_str().unwrap(), pace);
        // The mark of an outage has a result only during one.
        queries
            .extend(compared(&expr).into_iter().map(|expr| (annotation["name"].to_string(), expr)));
    }
    for group in yaml(&text("deploy/prometheus/rules.yml"))["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            let expr = rule["expr"].as_str().unwrap();
            let (name, exprs) = match rule.get("alert") {
                Some(name) => (name, compared(expr)),
                None => (&rule["record"], vec![expr.to_owned()]),
            };
            queries.extend(exprs.into_iter().map(|expr| (name.to_string(), expr)));
        }
    }
    queries
}

/// Queries without a result that should have one.
fn unanswered(prometheus: &Prometheus, queries: &[(String, String)]) -> BTreeSet<String> {
    let empty = |(_, expr): &&(String, String)| {
        let answer = prometheus.query(expr);
        !answer.iter().any(|series| series.points[0].1.is_finite())
    };
    queries.iter().filter(empty).map(|(name, expr)| format!("{name}: {expr}")).collect()
}

#[test]
fn every_query_of_the_dashboard_and_of_the_rules_has_a_result() {
    let drawn_to = env::var("TIDEGATE_DRAW_DASHBOARD").ok();
    let pace = if drawn_to.is_some() {
        Pace { phase: Duration::from_secs(20), scrape: "1s", rate_interval: "5s" }
    } else {
        Pace { phase: Duration::from_secs(1), scrape: "250ms", rate_interval: "15s" }
    };
    let installation = Installation::start(pace);
    installation.bear(pace.phase);
    let prometheus = &installation.prometheus;
    let mut queries = queries(Pace { rate_interval: "5m", ..pace });
    // Not available here: tls.rs checks the names.
    queries.retain(|(_, expr)| !expr.contains("rate_limit_tls_"));
    let answered = || unanswered(prometheus, &queries).is_empty().then_some(());
    let complete = wait_until(SCRAPED_DEADLINE, answered);
    assert!(complete.is_some(), "{:#?}", unanswered(prometheus, &queries));
    for rule in prometheus.rules() {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    if let Some(path) = drawn_to {
        let seconds = 5.0 * pace.phase.as_secs_f64();
        let outage = filled_in(annotations()[1]["expr"].as_str().unwrap(), pace);
        fs::write(path, drawing::draw(&panels(pace), prometheus, seconds, &outage)).unwrap();
    }
}

#[test]
fn reloads_and_outages_are_marked_in_every_graph() {
    let names: Vec<_> =
        annotations().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["Limits loaded", "Redis down"]);
}

#[test]
fn links_of_panels_lead_to_a_section_on_what_to_do() {
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/tidegate.json")).unwrap();
    let operating = text("docs/operating.md").to_lowercase();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let links: Vec<_> =
        panels.flat_map(|panel| panel["links"].as_array().into_iter().flatten()).collect();
    assert!(links.len() >= 15, "{} links", links.len());
    for link in links {
        let anchor = link["url"].as_str().unwrap().strip_prefix("${runbook}#").unwrap();
        assert!(operating.contains(&format!("\n### {anchor}\n")), "no section {anchor}");
    }
}

#[test]
fn words_stand_for_figures_that_mean_up_or_down() {
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/tidegate.json")).unwrap();
    for (title, value, word) in
        [("Redis up", "0", "DOWN"), ("Redis up", "1", "up"), ("Limits are current", "0", "REFUSED")]
    {
        let panels = dashboard["panels"].as_array().unwrap();
        let panel = panels.iter().find(|panel| panel["title"] == title).unwrap();
        assert_eq!(panel["fieldConfig"]["defaults"]["mappings"][0]["options"][value]["text"], word);
    }
}

#[test]
fn panels_have_names_of_their_own_and_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/tidegate.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "an id is used twice");
    let mut taken = BTreeSet::new();
    for panel in panels {
        let place = |name: &str| panel["gridPos"][name].as_i64().unwrap();
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(x < 24 && taken.insert((x, y)), "{} overlaps", panel["title"]);
            }
        }
    }
}
