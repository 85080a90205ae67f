//! Hits of a request, before and after it is served, and limits that requests bring.

use super::{Front, OK, TOO_MANY};
use crate::support::client::request;
use crate::support::envoy::Config;

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { limit: 5, period: 36500d }
  - key: purse
    rate_limit: { limit: 9007199254740991, period: 36500d }
  - key: tokens
    rate_limit: { limit: 100, period: 36500d, overdraft: true }
  - key: strict
    rate_limit: { limit: 100, period: 36500d }
";

/// The capacity of the `purse` limit.
const PURSE: u64 = 9_007_199_254_740_991;

const COSTS: &str = "
rate_limits:
  - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
    hits_addend: { number: 2 }
  - actions: [{ request_headers: { header_name: x-pay, descriptor_key: purse } }]
    hits_addend: { format: '%REQ(x-cost)%' }
  - actions: [{ request_headers: { header_name: x-back, descriptor_key: purse } }]
    hits_addend: { format: '%REQ(x-cost)%', is_negative_hits: true }
";

/// Sets the limit of a request from its headers, as another filter or a token would.
const OWN_LIMIT: &str = "
name: envoy.filters.http.lua
typed_config:
  '@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
  default_source_code:
    inline_string: |
      function envoy_on_request(handle)
        local requests = tonumber(handle:headers():get('x-limit'))
        if requests then
          local limit = { requests_per_unit = requests, unit = handle:headers():get('x-unit') }
          handle:streamInfo():dynamicMetadata():set('plan', 'limit', limit)
        end
      end
";

const BY_PLAN: &str = "
rate_limits:
  - actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }]
    limit: { dynamic_metadata: { metadata_key: { key: plan, path: [{ key: limit }] } } }
";

#[tokio::test]
async fn each_descriptor_takes_its_own_hits() {
    let front = Front::start(EDGE, |config| config.filter(COSTS)).await;
    let http_request =
        front.get("/").header("x-user", "a").header("x-pay", "a").header("x-cost", "30");
    assert_eq!(http_request.statuses(3).await, [OK, OK, TOO_MANY]);
    assert_eq!(front.left(request("edge").about("user", "a")).await, 1);
    assert_eq!(front.left(request("edge").about("purse", "a")).await, PURSE - 60);
}

#[tokio::test]
async fn costs_come_from_headers_and_can_be_given_back() {
    let front = Front::start(EDGE, |config| config.filter(COSTS)).await;
    let spent = async || PURSE - front.left(request("edge").about("purse", "a")).await;
    // Envoy accepts costs up to 1,000,000,000; with any other text it omits the descriptor.
    let cases = [
        ("3", 3),
        ("0", 0),
        ("1000000000", 1_000_000_000),
        ("1000000001", 0),
        ("9007199254740992", 0),
        ("18446744073709551616", 0),
        ("-1", 0),
        ("many", 0),
        ("", 0),
    ];
    let mut all = 0;
    for (cost, taken) in cases {
        let http_request = front.get("/").header("x-pay", "a").header("x-cost", cost);
        assert_eq!(http_request.send().await.status, OK, "{cost:?}");
        all += taken;
        assert_eq!(spent().await, all, "{cost:?}");
    }
    let back = front.get("/").header("x-back", "a").header("x-cost", "1000000000");
    assert_eq!(back.send().await.status, OK);
    assert_eq!(spent().await, 3);
    assert_eq!(back.send().await.status, OK);
    assert_eq!(spent().await, 0, "never more than full");
}

#[tokio::test]
async fn a_limit_from_metadata_replaces_the_configured_one() {
    let reported = "{ enable_x_ratelimit_headers: DRAFT_VERSION_03 }";
    let configure = |config: Config| config.before(OWN_LIMIT).filter(reported).host(BY_PLAN);
    let front = Front::start(EDGE, configure).await;
    let http_request = |limit: &str, unit: &str| {
        front.get("/").header("x-user", "a").header("x-limit", limit).header("x-unit", unit)
    };
    let windows =
        [("SECOND", 1), ("MINUTE", 60), ("HOUR", 3_600), ("DAY", 86_400), ("MONTH", 2_592_000)];
    for (unit, seconds) in windows.into_iter().chain([("YEAR", 31_536_000)]) {
        let answer = http_request("7", unit).send().await;
        let reported = format!("7, 7;w={seconds}");
        assert_eq!(answer.header("x-ratelimit-limit"), Some(reported.as_str()));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("6"), "{unit}: its own counter");
    }
    assert_eq!(
        http_request("2", "YEAR").statuses(3).await,
        [OK, TOO_MANY, TOO_MANY],
        "one counter a unit"
    );
    assert_eq!(http_request("0", "MINUTE").send().await.status, TOO_MANY);
    assert_eq!(
        http_request("4294967295", "HOUR").send().await.number("x-ratelimit-remaining"),
        4_294_967_293
    );
    assert_eq!(front.left(request("edge").about("user", "a")).await, 5, "the configured one rests");
    // Text that Envoy cannot parse is not an override.
    for unit in ["WEEK", "hour", ""] {
        let answer = http_request("7", unit).send().await;
        assert_eq!(answer.header("x-ratelimit-limit"), Some("5, 5;w=3153600000"), "{unit}");
    }
}

#[tokio::test]
async fn a_limit_without_a_unit_is_undecided_and_never_counts_as_allowed() {
    let configure = |config: Config| config.before(OWN_LIMIT).host(BY_PLAN);
    let front = Front::start(EDGE, configure).await;
    let http_request = front.get("/").header("x-user", "a").header("x-limit", "7");
    assert_eq!(http_request.header("x-unit", "UNKNOWN").send().await.status, 500);
    assert_eq!(front.envoy.stat("cluster.echo.ratelimit.error").await, 1);
    assert_eq!(front.get("/").header("x-user", "a").send().await.status, OK);
}

/// Checks with no hits, and pays according to the answer.
fn paying_for(key: &str) -> String {
    format!(
        "
rate_limits:
  - actions: [{{ request_headers: {{ header_name: x-user, descriptor_key: {key} }} }}]
    hits_addend: {{ number: 0 }}
  - actions: [{{ request_headers: {{ header_name: x-user, descriptor_key: {key} }} }}]
    hits_addend: {{ format: '%RESP(x-tokens)%' }}
    apply_on_stream_done: true
"
    )
}

/// Sends requests with these costs; returns their statuses, and the remaining hits.
async fn pay(front: &Front, key: &str, costs: &[&str]) -> (Vec<u16>, u64) {
    let mut statuses = Vec::new();
    let mut calls = front.envoy.stat("cluster.tidegate.upstream_rq_completed").await;
    for cost in costs {
        let http_request = front.get("/").header("x-user", "a").header("answer-x-tokens", cost);
        let status = http_request.send().await.status;
        // A rejected request reports no cost, and Envoy pays nothing then.
        calls += if status == OK { 2 } else { 1 };
        front.envoy.wait_for_stat("cluster.tidegate.upstream_rq_completed", calls).await;
        statuses.push(status);
    }
    (statuses, front.left(request("edge").about(key, "a")).await)
}

#[tokio::test]
async fn an_overdraft_limit_is_paid_when_the_stream_ends() {
    for front in [
        Front::start(EDGE, |config| config.filter(&paying_for("tokens"))).await,
        Front::on_redis(EDGE, |config| config.filter(&paying_for("tokens"))).await,
    ] {
        assert_eq!(pay(&front, "tokens", &["30", "50"]).await, (vec![OK, OK], 20));
        // The third costs more than the remaining hits: served, and paid in full.
        assert_eq!(pay(&front, "tokens", &["60", "1", "1"]).await.0, [OK, TOO_MANY, TOO_MANY]);
        let refund = request("edge").about("tokens", "a").taking(41);
        front.served.caller().await.refund(&refund).await.unwrap();
        assert_eq!(front.left(request("edge").about("tokens", "a")).await, 1, "40 were in debt");
    }
}

#[tokio::test]
async fn without_overdraft_a_cost_above_the_remaining_hits_is_never_paid() {
    let front = Front::start(EDGE, |config| config.filter(&paying_for("strict"))).await;
    let costs = ["80", "30", "30", "30", "30"];
    assert_eq!(pay(&front, "strict", &costs).await, (vec![OK; 5], 20), "200 were used of 100");
}
