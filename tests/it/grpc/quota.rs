//! The decision of GetQuota is the one that CheckRateLimit would return, from any source.

use tidegate::proto::tidegate::v1::{Decision, DecisionSource};

use crate::support::client::{Request, Served, request};
use crate::support::servers::{RedisServer, Version, free_port};

const EDGE: &str = "
domain: edge
slot_by: [model, user]
descriptors:
  - key: model
    quota_mode: true
    rate_limit: { limit: 2, period: 36500d }
  - key: user
    rate_limit: { limit: 1, period: 36500d }
  - key: pair
    rate_limit: { limit: 3, period: 36500d }
  - key: watched
    shadow_mode: true
    rate_limit: { limit: 1, period: 36500d }
  - key: tokens
    rate_limit: { limit: 2, period: 36500d, overdraft: true }
";

fn model(name: &str) -> Request {
    request("edge").about("model", name)
}

fn hits(count: u64) -> Request {
    request("edge").about("pair", "a").taking(count)
}

/// In this order, each is read by GetQuota, and then sent as a check.
fn calls() -> Vec<(Request, Decision)> {
    let (yes, no) = (Decision::Allowed, Decision::Rejected);
    let both = || model("a").about("model", "b");
    let tokens = || request("edge").about("tokens", "a");
    vec![
        (model("a"), yes),
        (model("a"), yes),
        (model("a"), no),
        (both(), yes),
        (both(), yes),
        (both(), no),
        (request("edge").about("user", "a"), yes),
        (request("edge").about("user", "a"), no),
        (request("edge").about("user", "a").about("user", "b"), no),
        (request("edge").about("watched", "a"), yes),
        (request("edge").about("watched", "a"), yes),
        (tokens().taking(9), yes),
        (tokens(), no),
        (hits(4), no),
        (hits(2).about("pair", "a").taking(2), no),
        (hits(2), yes),
        (hits(2), no),
        (hits(0), yes),
        (hits(1).about("user", "c"), yes),
        (hits(0), no),
        (request("edge").about("nothing", "a"), yes),
        (request("nowhere").about("user", "a"), yes),
    ]
}

#[tokio::test]
async fn the_quota_has_the_decision_of_the_check_that_follows() {
    let servers = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let [first, second] = [servers[0].url(), servers[1].url()];
    for store in ["memory", &first, &format!("{second},{first}")] {
        for server in &servers {
            server.command(&["FLUSHALL"]);
        }
        let served = Served::with(&[EDGE], &["--store", store, "--store-timeout", "10s"]);
        let caller = served.caller().await;
        for (at, (call, expected)) in calls().iter().enumerate() {
            let quota = caller.quota(call).await.expect("a quota");
            assert_eq!(quota.decision(), *expected, "{store}, call {at}: {quota:?}");
            let check = caller.check(call).await.expect("a decision");
            assert_eq!(check.decision(), *expected, "{store}, call {at}: {check:?}");
        }
    }
}

#[tokio::test]
async fn while_the_store_does_not_respond_the_quota_has_the_decision_of_the_policy() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    for (policy, expected) in
        [("allow", Decision::Allowed), ("deny", Decision::Rejected), ("local", Decision::Allowed)]
    {
        let args = ["--store", &nobody, "--on-store-failure", policy];
        let served = Served::with(&[EDGE], &args);
        let quota = served.caller().await.quota(&model("a")).await.expect("a quota");
        assert_eq!(quota.decision(), expected, "{policy}");
        assert_eq!(quota.source(), DecisionSource::Fallback, "{policy}");
    }
}
