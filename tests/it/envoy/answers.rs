//! Fields of Tidegate's answers besides the decision, as Envoy passes them on: headers, dynamic
//! metadata and bodies.

use super::{Front, OK, TOO_MANY, apart};
use crate::support::client::Served;
use crate::support::envoy::Config;
use crate::support::web::Answer;

const EDGE: &str = "
domain: edge
raw_body: 'too many'
descriptors:
  - key: user
    metadata: { plan: gold, seats: 5 }
    rate_limit: { limit: 2, period: 1h, algorithm: sliding_window_log, name: user_hourly }
  - key: ip
    rate_limit: { limit: 1000, period: 1m, algorithm: sliding_window_log }
  - key: watched
    shadow_mode: true
    rate_limit: { limit: 1, period: 1h }
  - key: api
    raw_body: '{\"error\":\"slow down\"}'
    rate_limit: { limit: 1, period: 36500d }
";

/// Dynamic metadata, shown to callers as headers.
const SHOWN: &str = "
response_headers_to_add:
  - header: { key: x-domain, value: '%DYNAMIC_METADATA(envoy.filters.http.ratelimit:domain)%' }
  - header: { key: x-matched, value: '%DYNAMIC_METADATA(envoy.filters.http.ratelimit:matched)%' }
  - header: { key: x-rejected, value: '%DYNAMIC_METADATA(envoy.filters.http.ratelimit:rejected)%' }
  - header: { key: x-plan, value: '%DYNAMIC_METADATA(envoy.filters.http.ratelimit:metadata:plan)%' }
";

const KEYS: [&str; 4] = ["user", "ip", "watched", "api"];

async fn front(args: &[&str], configure: impl FnOnce(Config) -> Config) -> Front {
    let served = Served::with(&[EDGE], args);
    Front::over(served, None, |config| configure(config.host(&apart(&KEYS)))).await
}

async fn about(front: &Front, keys: &[&str]) -> Answer {
    let http_request = front.get("/");
    keys.iter()
        .fold(http_request, |http_request, key| http_request.header(&format!("x-{key}"), "a"))
        .send()
        .await
}

fn number(text: &str, after: &str) -> u64 {
    let rest = text.split(after).nth(1).unwrap_or_else(|| panic!("no {after} in {text}"));
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap_or_else(|_| panic!("no number after {after} in {text}"))
}

#[tokio::test]
async fn x_ratelimit_headers_are_of_the_tightest_enforced_limit() {
    let front = front(&["--headers", "x-ratelimit"], |config| config).await;
    for (status, remaining) in [(OK, 1), (OK, 0), (TOO_MANY, 0)] {
        let answer = about(&front, &["ip", "user", "watched"]).await;
        let reported = (answer.number("x-ratelimit-limit"), answer.number("x-ratelimit-remaining"));
        assert_eq!((answer.status, reported), (status, (2, remaining)));
        assert!((3_590..=3_600).contains(&answer.number("x-ratelimit-reset")), "{answer:?}");
    }
    let unlimited = about(&front, &["watched"]).await;
    assert!(!unlimited.headers.contains_key("x-ratelimit-limit"), "{unlimited:?}");
}

#[tokio::test]
async fn draft_headers_list_every_limit_and_retry_after_the_longest_wait() {
    let front = front(&["--headers", "draft"], |config| config).await;
    for (status, left) in [(OK, 1), (OK, 0), (TOO_MANY, 0)] {
        let answer = about(&front, &["ip", "user", "watched"]).await;
        assert_eq!(answer.status, status);
        let policy = r#""user_hourly";q=2;w=3600, "ip";q=1000;w=60"#;
        assert_eq!(answer.header("ratelimit-policy"), Some(policy));
        let state = answer.header("ratelimit").unwrap();
        assert_eq!(number(state, "\"user_hourly\";r="), left, "{state}");
        assert!(number(state, "\"ip\";r=") >= 998, "{state}");
        assert!((3_590..=3_600).contains(&number(state, ";t=")), "{state}");
        let retry_after_s = answer.header("retry-after").map(|text| text.parse().unwrap());
        assert_eq!(retry_after_s, (status == TOO_MANY).then(|| number(state, ";t=")));
    }
    let unlimited = about(&front, &[]).await;
    assert!(!unlimited.headers.contains_key("ratelimit-policy"), "{unlimited:?}");
}

#[tokio::test]
async fn dynamic_metadata_have_the_rules_and_their_metadata() {
    let front = front(&[], |config| config.host(SHOWN)).await;
    let shown = |answer: &Answer| {
        let text = |name: &str| answer.header(name).unwrap_or_default().to_owned();
        [text("x-domain"), text("x-matched"), text("x-rejected"), text("x-plan")]
    };
    let matched = r#"["user_hourly","ip"]"#;
    for _ in 0..2 {
        let answer = about(&front, &["user", "ip"]).await;
        assert_eq!(answer.status, OK);
        assert_eq!(shown(&answer), ["edge", matched, "[]", "gold"]);
    }
    let answer = about(&front, &["user", "ip"]).await;
    assert_eq!(answer.status, TOO_MANY);
    assert_eq!(shown(&answer)[..3], ["edge", matched, r#"["user_hourly"]"#]);
}

#[tokio::test]
async fn dynamic_metadata_can_be_left_out() {
    let front = front(&["--dynamic-metadata", "off"], |config| config.host(SHOWN)).await;
    let answer = about(&front, &["user"]).await;
    assert_eq!((answer.status, answer.header("x-domain").unwrap_or_default()), (OK, ""));
}

#[tokio::test]
async fn rejections_have_the_body_of_the_rule_or_its_domain() {
    let front = front(&[], |config| config).await;
    assert_eq!(about(&front, &["api"]).await.status, OK);
    let rejected = about(&front, &["api"]).await;
    assert_eq!((rejected.status, rejected.body.as_str()), (TOO_MANY, r#"{"error":"slow down"}"#));
    for _ in 0..2 {
        let passed = about(&front, &["user"]).await;
        assert!(passed.status == OK && passed.body.starts_with("GET /"), "{passed:?}");
    }
    let rejected = about(&front, &["user"]).await;
    assert_eq!((rejected.status, rejected.body.as_str()), (TOO_MANY, "too many"));
}
