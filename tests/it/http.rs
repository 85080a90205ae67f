//! The HTTP port: probes, metrics, and the loaded limits.

mod json;
mod labels;
mod top;
mod v1;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::client::{Caller, Page, Served, request};
use crate::support::servers::{RedisServer, Version};

const EDGE: &str = "
domain: edge
slot_by: [tenant]
descriptors:
  - key: user
    rate_limit: { limit: 2, period: 36500d, name: per_user }
  - key: user
    value: \"vip-*\"
    rate_limit: { limit: 9, period: 36500d }
  - key: watched
    shadow_mode: true
    rate_limit: { limit: 1, period: 36500d }
  - key: tenant
    descriptors:
      - key: path
        value: /login
        rate_limit:
          - { limit: 5, period: 90s, algorithm: token_bucket, burst: 20, overdraft: true }
          - { limit: 6, period: 1h, algorithm: sliding_window_counter, sub_windows: 6, weighted: true }
  - key: free
    rate_limit: { unlimited: true }
";

const OTHER: &str = "
domain: other
descriptors:
  - key: ip
    rate_limit: { limit: 1, period: 1h, algorithm: gcra }
";

/// The values of /metrics by name and labels, without comments.
fn metrics(served: &Served) -> BTreeMap<String, f64> {
    let page = served.page("/metrics");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-type: text/plain; version=0.0.4"), "{}", page.head);
    let lines = page.body.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let series = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        (series.to_owned(), value.parse().unwrap())
    });
    series.collect()
}

fn checks(domain: &str, dimension: &str, result: &str) -> String {
    format!(
        "rate_limit_check_total{{domain=\"{domain}\",dimension=\"{dimension}\",result=\"{result}\"}}"
    )
}

fn decisions(domain: &str, decision: &str, source: &str) -> String {
    format!(
        "rate_limit_decision_total\
         {{domain=\"{domain}\",decision=\"{decision}\",source=\"{source}\"}}"
    )
}

async fn call(caller: &Caller, domain: &str, key: &str, value: &str) {
    caller.should(&request(domain).about(key, value)).await.unwrap();
}

#[test]
fn probes_respond() {
    let served = Served::with(&[EDGE], &[]);
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/nothing", 404)] {
        assert_eq!(served.page(path).status, status, "{path}");
    }
}

#[tokio::test]
async fn metrics_count_every_check_and_decision() {
    let served = Served::with(&[EDGE, OTHER], &[]);
    let caller = served.caller().await;
    for _ in 0..3 {
        call(&caller, "edge", "user", "alice").await;
        call(&caller, "edge", "watched", "alice").await;
    }
    call(&caller, "edge", "free", "alice").await;
    call(&caller, "edge", "nothing", "alice").await;
    call(&caller, "other", "ip", "203.0.113.9").await;
    call(&caller, "never-configured", "ip", "203.0.113.9").await;
    caller.should(&request("edge").about("user", "alice").limited_to(1, 6)).await.unwrap();
    caller.should(&request("edge")).await.unwrap_err();
    assert_eq!(Page::post(served.tidegate.http, "/json", "no JSON").status, 400);
    let metrics = metrics(&served);
    let expected = [
        (checks("edge", "per_user", "allowed"), 2.0),
        (checks("edge", "per_user", "rejected"), 1.0),
        (checks("edge", "per_user", "shadow_rejected"), 0.0),
        (checks("edge", "watched", "allowed"), 1.0),
        (checks("edge", "watched", "rejected"), 0.0),
        (checks("edge", "watched", "shadow_rejected"), 2.0),
        (checks("edge", "free", "allowed"), 1.0),
        (checks("edge", "user=vip-*", "allowed"), 0.0),
        (checks("edge", "tenant/path=/login", "allowed"), 0.0),
        (checks("edge", "override", "allowed"), 1.0),
        (checks("other", "ip", "allowed"), 1.0),
        (decisions("edge", "allowed", "store"), 6.0),
        (decisions("edge", "allowed", "no_limit"), 2.0),
        (decisions("edge", "rejected", "store"), 1.0),
        (decisions("other", "allowed", "store"), 1.0),
        (decisions("unknown", "allowed", "no_limit"), 1.0),
        ("rate_limit_decision_failed_total{reason=\"request\"}".to_owned(), 2.0),
        ("rate_limit_store_up".to_owned(), 1.0),
        ("rate_limit_config_reload_total{result=\"success\"}".to_owned(), 1.0),
        ("rate_limit_store_errors_total{kind=\"timeout\"}".to_owned(), 0.0),
        ("rate_limit_store_errors_total{kind=\"unavailable\"}".to_owned(), 0.0),
        (format!("tidegate_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0),
    ];
    let mut differences = String::new();
    for (series, value) in expected {
        let found = metrics.get(&series);
        if found != Some(&value) {
            differences += &format!("{series} is {found:?}, not {value}\n");
        }
    }
    assert!(differences.is_empty(), "{differences}{metrics:#?}");
    let reloaded = metrics["rate_limit_config_last_reload_timestamp_seconds"];
    assert!(reloaded > 1_700_000_000.0, "in Unix seconds: {reloaded}");
    for le in ["0.00005", "1", "+Inf"] {
        let bucket = format!("rate_limit_decision_duration_seconds_bucket{{le=\"{le}\"}}");
        assert!(metrics.contains_key(&bucket), "{bucket}: {metrics:#?}");
    }
    assert!(metrics["rate_limit_decision_duration_seconds_count"] >= 9.0);
}

#[tokio::test]
async fn the_store_in_redis_is_measured() {
    let redis = RedisServer::start(Version::Redis70);
    let served = Served::with(&[EDGE], &["--store", &redis.url(), "--store-timeout", "10s"]);
    let caller = served.caller().await;
    for _ in 0..3 {
        call(&caller, "edge", "user", "alice").await;
    }
    let metrics = metrics(&served);
    let runs = "redis_operation_duration_seconds_count{operation=\"evalsha\"}";
    assert!(metrics[runs] >= 3.0, "{metrics:#?}");
    let in_runs = metrics["rate_limit_store_run_requests_sum"];
    assert!((in_runs - 3.0).abs() < f64::EPSILON, "{metrics:#?}");
    assert!((metrics["rate_limit_store_up"] - 1.0).abs() < f64::EPSILON);
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_is_measured() {
    let served = Served::with(&[EDGE], &[]);
    let metrics = metrics(&served);
    for series in ["process_resident_memory_bytes", "process_open_fds", "process_threads"] {
        assert!(metrics[series] > 0.0, "{series}: {metrics:#?}");
    }
    assert!(metrics["process_start_time_seconds"] > 1_700_000_000.0, "in Unix seconds");
}

#[tokio::test]
async fn series_depend_on_the_limits_files_and_never_on_traffic() {
    let served = Served::with(&[EDGE, OTHER], &[]);
    let caller = served.caller().await;
    // Including histograms, even before the first request.
    let before: Vec<_> = metrics(&served).into_keys().collect();
    for at in 0..100 {
        let value = format!("marker-{at}");
        call(&caller, "edge", "user", &value).await;
        call(&caller, "edge", "user", &format!("vip-{value}")).await;
        call(&caller, "edge", &value, &value).await;
        call(&caller, &value, &value, &value).await;
        let path = request("edge").about("tenant", &value).and("path", "/login").taking(at);
        caller.should(&path).await.unwrap();
        let own = request("edge").about(&value, &value).limited_to(1, 2);
        caller.should(&own).await.unwrap();
        caller.should(&own).await.unwrap();
        let bad = request("edge").about(&value, &value).limited_to(1, 99);
        caller.should(&bad).await.unwrap_err();
    }
    let after: Vec<_> = metrics(&served).into_keys().collect();
    assert_eq!(before, after);
    assert!(!served.page("/metrics").body.contains("marker-"), "a caller's value in a label");
}

#[test]
fn loaded_limits_are_shown_as_json() {
    let served = Served::with(&[EDGE, OTHER], &[]);
    let page = served.page("/limits");
    assert!(page.head.contains("content-type: application/json"), "{}", page.head);
    let limits: Value = serde_json::from_str(&page.body).unwrap();
    let domains = limits["domains"].as_array().unwrap();
    let names: Vec<_> = domains.iter().map(|domain| &domain["domain"]).collect();
    assert_eq!(names, ["edge", "other"]);
    assert_eq!(domains[0]["slot_by"], json!(["tenant"]));
    let source = domains[0]["source"].as_str().unwrap();
    assert_eq!(source, served.limits().join("limits-0.yaml").to_str().unwrap());
    let rule = |path: &str| {
        let rules = domains[0]["rules"].as_array().unwrap();
        let found = rules.iter().find(|rule| rule["rule"] == path);
        found.unwrap_or_else(|| panic!("{path}: {}", page.body))
    };
    assert_eq!(
        rule("tenant/path=/login")["limits"],
        json!([
            { "name": "tenant/path=/login", "limit": 5, "period": "1m30s",
              "algorithm": "token_bucket", "burst": 20, "overdraft": true },
            { "name": "tenant/path=/login", "limit": 6, "period": "1h",
              "algorithm": "sliding_window_counter", "sub_windows": 6, "weighted": true,
              "overdraft": false },
        ])
    );
    assert_eq!(rule("user")["limits"][0]["name"], "per_user");
    assert_eq!(
        (&rule("watched")["shadow"], &rule("free")["unlimited"]),
        (&json!(true), &json!(true))
    );
}

#[test]
fn bytes_that_are_not_http_get_no_answer_and_the_next_page_is_served() {
    let served = Served::with(&[EDGE], &[]);
    let huge = format!("/{}", "x".repeat(20_000));
    for path in [huge.as_str(), "/%00", "/limits/../metrics", "/metrics?x=%ff"] {
        let status = Page::get(served.tidegate.http, path).status;
        assert!((200..500).contains(&status), "{status}");
    }
    assert_eq!(served.page("/healthz").status, 200);
}
