//! The deny cache with a real server: the commands it saves, and that it never rejects a request
//! that Redis would admit.

use tidegate::decision::{Decision, Source};
use tidegate::limit::Algorithm;
use tidegate::on_store_failure::OnStoreFailure;
use tidegate::store::DecideContext;

use crate::counters::{limit, refund, take};
use crate::support::client::{Served, request};
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::{Layered, shared, store_that_denies};

const HOUR_MS: u64 = 3_600_000;
const KEYS_MAX: usize = 1_000;

async fn take_hits(store: &Layered, name: &str, hits: u64) -> Decision {
    let hourly = limit(Algorithm::SlidingWindowLog, hits, HOUR_MS);
    store
        .transact(vec![take(name, &hourly)], OnStoreFailure::Error, DecideContext::now())
        .await
        .unwrap()
}

#[tokio::test]
async fn requests_over_the_limit_cost_redis_nothing() {
    let server = RedisServer::start(Version::Redis70);
    let store = store_that_denies(&server, &shared(KEYS_MAX)).await;
    assert!(take_hits(&store, "user", 1).await.allowed);
    let rejected = take_hits(&store, "user", 1).await;
    assert_eq!((rejected.allowed, rejected.source), (false, Source::Store));
    let runs = server.evalsha_calls();
    for _ in 0..1_000 {
        let denied = take_hits(&store, "user", 1).await;
        assert_eq!((denied.allowed, denied.source), (false, Source::DenyCache));
        let [status] = denied.statuses[..] else { panic!("{denied:?}") };
        assert!((HOUR_MS - 60_000..=HOUR_MS).contains(&status.retry_after_ms.unwrap()));
    }
    assert_eq!(server.evalsha_calls(), runs);
    assert!(take_hits(&store, "another user", 1).await.allowed);
}

#[tokio::test]
async fn a_refund_on_another_thread_applies_at_once() {
    let server = RedisServer::start(Version::Redis70);
    let shared = shared(KEYS_MAX);
    let store = store_that_denies(&server, &shared).await;
    let other = store_that_denies(&server, &shared).await;
    let hourly = limit(Algorithm::SlidingWindowLog, 1, HOUR_MS);
    for _ in 0..50 {
        assert!(take_hits(&store, "user", 1).await.allowed);
        assert!(!take_hits(&store, "user", 1).await.allowed);
        assert_eq!(take_hits(&other, "user", 1).await.source, Source::DenyCache);
        other
            .transact(vec![refund("user", &hourly, 1)], OnStoreFailure::Error, DecideContext::now())
            .await
            .unwrap();
        assert!(take_hits(&store, "user", 1).await.allowed);
        other
            .transact(vec![refund("user", &hourly, 1)], OnStoreFailure::Error, DecideContext::now())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_larger_limit_on_the_same_counter_is_not_denied() {
    let server = RedisServer::start(Version::Redis70);
    let store = store_that_denies(&server, &shared(KEYS_MAX)).await;
    assert!(take_hits(&store, "user", 1).await.allowed);
    assert!(!take_hits(&store, "user", 1).await.allowed);
    assert!(take_hits(&store, "user", 2).await.allowed);
    assert!(!take_hits(&store, "user", 2).await.allowed);
}

/// Redis's own clock in milliseconds.
fn redis_ms(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]).into_array();
    let number = |at: usize| -> u64 {
        let text = String::from_utf8(time[at].clone().into_bytes()).unwrap();
        text.parse().unwrap()
    };
    number(0) * 1_000 + number(1) / 1_000
}

/// Sends requests in a tight loop: whatever Redis would admit by its own clock is never denied
/// here.
#[tokio::test]
async fn a_denial_never_outlasts_the_wait() {
    let server = RedisServer::start(Version::Redis70);
    let store = store_that_denies(&server, &shared(KEYS_MAX)).await;
    let (mut denied, mut admitted) = (0, 0);
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        let brief = limit(algorithm, 1, 20);
        // The time of the last rejection by Redis, and the wait that it reported.
        let mut free_from_ms = u64::MAX;
        let mut admissions = 0;
        while admissions < 20 {
            let asked_ms = redis_ms(&server);
            let decision = store
                .transact(vec![take(name, &brief)], OnStoreFailure::Error, DecideContext::now())
                .await
                .unwrap();
            if decision.allowed {
                admissions += 1;
                free_from_ms = u64::MAX;
                continue;
            }
            assert!(asked_ms < free_from_ms, "{name}: denied {decision:?} at {asked_ms}");
            denied += u64::from(decision.source == Source::DenyCache);
            if decision.source == Source::Store {
                let wait_ms = decision.statuses[0].retry_after_ms.unwrap();
                free_from_ms = free_from_ms.min(redis_ms(&server) + wait_ms);
            }
        }
        admitted += admissions;
    }
    assert!(denied > admitted, "{denied} denied, {admitted} admitted");
}

#[tokio::test]
async fn an_answer_names_its_source_and_other_limits_are_unchanged() {
    const LIMITS: &str = "{domain: edge, descriptors: [\
        {key: user, rate_limit: {limit: 1, period: 1h, algorithm: sliding_window_log}}, \
        {key: ip, rate_limit: {limit: 5, period: 1h, algorithm: sliding_window_log}}]}";
    let server = RedisServer::start(Version::Redis70);
    let served = Served::with(&[LIMITS], &["--store", &server.url(), "--store-timeout", "5s"]);
    let caller = served.caller().await;
    let both = request("edge").about("user", "a").about("ip", "b");
    assert!(caller.allows(&both).await);
    for source in ["STORE", "DENY_CACHE", "DENY_CACHE"] {
        let answer = caller.check(&both).await.unwrap();
        assert_eq!(answer.source().as_str_name(), format!("DECISION_SOURCE_{source}"));
        let [user, ip] = &answer.statuses[..] else { panic!("{answer:?}") };
        assert_eq!((user.within_limit, user.remaining()), (false, 0));
        assert_eq!((ip.within_limit, ip.remaining()), (true, 4));
        assert!(answer.retry_after.is_some() && answer.retry_after == user.retry_after);
    }
    // A read queries the store.
    let quota = caller.quota(&both).await.unwrap();
    assert_eq!(quota.source().as_str_name(), "DECISION_SOURCE_STORE");
    assert_eq!(quota.statuses[1].remaining(), 4);
    let metrics = served.page("/metrics").body;
    let line = "rate_limit_decision_total{domain=\"edge\",decision=\"rejected\",\
                source=\"deny_cache\"} 2";
    assert!(metrics.contains(line), "{metrics}");
}

#[tokio::test]
async fn on_one_server_a_denial_is_kept_though_the_domain_has_slot_by() {
    const LIMITS: &str = "{domain: edge, slot_by: [tenant], descriptors: [\
        {key: tenant, rate_limit: {limit: 1, period: 1h, algorithm: sliding_window_log}}]}";
    let server = RedisServer::start(Version::Redis70);
    let args = ["--store", &server.url(), "--store-timeout", "5s", "--deny-cache-ttl", "1m"];
    let served = Served::with(&[LIMITS], &args);
    let caller = served.caller().await;
    let tenant = request("edge").about("tenant", "a");
    assert!(caller.allows(&tenant).await);
    assert!(!caller.allows(&tenant).await);
    let runs = server.evalsha_calls();
    for _ in 0..100 {
        let denied = caller.check(&tenant).await.unwrap();
        assert_eq!(denied.source().as_str_name(), "DECISION_SOURCE_DENY_CACHE");
    }
    assert_eq!(server.evalsha_calls(), runs);
}
