//! Metrics whose labels contain values of requests, for rules that enable it.

use crate::http::{call, checks, metrics};
use crate::support::client::{Served, request};

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    detailed_metric: true
    rate_limit: { limit: 1, period: 36500d }
  - key: route
    value_to_metric: true
    descriptors:
      - key: method
        value: GET
        descriptors:
          - key: user
            rate_limit: { limit: 9, period: 36500d, name: per_route }
  - key: files
    value: 'files/*'
    share_threshold: true
    detailed_metric: true
    rate_limit: { limit: 9, period: 36500d }
  - key: named
    detailed_metric: true
    rate_limit: { limit: 9, period: 36500d, name: named }
  - key: half
    rate_limit: { limit: 10, period: 36500d }
";

#[tokio::test]
async fn values_are_labels_if_a_rule_enables_it() {
    let served = Served::with(&[EDGE], &[]);
    let caller = served.caller().await;
    call(&caller, "edge", "user", "alice").await;
    call(&caller, "edge", "user", "alice").await;
    call(&caller, "edge", "user", "a\"b\\c\nd").await;
    call(&caller, "edge", "user", &"x".repeat(200)).await;
    call(&caller, "edge", "files", "files/a").await;
    call(&caller, "edge", "named", "alice").await;
    let route = request("edge").about("route", "/login").and("method", "GET").and("user", "bob");
    caller.should(&route).await.unwrap();
    let metrics = metrics(&served);
    let value =
        |dimension: &str, result: &str| metrics.get(&checks("edge", dimension, result)).copied();
    assert_eq!(value("user=alice", "allowed"), Some(1.0));
    assert_eq!(value("user=alice", "rejected"), Some(1.0));
    assert_eq!(value(r#"user=a\"b\\c\nd"#, "allowed"), Some(1.0));
    assert_eq!(value("per_route/route=/login/method=GET/user", "allowed"), Some(1.0));
    assert_eq!(value("named/named=alice", "allowed"), Some(1.0), "a name that equals the path");
    assert_eq!(
        value("files=files/*", "allowed"),
        Some(1.0),
        "what shares a counter shares a series"
    );
    let long = metrics.keys().find(|series| series.contains("user=#")).expect("a hash");
    assert!(!long.contains("xxx"), "{long}");
}

#[tokio::test]
async fn series_of_values_are_bounded_and_sums_stay() {
    let served = Served::with(&[EDGE], &["--metric-max-series", "43"]);
    let caller = served.caller().await;
    for at in 0..50 {
        call(&caller, "edge", "user", &format!("user-{at}")).await;
        call(&caller, "edge", "user", "regular").await;
    }
    let metrics = metrics(&served);
    // Four per value: three results, and the near-limit count.
    let users = metrics.keys().filter(|series| series.contains("dimension=\"user="));
    assert_eq!(users.count(), 40);
    let sum = |result: &str| -> f64 {
        let own = metrics.iter().filter(|(series, _)| {
            series.starts_with("rate_limit_check_total{")
                && series.contains(&format!("result=\"{result}\""))
        });
        own.map(|(_, count)| count).sum()
    };
    assert_eq!((sum("allowed"), sum("rejected")), (51.0, 49.0));
    assert_eq!(metrics[&checks("edge", "user=regular", "rejected")], 49.0, "in use, so kept");
    assert_eq!(metrics[&checks("edge", "other", "allowed")], 41.0);
    assert_eq!(metrics["rate_limit_metric_series_dropped_total"], 4.0 * 41.0);
    served.tidegate.wait_for_log("--metric-max-series");
}

#[tokio::test]
async fn checks_that_leave_a_fifth_or_less_count_as_near_the_limit() {
    let served = Served::with(&[EDGE], &[]);
    let caller = served.caller().await;
    for _ in 0..11 {
        call(&caller, "edge", "half", "a").await;
    }
    let near = "rate_limit_near_limit_total{domain=\"edge\",dimension=\"half\"}";
    assert_eq!(metrics(&served)[near], 3.0, "the eighth to the tenth");
}
