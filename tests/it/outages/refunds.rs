//! Hits that are given back while Redis does not respond.

use super::*;
use crate::support::proxy::{Mode, Proxy};

const ALGORITHMS: [&str; 5] = [
    "fixed_window",
    "sliding_window_log",
    "sliding_window_counter",
    "token_bucket",
    "leaky_bucket",
];

/// A rule per algorithm, named like it, with a period in which nothing expires or drains.
fn limits() -> String {
    let rule = |algorithm: &str| {
        format!(
            "{{key: {algorithm}, rate_limit: \
             {{limit: 20, period: 36500d, algorithm: {algorithm}}}}}"
        )
    };
    let rules = ALGORITHMS.map(rule).join(", ");
    format!(
        "{{domain: edge, descriptors: [{{key: user, rate_limit: {{limit: 6, period: 1h}}}}, {rules}]}}"
    )
}

/// Takes or gives back hits of every algorithm's counter, and expects success.
async fn move_each(caller: &Caller, hits: u64, gives_back: bool) {
    for algorithm in ALGORITHMS {
        let moved = request("edge").about(algorithm, "a").taking(hits);
        if gives_back {
            caller.refund(&moved).await.unwrap();
        } else {
            assert!(caller.allows(&moved).await, "{algorithm}");
        }
    }
}

async fn assert_given_back(more: &[&str]) {
    let redis = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(redis.addr());
    let url = proxy.url();
    let args = [&["--store", &url, "--store-timeout", "5s"], more].concat();
    let served = Served::with(&[&limits()], &args);
    let caller = served.caller().await;
    until_the_store_decides(&caller).await;
    move_each(&caller, 10, false).await;
    proxy.set(Mode::Refuse);
    until("nothing is sent", async || {
        check(&caller, "witness").await.1 == FALLBACK && store_errors(&served, "unavailable") > 0
    })
    .await;
    move_each(&caller, 3, false).await;
    move_each(&caller, 7, true).await;
    proxy.set(Mode::Pass);
    until_the_store_decides(&caller).await;
    // Of ten hits six remain: three more were taken, and seven given back.
    for algorithm in ALGORITHMS {
        let asks = request("edge").about(algorithm, "a");
        until(algorithm, async || caller.remaining(&asks).await == 20 - 6).await;
    }
    let moved = |what: &str| metric(&served, &format!("rate_limit_fallback_{what}_total"));
    until("it is counted", async || moved("refunded") == 4 * ALGORITHMS.len() as u64).await;
    assert_eq!(moved("lost"), 0);
}

#[tokio::test]
async fn hits_that_are_given_back_during_an_outage_are_given_back_to_redis() {
    assert_given_back(&[]).await;
}

#[tokio::test]
async fn one_of_two_replicas_forwards_refunds_to_redis() {
    assert_given_back(&["--replicas", "2"]).await;
}

#[tokio::test]
async fn hits_of_counters_that_count_rejected_ones_are_given_back_too() {
    assert_given_back(&["--count-rejected"]).await;
}
