//! Limits by route, virtual host, stage and domain; TCP connections and gRPC calls.

use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{Front, OK, TOO_MANY, apart, header};
use crate::support::client::{Served, request};
use crate::support::envoy::Config;

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 4, period: 36500d }
  - key: tenant
    rate_limit: { limit: 2, period: 36500d }
";

const OTHER: &str = "
domain: other
descriptors:
  - key: user
    rate_limit: { limit: 1, period: 36500d }
  - key: listener
    value: front
    rate_limit: { limit: 2, period: 36500d }
";

/// A route for a path, with fields of its action and of its filter configuration.
fn route(path: &str, action: &str, filter: &str) -> String {
    format!(
        "
match: {{ prefix: {path} }}
route: {{ {action} }}
typed_per_filter_config:
  envoy.filters.http.ratelimit:
    '@type': type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
    {filter}
"
    )
}

fn by(name: &str) -> String {
    format!("rate_limits: [{{ actions: [{}] }}]", header(name))
}

/// The number of 9 requests of a new caller that pass.
async fn passing(front: &Front, path: &str, caller: &str) -> usize {
    let http_request = front.get(path).header("x-user", caller).header("x-tenant", caller);
    let statuses = http_request.statuses(9).await;
    assert!(statuses.is_sorted(), "once rejected, always: {statuses:?}");
    statuses.iter().filter(|status| **status == OK).count()
}

#[tokio::test]
async fn routes_have_limits_of_their_own() {
    let configure = |config: Config| {
        config
            .host(&apart(&["user"]))
            .route(&route("/own", &by("tenant"), ""))
            .route(&route("/both", &by("tenant"), "vh_rate_limits: INCLUDE"))
            .route(&route("/none", "", "vh_rate_limits: IGNORE"))
            .route(&route("/typed", "", &by("tenant")))
            .route("{ match: { prefix: /old }, route: { include_vh_rate_limits: true } }")
    };
    let front = Front::start(EDGE, configure).await;
    let cases = [("/", 4), ("/own", 2), ("/both", 2), ("/none", 9), ("/typed", 2), ("/old", 4)];
    for (path, admitted) in cases {
        assert_eq!(passing(&front, path, path).await, admitted, "{path}");
    }
    let user = |name: &str| request("edge").about("user", name);
    assert_eq!(front.left(user("/both")).await, 2, "a rejection takes nothing from the host's");
    assert_eq!(front.left(user("/own")).await, 4, "a route's limits stand for the host's");
}

#[tokio::test]
async fn a_route_may_use_another_domain() {
    let served = Served::with(&[EDGE, OTHER], &[]);
    let configure = |config: Config| {
        config.host(&apart(&["user"])).route(&route("/other", "", "domain: other"))
    };
    let front = Front::over(served, None, configure).await;
    assert_eq!(passing(&front, "/other", "a").await, 1);
    assert_eq!(passing(&front, "/", "a").await, 4, "the domains share no counter");
}

#[tokio::test]
async fn stages_are_checked_in_order() {
    let stages = "rate_limits: [{ stage: 0, actions: [USER] }, { stage: 1, actions: [TENANT] }]";
    let stages = stages.replace("USER", &header("user")).replace("TENANT", &header("tenant"));
    let configure = |config: Config| {
        config.another_filter("second", "stage: 1").host(&format!("{{ {stages} }}"))
    };
    let front = Front::start(EDGE, configure).await;
    assert_eq!(passing(&front, "/", "a").await, 2);
    // Two calls: hits that the first takes are not given back when the second rejects.
    assert_eq!(front.left(request("edge").about("user", "a")).await, 2);
    assert_eq!(front.left(request("edge").about("tenant", "a")).await, 0);
}

#[tokio::test]
async fn envoy_may_check_without_enforcing_or_skip_the_check() {
    let none = "{ filter_enforced: { default_value: { numerator: 0 } } }";
    let front = Front::start(EDGE, |config| config.host(&apart(&["user"])).filter(none)).await;
    assert_eq!(passing(&front, "/", "a").await, 9);
    assert_eq!(front.left(request("edge").about("user", "a")).await, 0);
    let off = "{ filter_enabled: { default_value: { numerator: 0 } } }";
    let front = Front::start(EDGE, |config| config.host(&apart(&["user"])).filter(off)).await;
    assert_eq!(passing(&front, "/", "a").await, 9);
    assert_eq!(front.left(request("edge").about("user", "a")).await, 4);
}

#[tokio::test]
async fn connections_over_the_limit_are_closed() {
    let filter = "
name: envoy.filters.network.ratelimit
typed_config:
  '@type': type.googleapis.com/envoy.extensions.filters.network.ratelimit.v3.RateLimit
  stat_prefix: connections
  domain: other
  failure_mode_deny: true
  timeout: 20s
  descriptors: [{ entries: [{ key: listener, value: front }] }]
  rate_limit_service:
    transport_api_version: V3
    grpc_service: { envoy_grpc: { cluster_name: tidegate } }
";
    let served = Served::with(&[EDGE, OTHER], &[]);
    let front = Front::over(served, None, |config| config.network(filter)).await;
    let (first, second, third) = (front.envoy.http2(), front.envoy.http2(), front.envoy.http2());
    assert_eq!(first.get("/").send().await.status, OK);
    assert_eq!(second.get("/").send().await.status, OK);
    assert!(third.get("/").try_send().await.is_none(), "the third connection is closed");
    assert_eq!(first.get("/").statuses(5).await, [OK; 5], "those that are open stay");
    assert_eq!(front.envoy.stat("ratelimit.connections.over_limit").await, 1);
}

#[tokio::test]
async fn grpc_calls_get_the_code_that_envoy_is_configured_for() {
    let limits = "{ rate_limited_as_resource_exhausted: true, \
                  enable_x_ratelimit_headers: DRAFT_VERSION_03, enable_retry_after_header: true }";
    for (filter, code) in [(limits, Code::ResourceExhausted), ("{}", Code::Unavailable)] {
        let front =
            Front::start(EDGE, |config| config.host(&apart(&["tenant"])).filter(filter)).await;
        let endpoint = Endpoint::from_shared(format!("http://{}", front.envoy.addr)).unwrap();
        let mut client = HealthClient::new(endpoint.connect().await.unwrap());
        let call = || {
            let mut call = tonic::Request::new(HealthCheckRequest { service: String::new() });
            call.metadata_mut().insert("x-tenant", "acme".parse().unwrap());
            call
        };
        for _ in 0..2 {
            client.check(call()).await.unwrap();
        }
        let status = client.check(call()).await.unwrap_err();
        assert_eq!(status.code(), code);
        assert_eq!(status.metadata().contains_key("retry-after"), filter == limits);
        client.check(HealthCheckRequest { service: String::new() }).await.unwrap();
    }
    let front = Front::start(EDGE, |config| config.host(&apart(&["tenant"])).filter(limits)).await;
    assert_eq!(
        front.get("/").header("x-tenant", "a").statuses(3).await[2],
        TOO_MANY,
        "HTTP has 429"
    );
}
