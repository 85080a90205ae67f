//! Tests of reconciling hits that were admitted without Redis, and of refunds over several servers,
//! which must have the same results as in memory.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::SystemClock;
use tidegate::decide::{CounterRequest, Mode};
use tidegate::decision::Status;
use tidegate::limit::{Algorithm, LimitSpec};
use tidegate::metrics::Metrics;
use tidegate::on_store_failure::OnStoreFailure;
use tidegate::store::DecideContext;
use tidegate::store::deny_cache::Bounds;
use tidegate::store::fallback::Fallback;
use tidegate::store::memory::MemoryStore;
use tidegate::store::resilient::Resilience;
use tidegate::store_error::StoreError;
use tokio::time::timeout;

use crate::counters::{checked, in_quota_group, key_in, limit, take};
use crate::support::process::eventually;
use crate::support::proxy::{Mode as Network, Proxy};
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::{Layered, shared, store_at, store_within};

const HOUR_MS: u64 = 3_600_000;

/// A store with this timeout per decision and `pending` hits to reconcile.
async fn store(url: &str, timeout: Duration, pending: usize) -> (Layered, Metrics) {
    let memory = MemoryStore::new(1_000_000, Arc::new(SystemClock));
    let fallback = Fallback::new(Arc::new(memory), 1);
    for user in 0..pending {
        let request =
            take(&format!("user {user}"), &limit(Algorithm::FixedWindow, 10, 1_000 * HOUR_MS));
        let down = StoreError::Unavailable("down".into());
        assert!(fallback.fall_back(&[request], OnStoreFailure::Local, down).unwrap().allowed);
    }
    let metrics = Metrics::new(0, &StoreError::KINDS).unwrap();
    let deny = Bounds { keys_max: 0, ttl: Duration::from_secs(1) };
    let shared = Arc::new(Resilience::new(deny, fallback, metrics.clone()));
    let store = store_within(timeout, url, &shared).await;
    (store, metrics)
}

/// The numbers of reconciled and of lost hits.
fn charged(metrics: &Metrics) -> (u64, u64) {
    let text = metrics.render();
    let value = |what: &str| {
        let name = format!("rate_limit_fallback_{what}_total ");
        text.lines().find_map(|line| line.strip_prefix(&*name)?.parse().ok()).unwrap()
    };
    (value("charged"), value("lost"))
}

#[tokio::test]
async fn any_number_of_hits_is_reconciled_in_time() {
    let redis = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(redis.addr());
    let (store, metrics) = store(&proxy.url(), Duration::from_secs(2), 640).await;
    store.ready().await.unwrap();
    // Sent all at once, two runs of 64 at a time, they would take 5 * 0.6 s: over the timeout.
    proxy.set(Network::DelayReplies(Duration::from_millis(600)));
    store.reconcile(Duration::from_secs(60)).await;
    assert_eq!(charged(&metrics), (640, 0));
    assert_eq!(redis.keys().iter().filter(|key| key.starts_with(b"tg:{test}")).count(), 640);
}

#[tokio::test]
async fn unsent_hits_are_reconciled_when_redis_is_back() {
    let mut redis = RedisServer::start(Version::Redis70);
    let (store, metrics) = store(&redis.url(), Duration::from_secs(10), 200).await;
    redis.stop();
    let is_down = async || store.ready().await.is_err().then_some(());
    eventually(Duration::from_secs(60), is_down).await.expect("the outage is noticed");
    store.reconcile(Duration::from_secs(60)).await;
    assert_eq!(charged(&metrics), (0, 0));
    redis.restart();
    let all = async {
        while charged(&metrics) != (200, 0) {
            assert_eq!(charged(&metrics).1, 0, "nothing is lost");
            // The probe that detects its return must run too.
            tokio::task::yield_now().await;
            let _ = store.ready().await;
            store.reconcile(Duration::from_secs(60)).await;
        }
    };
    timeout(Duration::from_secs(60), all).await.expect("all are charged");
}

/// Compares each of `requests`, sent separately after `before`, in memory and on two servers.
async fn assert_as_in_memory(
    redis: &Layered,
    before: &[CounterRequest],
    requests: Vec<CounterRequest>,
) {
    let memory = MemoryStore::new(1_000, Arc::new(SystemClock));
    let decide = |requests| redis.transact(requests, OnStoreFailure::Error, DecideContext::now());
    for request in before {
        memory.transact(std::slice::from_ref(request), None);
        decide(vec![request.clone()]).await.unwrap();
    }
    let (expected, decided) = (memory.transact(&requests, None), decide(requests).await.unwrap());
    assert_eq!(decided.allowed, expected.allowed);
    for (own, expected) in decided.statuses.iter().zip(&expected.statuses) {
        // The clock advances between the two decisions.
        let wait_s = |status: &Status| status.retry_after_ms.map(|ms| ms.div_ceil(30_000));
        assert_eq!((wait_s(own), own.delay_ms), (wait_s(expected), expected.delay_ms));
        assert_eq!((own.within_limit, own.remaining), (expected.within_limit, expected.remaining));
    }
}

async fn two_servers() -> (Layered, [RedisServer; 2]) {
    let servers = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    (store_at(&urls.join(","), &shared(0)).await, servers)
}

#[tokio::test]
async fn a_quota_has_capacity_after_a_refund() {
    let (redis, _servers) = two_servers().await;
    let one = limit(Algorithm::FixedWindow, 1, 1_000 * HOUR_MS);
    for other in 0..8 {
        let take =
            CounterRequest { key: key_in(&format!("full {other}"), "x", &one), ..take("x", &one) };
        let full = in_quota_group(0, take.clone());
        let key = key_in(&format!("refunded {other}"), "x", &one);
        let refund = CounterRequest { key, mode: Mode::Refund, ..take.clone() };
        let refund = in_quota_group(1, refund);
        assert_as_in_memory(&redis, &[take], vec![full, refund]).await;
    }
}

#[tokio::test]
async fn refunded_debt_delays_no_request() {
    let (redis, _servers) = two_servers().await;
    let strict = limit(Algorithm::SlidingWindowLog, 1, 10 * HOUR_MS);
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let period_ms = 10 * 600_000;
        let spec =
            LimitSpec { algorithm, hits: 10, period_ms, overdraft: true, ..LimitSpec::default() };
        let debt = checked(&spec);
        for other in 0..8 {
            let strict = CounterRequest {
                key: key_in(&format!("strict {other}"), "x", &strict),
                ..take("x", &strict)
            };
            let debt = CounterRequest {
                key: key_in(&format!("debt {other}"), "x", &debt),
                hits: 10,
                ..take("x", &debt)
            };
            let requests = vec![CounterRequest { hits: 500, ..debt.clone() }, strict.clone()];
            redis
                .inner()
                .remove(&[strict.key.as_bytes().to_vec(), debt.key.as_bytes().to_vec()])
                .await
                .unwrap();
            assert_as_in_memory(&redis, &[strict, debt], requests).await;
        }
    }
}
