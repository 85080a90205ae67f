//! Calls that give hits back, on every kind of store.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use tidegate::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};

use tidegate::proto::tidegate::v1::DecisionSource;

use crate::support::client::{Caller, Request, Served, request};
use crate::support::servers::{RedisServer, Version, free_port};

/// Each limit is on a server of its own, or likely to be, if the store has several servers.
const LIMITS: &str = "{domain: edge, slot_by: [user], descriptors: [\
    {key: user, rate_limit: {limit: 5, period: 1h, algorithm: sliding_window_log}}]}";

const STORES: [&str; 3] = ["memory", "one server", "two servers"];

/// A service with users `a`, `c` (2 of 5 left) and `b1` to `b4` (nothing left).
struct Scene {
    caller: Caller,
    // Stopped when dropped.
    _servers: Vec<RedisServer>,
    _served: Served,
}

impl Scene {
    async fn on(store: &str) -> Self {
        let count = STORES.iter().position(|name| *name == store).unwrap();
        let servers: Vec<_> = (0..count).map(|_| RedisServer::start(Version::Redis70)).collect();
        let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
        let url = if count == 0 { store.to_owned() } else { urls.join(",") };
        let served = Served::with(&[LIMITS], &["--store", &url, "--store-timeout", "10s"]);
        let caller = served.caller().await;
        for (name, hits) in [("a", 3), ("c", 3), ("b1", 5), ("b2", 5), ("b3", 5), ("b4", 5)] {
            assert!(caller.allows(&user(name).taking(hits)).await, "{store}");
        }
        Self { caller, _servers: servers, _served: served }
    }

    /// The remaining hits of `names`, in their order.
    async fn left<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let mut left = [0; N];
        for (left, name) in left.iter_mut().zip(names) {
            *left = self.caller.remaining(&user(name)).await;
        }
        left
    }

    async fn codes(&self, request: &Request) -> Vec<Code> {
        let answer = self.caller.should(request).await.unwrap();
        let codes: Vec<_> = answer.statuses.iter().map(DescriptorStatus::code).collect();
        let is_over = codes.contains(&Code::OverLimit);
        assert_eq!(answer.overall_code() == Code::OverLimit, is_over, "{answer:?}");
        codes
    }
}

fn user(name: &str) -> Request {
    request("edge").about("user", name)
}

/// Descriptors of 0 hits on full counters: usually some of them are on another server than `a`.
fn about_full(request: Request) -> Request {
    let all = ["b1", "b2", "b3", "b4"];
    all.into_iter().fold(request, |request, name| request.about("user", name).taking(0))
}

#[tokio::test]
async fn a_full_counter_that_gets_no_hits_back_does_not_reject_the_refund_of_others() {
    for store in STORES {
        let scene = Scene::on(store).await;
        let refund = about_full(user("a").taking(2));
        let answer = scene.caller.refund(&refund).await.unwrap();
        let reported: Vec<_> =
            answer.statuses.iter().map(|own| (own.within_limit, own.remaining())).collect();
        let full = (true, 0);
        assert_eq!(reported, [(true, 4), full, full, full, full], "{store}");
        assert!(answer.statuses.iter().all(|status| status.retry_after.is_none()), "{store}");
        assert_eq!(scene.left(["a", "b1", "b2", "b3", "b4"]).await, [4, 0, 0, 0, 0], "{store}");
    }
}

#[tokio::test]
async fn the_hits_of_a_refund_are_one_unless_given() {
    for store in STORES {
        let scene = Scene::on(store).await;
        let refunds = [
            (user("a"), [3, 0]),
            (user("a").about("user", "b1").each_taking(2), [5, 2]),
            (user("a").about("user", "b1").taking(1).each_taking(0), [5, 3]),
            (user("a").about("user", "b1").each_taking(u64::MAX), [5, 5]),
        ];
        for (refund, left) in refunds {
            scene.caller.refund(&refund).await.unwrap();
            assert_eq!(scene.left(["a", "b1"]).await, left, "{store}: {refund:?}");
        }
    }
}

#[tokio::test]
async fn a_refund_without_a_limit_has_no_status() {
    let scene = Scene::on("memory").await;
    let answer = scene.caller.refund(&request("nowhere").about("user", "a")).await.unwrap();
    assert_eq!(answer.source(), DecisionSource::NoLimit);
    assert_eq!(answer.statuses, []);
}

#[tokio::test]
async fn a_refund_is_not_rejected_while_the_store_does_not_respond() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let args = ["--store", &nobody, "--on-store-failure", "deny"];
    let served = Served::with(&[LIMITS], &args);
    let caller = served.caller().await;
    assert!(!caller.allows(&user("a")).await);
    let answer = caller.refund(&user("a")).await.unwrap();
    assert_eq!(answer.source(), DecisionSource::Fallback);
    assert!(answer.statuses[0].within_limit);
    assert_eq!(caller.should(&user("a").giving_back()).await.unwrap().overall_code(), Code::Ok);
}

#[tokio::test]
async fn an_envoy_call_that_only_gives_back_is_never_rejected() {
    for store in STORES {
        let scene = Scene::on(store).await;
        let asking = about_full(user("a").taking(1).giving_back());
        assert_eq!(scene.codes(&asking).await, [Code::Ok; 5], "{store}: they only ask");
        assert_eq!(scene.left(["a", "b1"]).await, [3, 0], "{store}");
        let negative =
            user("a").taking(1).giving_back().about("user", "b1").taking(0).giving_back();
        assert_eq!(scene.codes(&negative).await, [Code::Ok; 2], "{store}: no negative hits");
        assert_eq!(scene.left(["a", "b1"]).await, [4, 0], "{store}");
    }
}

#[tokio::test]
async fn an_envoy_call_that_also_takes_is_a_decision_in_which_0_hits_test() {
    for store in STORES {
        let scene = Scene::on(store).await;
        let both = || user("a").taking(1).giving_back().about("user", "c").taking(1);
        let codes = scene.codes(&both().about("user", "b1").taking(0)).await;
        assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit], "{store}");
        assert_eq!(scene.left(["a", "c", "b1"]).await, [2, 2, 0], "{store}: nothing moved");
        let codes = scene.codes(&both().about("user", "b1").taking(0).giving_back()).await;
        assert_eq!(codes, [Code::Ok; 3], "{store}: giving nothing back asks nothing");
        assert_eq!(scene.left(["a", "c", "b1"]).await, [3, 1, 0], "{store}");
    }
}

#[tokio::test]
async fn hits_taken_and_given_back_in_one_request_need_no_capacity() {
    for store in STORES {
        let scene = Scene::on(store).await;
        let about = |request: Request| request.about("user", "b1");
        let taking = |request: Request| about(request).taking(2);
        let giving = |request: Request| taking(request).giving_back();
        let asking = |request: Request| about(request).taking(0);
        let empty = || request("edge");
        for (net_zero, descriptors) in [
            (giving(taking(empty())), 2),
            (taking(giving(empty())), 2),
            (taking(giving(asking(empty()))), 3),
            (asking(giving(taking(empty()))), 3),
        ] {
            let codes = scene.codes(&net_zero).await;
            assert_eq!(codes, vec![Code::Ok; descriptors], "{store}: {net_zero:?}");
            assert_eq!(scene.left(["b1"]).await, [0], "{store}: {net_zero:?}");
        }
        assert_eq!(scene.codes(&giving(asking(empty()))).await, [Code::Ok; 2], "{store}");
        assert_eq!(scene.left(["b1"]).await, [2], "{store}");
    }
}
