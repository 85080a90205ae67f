//! Several Tidegates that share a Redis, behind one Envoy.

use super::{Front, OK, TOO_MANY, apart};
use crate::support::client::{Page, Served, request};
use crate::support::envoy::Config;
use crate::support::servers::{RedisServer, Version};
use crate::support::tidegate::Tidegate;

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 50, period: 36500d }
";

/// Envoy's retry policy for a missing replica: it tries another one within the deadline. The
/// longest pause is also the timeout of each try.
pub(super) const RETRIES: &str = "
rate_limit_service:
  grpc_service:
    retry_policy:
      retry_on: connect-failure,refused-stream
      num_retries: 1
      retry_back_off: { base_interval: 0.001s, max_interval: 20s }
";

/// Two replicas; the second one may be stopped.
async fn replicated(configure: impl FnOnce(Config) -> Config) -> (Front, Tidegate) {
    let redis = RedisServer::start(Version::Redis70);
    let args = ["--store", &redis.url(), "--store-timeout", "10s", "--deny-cache-ttl", "10s"];
    let served = Served::with(&[EDGE], &args);
    let limits = ["--limits", served.limits().to_str().unwrap()];
    let second = Tidegate::serve(&[&limits[..], &args].concat());
    let addr = second.grpc;
    let front = Front::over(served, Some(redis), |config| {
        configure(config.replica(addr).host(&apart(&["user"])))
    });
    (front.await, second)
}

#[tokio::test]
async fn replicas_together_admit_as_many_as_one_would() {
    let (front, second) = replicated(|config| config).await;
    // Requests in sequence over one connection alternate between the replicas.
    let web = front.envoy.http2();
    let http_request = web.get("/").header("x-user", "a");
    assert_eq!(http_request.statuses(20).await, [OK; 20]);
    assert_eq!(front.get("/").header("x-user", "a").count_at_once(200, OK).await, 30);
    assert_eq!(http_request.statuses(10).await, [TOO_MANY; 10]);
    let decided = |at| {
        let page = Page::get(at, "/metrics").body;
        let line =
            "rate_limit_decision_total{domain=\"edge\",decision=\"allowed\",source=\"store\"} ";
        let count = page.lines().find_map(|text| text.strip_prefix(line)).unwrap_or("0");
        count.parse::<u64>().unwrap()
    };
    let counts = (decided(front.served.tidegate.http), decided(second.http));
    assert!(counts.0 >= 10 && counts.1 >= 10 && counts.0 + counts.1 == 50, "{counts:?}");
}

#[tokio::test]
async fn a_stopped_replica_loses_no_decision() {
    let (front, mut second) = replicated(|config| config.filter(RETRIES)).await;
    // One connection is one thread of Envoy, with one connection to each replica.
    let web = front.envoy.http2();
    let http_request = web.get("/").header("x-user", "a");
    assert_eq!(http_request.statuses(20).await, [OK; 20]);
    second.kill();
    front.envoy.wait_for_stat("cluster.tidegate.upstream_cx_destroy", 1).await;
    assert_eq!(http_request.statuses(20).await, [OK; 20]);
    assert_eq!(front.envoy.stat("cluster.echo.ratelimit.error").await, 0);
    assert!(front.envoy.stat("cluster.tidegate.upstream_rq_retry_success").await > 0);
    assert_eq!(front.left(request("edge").about("user", "a")).await, 10);
}
