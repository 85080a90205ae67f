//! What a store on Redis does beside single decisions: charging what was admitted without it, and
//! taking back over several servers, as in memory.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::SystemClock;
use tidegate::decide::{CounterRequest, Mode};
use tidegate::decision::Status;
use tidegate::limit::{Algorithm, LimitSpec};
use tidegate::metrics::Metrics;
use tidegate::rules::OnStoreFailure;
use tidegate::store::fallback::Fallback;
use tidegate::store::memory::MemoryStore;
use tidegate::store::redis::deny::Bounds;
use tidegate::store::redis::{RedisStore, Shared};
use tidegate::store::{DecideContext, StoreError};
use tokio::time::timeout;

use crate::asks::{checked, in_quota_group, key_in, limit, take};
use crate::support::proxy::{Mode as Network, Proxy};
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::{shared, store_at, store_within};

const HOUR_MS: u64 = 3_600_000;

/// A store with this time for a decision, on which so many hits are to be charged.
async fn store(url: &str, within: Duration, noted: usize) -> (RedisStore, Metrics) {
    let memory = MemoryStore::new(1_000_000, Arc::new(SystemClock));
    let fallback = Fallback::new(Arc::new(memory), 1);
    for user in 0..noted {
        let ask =
            take(&format!("user {user}"), &limit(Algorithm::FixedWindow, 10, 1_000 * HOUR_MS));
        let down = StoreError::Unavailable("down".into());
        assert!(fallback.fall_back(&[ask], OnStoreFailure::Local, down).unwrap().allowed);
    }
    let metrics = Metrics::new(0).unwrap();
    let deny = Bounds { keys_max: 0, ttl: Duration::from_secs(1) };
    let shared = Arc::new(Shared::new(deny, fallback, metrics.clone()));
    let store = store_within(within, url, &shared).await;
    (store, metrics)
}

/// Hits that were charged, and that never will be.
fn charged(metrics: &Metrics) -> (u64, u64) {
    let text = metrics.render();
    let value = |what: &str| {
        let name = format!("rate_limit_fallback_{what}_total ");
        text.lines().find_map(|line| line.strip_prefix(&*name)?.parse().ok()).unwrap()
    };
    (value("charged"), value("lost"))
}

#[tokio::test]
async fn however_many_charges_there_are_all_are_in_time() {
    let redis = RedisServer::start(Version::Redis70);
    let proxy = Proxy::before(redis.addr());
    let (store, metrics) = store(&proxy.url(), Duration::from_secs(2), 640).await;
    store.ready().await.unwrap();
    // Two runs of 64 at once, all together, would take 3 seconds.
    proxy.set(Network::DelayReplies(Duration::from_millis(600)));
    store.reconcile(Duration::from_secs(60)).await;
    assert_eq!(charged(&metrics), (640, 0));
    assert_eq!(redis.keys().iter().filter(|key| key.starts_with(b"tg:{test}")).count(), 640);
}

#[tokio::test]
async fn what_was_not_sent_is_charged_when_redis_is_back() {
    let mut redis = RedisServer::start(Version::Redis70);
    let (store, metrics) = store(&redis.url(), Duration::from_secs(10), 200).await;
    redis.stop();
    while store.ready().await.is_ok() {}
    store.reconcile(Duration::from_secs(60)).await;
    assert_eq!(charged(&metrics), (0, 0));
    redis.restart();
    let all = async {
        while charged(&metrics) != (200, 0) {
            assert_eq!(charged(&metrics).1, 0, "nothing is lost");
            // What finds out that it is back is to run too.
            tokio::task::yield_now().await;
            let _ = store.ready().await;
            store.reconcile(Duration::from_secs(60)).await;
        }
    };
    timeout(Duration::from_secs(60), all).await.expect("all are charged");
}

/// What becomes of `asks` after `before`, each by itself, in memory and on two servers.
async fn assert_as_in_memory(
    redis: &RedisStore,
    before: &[CounterRequest],
    asks: Vec<CounterRequest>,
) {
    let memory = MemoryStore::new(1_000, Arc::new(SystemClock));
    let decide = |asks| redis.transact(asks, OnStoreFailure::Error, DecideContext::now());
    for ask in before {
        memory.transact(std::slice::from_ref(ask), None);
        decide(vec![ask.clone()]).await.unwrap();
    }
    let (expected, decided) = (memory.transact(&asks, None), decide(asks).await.unwrap());
    assert_eq!(decided.allowed, expected.allowed);
    for (own, expected) in decided.statuses.iter().zip(&expected.statuses) {
        // The clock goes on between the two.
        let wait_s = |status: &Status| status.retry_after_ms.map(|ms| ms.div_ceil(30_000));
        assert_eq!((wait_s(own), own.delay_ms), (wait_s(expected), expected.delay_ms));
        assert_eq!((own.within_limit, own.remaining), (expected.within_limit, expected.remaining));
    }
}

async fn two_servers() -> (RedisStore, [RedisServer; 2]) {
    let servers = [Version::Redis70, Version::Redis70].map(RedisServer::start);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    (store_at(&urls.join(","), &shared(0)).await, servers)
}

#[tokio::test]
async fn a_quota_that_gives_hits_back_is_one_that_has_room() {
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
async fn debt_that_is_given_back_is_waited_for_by_nobody() {
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
            let asks = vec![CounterRequest { hits: 500, ..debt.clone() }, strict.clone()];
            redis
                .remove(&[strict.key.as_bytes().to_vec(), debt.key.as_bytes().to_vec()])
                .await
                .unwrap();
            assert_as_in_memory(&redis, &[strict, debt], asks).await;
        }
    }
}
