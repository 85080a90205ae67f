//! Every kind of entry that Envoy derives from a request, and values that callers choose.

use super::{Front, OK, TOO_MANY, apart};
use crate::support::envoy::Config;

/// One request for each value that Envoy may derive; the matched rule shows which one it was.
const EDGE: &str = "
domain: edge
descriptors:
  - key: generic_key
    value: everyone
    rate_limit: { limit: 1, period: 36500d }
  - key: remote_address
    rate_limit: { limit: 1, period: 36500d }
  - key: masked_remote_address
    rate_limit: { limit: 1, period: 36500d }
  - key: header_match
    value: writes
    rate_limit: { limit: 1, period: 36500d }
  - key: no_key
    value: anonymous
    rate_limit: { limit: 1, period: 36500d }
  - key: page
    rate_limit: { limit: 1, period: 36500d }
  - key: query_match
    value: expensive
    rate_limit: { limit: 1, period: 36500d }
  - key: destination_cluster
    value: echo
    descriptors:
      - key: source_cluster
        value: \"\"
        rate_limit: { limit: 1, period: 36500d }
  - key: plan
    value: gold
    rate_limit: { limit: 1, period: 36500d }
  - key: office
    value: inside
    rate_limit: { limit: 1, period: 36500d }
  - key: user
    rate_limit: { limit: 1, period: 36500d }
";

/// A filter that takes a caller's address from the header of the last proxy.
const BEHIND_A_PROXY: &str = "{ use_remote_address: true, xff_num_trusted_hops: 1 }";

async fn limited_by(actions: &str) -> Front {
    let host = format!("{{ rate_limits: [{{ actions: [{actions}] }}] }}");
    Front::start(EDGE, |config| config.http(BEHIND_A_PROXY).host(&host)).await
}

/// Asserts that the second of two equal requests is rejected, and that another one passes.
async fn assert_counts(front: &Front, path: &str, headers: &[(&str, &str)], other: &str) {
    let mut http_request = front.get(path);
    for (name, value) in headers {
        http_request = http_request.header(name, value);
    }
    assert_eq!(http_request.statuses(2).await, [OK, TOO_MANY], "{path} {headers:?}");
    let other = front.get(other).header("x-forwarded-for", "203.0.113.200");
    assert_eq!(other.statuses(2).await, [OK, OK], "this is not limited");
}

#[tokio::test]
async fn every_property_of_a_request_can_be_limited() {
    let writes = "header_value_match: { descriptor_value: writes, \
                  headers: [{ name: ':method', string_match: { exact: POST } }] }";
    let anonymous = "header_value_match: { descriptor_key: no_key, descriptor_value: anonymous, \
                     expect_match: false, headers: [{ name: x-other, present_match: true }] }";
    let expensive = "query_parameter_value_match: { descriptor_value: expensive, \
                     query_parameters: [{ name: depth, string_match: { prefix: '9' } }] }";
    let page = "query_parameters: { query_parameter_name: page, descriptor_key: page }";
    let inside = "remote_address_match: { descriptor_key: office, descriptor_value: inside, \
                  address_matcher: { ranges: [{ address_prefix: 10.0.0.0, prefix_len: 8 }] } }";

    let front = limited_by(&format!("{{ {writes} }}")).await;
    let post = front.get("/").body("x");
    assert_eq!(post.statuses(2).await, [OK, TOO_MANY]);
    assert_eq!(front.get("/").statuses(2).await, [OK, OK]);

    let front = limited_by(&format!("{{ {anonymous} }}")).await;
    assert_eq!(front.get("/").statuses(2).await, [OK, TOO_MANY]);
    assert_eq!(front.get("/").header("x-other", "1").statuses(2).await, [OK, OK]);

    assert_counts(&limited_by(&format!("{{ {expensive} }}")).await, "/?depth=95", &[], "/?depth=1")
        .await;
    let front = limited_by(&format!("{{ {page} }}")).await;
    assert_counts(&front, "/?page=1&page=2", &[], "/?pages=1").await;
    assert_eq!(front.get("/?page=2").statuses(2).await, [OK, TOO_MANY]);
    let caller = [("x-forwarded-for", "10.1.2.3")];
    assert_counts(&limited_by(&format!("{{ {inside} }}")).await, "/", &caller, "/").await;
}

#[tokio::test]
async fn addresses_are_limited_one_by_one_and_by_network() {
    let front = limited_by("{ remote_address: {} }").await;
    for address in ["203.0.113.1", "203.0.113.2", "2001:db8::1"] {
        let http_request = front.get("/").header("x-forwarded-for", address);
        assert_eq!(http_request.statuses(2).await, [OK, TOO_MANY], "{address}");
    }
    let front = limited_by("{ masked_remote_address: { v4_prefix_mask_len: 24 } }").await;
    let from = |address: &str| front.get("/").header("x-forwarded-for", address);
    assert_eq!(from("203.0.113.1").statuses(1).await, [OK]);
    assert_eq!(from("203.0.113.2").statuses(1).await, [TOO_MANY]);
    assert_eq!(from("203.0.114.2").statuses(1).await, [OK]);
}

#[tokio::test]
async fn constants_clusters_and_metadata_are_limited() {
    let front = limited_by("{ generic_key: { descriptor_value: everyone } }").await;
    assert_eq!(front.get("/").statuses(2).await, [OK, TOO_MANY]);
    // An Envoy without a cluster of its own sends an empty value.
    let front = limited_by("{ destination_cluster: {} }, { source_cluster: {} }").await;
    assert_eq!(front.get("/").statuses(2).await, [OK, TOO_MANY]);
    let plan = "{ metadata: { descriptor_key: plan, source: ROUTE_ENTRY, \
                metadata_key: { key: own, path: [{ key: plan }] } } }";
    let host = format!("{{ rate_limits: [{{ actions: [{plan}] }}] }}");
    let gold =
        "{ match: { prefix: /gold }, metadata: { filter_metadata: { own: { plan: gold } } } }";
    let front = Front::start(EDGE, |config| config.host(&host).route(gold)).await;
    assert_eq!(front.get("/gold").statuses(2).await, [OK, TOO_MANY]);
    assert_eq!(front.get("/").statuses(2).await, [OK, OK]);
}

#[tokio::test]
async fn any_text_of_a_header_has_its_own_counter() {
    let front = Front::start(EDGE, |config| config.host(&apart(&["user"]))).await;
    let long = "x".repeat(4_096);
    let longer = format!("{}y", "x".repeat(4_095));
    let values = ["", "a", "A", "a b", "a,b", "{a}", "}", "%00", "a:b", "*", "\u{fc}\u{1f6a6}"];
    for value in values.into_iter().chain([long.as_str(), longer.as_str()]) {
        let http_request = front.get("/").header("x-user", value);
        assert_eq!(http_request.statuses(2).await, [OK, TOO_MANY], "{value}");
    }
    // Of a repeated header Envoy sends the first value.
    let twice = front.get("/").header("x-user", "first").header("x-user", "second");
    assert_eq!(twice.statuses(2).await, [OK, TOO_MANY]);
    assert_eq!(front.get("/").header("x-user", "first").send().await.status, TOO_MANY);
}

#[tokio::test]
async fn an_invalid_request_is_undecided_and_the_next_is_decided() {
    let many = vec!["user"; 300];
    let wide = format!("{{ match: {{ prefix: /wide }}, route: {} }}", apart(&many));
    let configure = |config: Config| config.host(&apart(&["user"])).route(&wide);
    let front = Front::start(EDGE, configure).await;
    let cases = [
        front.get("/").header("x-user", "x".repeat(4_097)),
        front.get("/").header("x-user", b"\xff\xfe"),
        front.get("/wide").header("x-user", "a"),
    ];
    for (at, http_request) in cases.into_iter().enumerate() {
        assert_eq!(http_request.send().await.status, 500, "{at}");
        let next = front.get("/").header("x-user", at.to_string());
        assert_eq!(next.statuses(2).await, [OK, TOO_MANY]);
    }
    assert_eq!(front.envoy.stat("cluster.echo.ratelimit.error").await, 3);
}
