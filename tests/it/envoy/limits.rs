//! Limits that Envoy enforces: how many requests pass, and the effect of a rejection on other
//! limits.

use super::{Front, OK, TOO_MANY, apart, together};
use crate::support::client::request;
use crate::support::envoy::Config;

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 5, period: 36500d }
  - key: ip
    rate_limit: { limit: 3, period: 36500d }
  - key: api
    rate_limit: { limit: 1000, period: 36500d }
  - key: burst
    rate_limit: { limit: 50, period: 36500d }
  - key: watched
    shadow_mode: true
    rate_limit: { limit: 1, period: 36500d }
  - key: free
    rate_limit: { unlimited: true }
  - key: log
    rate_limit: { limit: 4, period: 1h, algorithm: sliding_window_log }
  - key: bucket
    rate_limit: { limit: 4, period: 100d, algorithm: token_bucket }
  - key: tenant
    rate_limit: { limit: 7, period: 36500d }
    descriptors:
      - key: path
        value: /login
        rate_limit: { limit: 2, period: 36500d }
      - key: path
        value: \"/files/*\"
        rate_limit: { limit: 1, period: 36500d }
      - key: path
        value: \"*.png\"
        rate_limit: { unlimited: true }
";

async fn each_limit_admits_its_hits(front: &Front) {
    for (header, admitted) in [("x-user", 5), ("x-ip", 3), ("x-log", 4), ("x-bucket", 4)] {
        let statuses = front.get("/").header(header, "a").statuses(admitted + 3).await;
        let (passed, rejected) = statuses.split_at(admitted);
        assert!(passed.iter().all(|status| *status == OK), "{header}: {statuses:?}");
        assert!(rejected.iter().all(|status| *status == TOO_MANY), "{header}: {statuses:?}");
        let other = front.get("/").header(header, "b").statuses(1).await;
        assert_eq!(other, [OK], "{header}: a counter for each value");
    }
    assert_eq!(front.get("/").statuses(9).await, [OK; 9], "without a descriptor nobody is asked");
}

const EACH: [&str; 8] = ["user", "ip", "api", "burst", "watched", "free", "log", "bucket"];

#[tokio::test]
async fn each_limit_admits_its_hits_on_memory() {
    let front = Front::start(EDGE, |config| config.host(&apart(&EACH))).await;
    each_limit_admits_its_hits(&front).await;
}

#[tokio::test]
async fn each_limit_admits_its_hits_on_redis() {
    let front = Front::on_redis(EDGE, |config| config.host(&apart(&EACH))).await;
    each_limit_admits_its_hits(&front).await;
}

async fn the_tightest_limit_rejects_and_others_are_unchanged(front: &Front) {
    let all = front.get("/").header("x-user", "a").header("x-ip", "a").header("x-api", "a");
    assert_eq!(all.statuses(5).await, [OK, OK, OK, TOO_MANY, TOO_MANY]);
    let left = async |key: &str| front.left(request("edge").about(key, "a")).await;
    assert_eq!((left("user").await, left("ip").await, left("api").await), (2, 0, 997));
    // From another address the same user has the previous remaining hits.
    let moved = front.get("/").header("x-user", "a").header("x-ip", "b").header("x-api", "a");
    assert_eq!(moved.statuses(4).await, [OK, OK, TOO_MANY, TOO_MANY]);
    assert_eq!(front.left(request("edge").about("ip", "b")).await, 1);
    assert_eq!(left("api").await, 995);
}

#[tokio::test]
async fn the_tightest_limit_rejects_and_others_are_unchanged_on_memory() {
    let front = Front::start(EDGE, |config| config.host(&apart(&EACH))).await;
    the_tightest_limit_rejects_and_others_are_unchanged(&front).await;
}

#[tokio::test]
async fn the_tightest_limit_rejects_and_others_are_unchanged_on_redis() {
    let front = Front::on_redis(EDGE, |config| config.host(&apart(&EACH))).await;
    the_tightest_limit_rejects_and_others_are_unchanged(&front).await;
}

#[tokio::test]
async fn of_200_requests_at_once_a_limit_of_50_admits_50() {
    for front in [
        Front::start(EDGE, |config| config.host(&apart(&EACH))).await,
        Front::on_redis(EDGE, |config| config.host(&apart(&EACH))).await,
    ] {
        let http_request = front.get("/").header("x-burst", "a");
        assert_eq!(http_request.count_at_once(200, OK).await, 50, "{:?}", front.redis);
        assert_eq!(front.left(request("edge").about("burst", "a")).await, 0);
        let http_request = front.envoy.http2().get("/").header("x-burst", "b");
        assert_eq!(http_request.count_at_once(200, OK).await, 50, "over one HTTP/2 connection");
        assert_eq!(http_request.count_at_once(200, TOO_MANY).await, 200);
    }
}

#[tokio::test]
async fn nested_rules_count_where_the_descriptor_ends() {
    let nested = |config: Config| {
        config
            .host(&together(&["tenant", "path"]))
            .route(&format!("{{ match: {{ prefix: /tenant }}, route: {} }}", together(&["tenant"])))
    };
    let front = Front::start(EDGE, nested).await;
    let at = |path: &str| front.get("/").header("x-tenant", "acme").header("x-path", path);
    assert_eq!(at("/login").statuses(3).await, [OK, OK, TOO_MANY]);
    assert_eq!(at("/").statuses(9).await, [OK; 9], "no rule for this path");
    // Each value under a wildcard has its own counter.
    assert_eq!(at("/files/1").statuses(2).await, [OK, TOO_MANY]);
    assert_eq!(at("/files/2").statuses(2).await, [OK, TOO_MANY]);
    assert_eq!(at("/files/").statuses(2).await, [OK, TOO_MANY]);
    assert_eq!(at("/a.png").statuses(3).await, [OK; 3]);
    let other = front.get("/").header("x-tenant", "other").header("x-path", "/login");
    assert_eq!(other.statuses(3).await, [OK, OK, TOO_MANY]);
    let alone = front.get("/tenant").header("x-tenant", "acme");
    assert_eq!(alone.statuses(8).await[6..], [OK, TOO_MANY], "the tenant's own limit was not used");
}

#[tokio::test]
async fn shadow_and_unlimited_rules_never_reject() {
    let front = Front::start(EDGE, |config| config.host(&apart(&EACH))).await;
    assert_eq!(front.get("/").header("x-watched", "a").statuses(5).await, [OK; 5]);
    assert_eq!(front.get("/").header("x-free", "a").statuses(5).await, [OK; 5]);
    let page = front.served.page("/metrics").body;
    let shadow = r#"dimension="watched",result="shadow_rejected"} 4"#;
    assert!(page.contains(shadow), "{page}");
    // Beside a rule that rejects they do not prevent it.
    let both = front.get("/").header("x-watched", "b").header("x-free", "b").header("x-ip", "b");
    assert_eq!(both.statuses(4).await, [OK, OK, OK, TOO_MANY]);
}

#[tokio::test]
async fn a_counter_in_several_descriptors_is_charged_for_each() {
    let front = Front::start(EDGE, |config| config.host(&apart(&["user", "user"]))).await;
    // 5 hits are two requests of two; a third would take the sixth.
    let http_request = front.get("/").header("x-user", "a");
    assert_eq!(http_request.statuses(4).await, [OK, OK, TOO_MANY, TOO_MANY]);
    assert_eq!(front.left(request("edge").about("user", "a")).await, 1);
}
