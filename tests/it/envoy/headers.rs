//! What Envoy tells its callers of their limits.

use super::{Front, OK, TOO_MANY, apart};
use crate::support::web::{Answer, WebRequest};

const EDGE: &str = "
domain: edge
descriptors:
  - key: few
    rate_limit: { limit: 2, period: 1h, algorithm: sliding_window_log, name: few_an_hour }
  - key: many
    rate_limit: { limit: 1000, period: 90s, algorithm: sliding_window_log }
  - key: blink
    rate_limit: { limit: 10, period: 500ms }
  - key: window
    rate_limit: { limit: 9, period: 36500d }
  - key: week
    rate_limit: { limit: 9, unit: week }
  - key: free
    rate_limit: { unlimited: true }
  - key: huge
    rate_limit: { limit: 8589934592, period: 36500d }
  - key: queue
    rate_limit: { limit: 1, period: 100s, algorithm: gcra }
";

const KEYS: [&str; 8] = ["few", "many", "blink", "window", "week", "free", "huge", "queue"];

const TOLD: &str =
    "{ enable_x_ratelimit_headers: DRAFT_VERSION_03, enable_retry_after_header: true }";

async fn telling() -> Front {
    Front::start(EDGE, |config| config.host(&apart(&KEYS)).filter(TOLD)).await
}

fn about(front: &Front, keys: &[&str]) -> WebRequest {
    let ask = front.get("/");
    keys.iter().fold(ask, |ask, key| ask.header(&format!("x-{key}"), "a"))
}

fn told(answer: &Answer) -> (Option<&str>, Option<&str>) {
    (answer.header("x-ratelimit-limit"), answer.header("x-ratelimit-remaining"))
}

#[tokio::test]
async fn the_limit_with_least_left_speaks_and_every_policy_is_listed() {
    let front = telling().await;
    let both = about(&front, &["many", "few"]);
    let limit = "2, 2;w=3600;name=\"few_an_hour\", 1000;w=90";
    for remaining in ["1", "0"] {
        let answer = both.send().await;
        assert_eq!((answer.status, told(&answer)), (OK, (Some(limit), Some(remaining))));
        let reset_s = answer.number("x-ratelimit-reset");
        assert!((3_590..=3_600).contains(&reset_s), "{reset_s}");
        assert_eq!(answer.header("retry-after"), None);
    }
    let answer = both.send().await;
    assert_eq!((answer.status, told(&answer)), (TOO_MANY, (Some(limit), Some("0"))));
    let alone = about(&front, &["many"]).send().await;
    assert_eq!(told(&alone), (Some("1000, 1000;w=90"), Some("997")), "a rejection took nothing");
}

#[tokio::test]
async fn windows_are_told_in_seconds_whatever_the_unit() {
    let front = telling().await;
    let cases = [
        ("window", "9, 9;w=3153600000", "8"),
        ("week", "9, 9;w=604800", "8"),
        // No whole seconds: Envoy has no window for it.
        ("blink", "10", "9"),
        ("huge", "4294967295, 4294967295;w=3153600000", "4294967295"),
    ];
    for (key, limit, remaining) in cases {
        let answer = about(&front, &[key]).send().await;
        assert_eq!(told(&answer), (Some(limit), Some(remaining)), "{key}");
    }
    for unlimited in [about(&front, &["free"]), front.get("/")] {
        let answer = unlimited.send().await;
        assert_eq!((answer.status, told(&answer)), (OK, (None, None)));
    }
}

#[tokio::test]
async fn retry_after_is_the_longest_wait_of_the_limits_that_reject() {
    let front = telling().await;
    let ask = about(&front, &["queue"]);
    assert_eq!(ask.send().await.status, OK);
    let rejected = ask.send().await;
    assert_eq!((rejected.status, rejected.body.as_str()), (TOO_MANY, ""));
    assert!((90..=100).contains(&rejected.number("retry-after")), "{rejected:?}");
    assert_eq!(rejected.number("retry-after"), rejected.number("x-ratelimit-reset"));
    let few = about(&front, &["few"]);
    assert_eq!(few.statuses(2).await, [OK, OK]);
    let rejected = about(&front, &["queue", "few"]).send().await;
    assert!((3_590..=3_600).contains(&rejected.number("retry-after")), "{rejected:?}");
}

#[tokio::test]
async fn envoy_says_no_more_than_its_configuration_lets_it() {
    let front = Front::start(EDGE, |config| config.host(&apart(&KEYS))).await;
    let ask = about(&front, &["few"]);
    assert_eq!(ask.statuses(2).await, [OK, OK]);
    let rejected = ask.send().await;
    assert_eq!(rejected.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!((rejected.header("retry-after"), told(&rejected)), (None, (None, None)));

    let own = "
disable_x_envoy_ratelimited_header: true
rate_limited_status: { code: ServiceUnavailable }
response_headers_to_add: [{ header: { key: x-why, value: limited } }]
";
    let front = Front::start(EDGE, |config| config.host(&apart(&KEYS)).filter(own)).await;
    let ask = about(&front, &["few"]);
    assert_eq!(ask.statuses(2).await, [OK, OK]);
    let rejected = ask.send().await;
    assert_eq!((rejected.status, rejected.header("x-why")), (503, Some("limited")));
    assert_eq!(rejected.header("x-envoy-ratelimited"), None);
}
