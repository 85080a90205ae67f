//! Stores on a test's own server.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::SystemClock;
use tidegate::decide::CounterRequest;
use tidegate::decision::Decision;
use tidegate::metrics::Metrics;
use tidegate::on_store_failure::OnStoreFailure;
use tidegate::store::DecideContext;
use tidegate::store::deny_cache::Bounds;
use tidegate::store::fallback::Fallback;
use tidegate::store::memory::MemoryStore;
use tidegate::store::redis::access::Access;
use tidegate::store::redis::credentials::Credentials;
use tidegate::store::redis::tls::TlsFiles;
use tidegate::store::redis::{Options, RedisStore, Shared};
use tidegate::store::resilient::{Resilience, Resilient};
use tidegate::store_error::StoreError;

use super::servers::RedisServer;

/// The store in Redis with its layers, as `serve` uses it.
pub type Layered = Resilient<RedisStore>;

/// The timeout of a connection, and of one command on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A store without a deny cache.
pub async fn store_on(server: &RedisServer) -> Layered {
    store_that_denies(server, &shared(0)).await
}

/// The state that stores share, with a deny cache of `keys_max` keys.
pub fn shared(keys_max: usize) -> Arc<Resilience> {
    let deny = Bounds { keys_max, ttl: Duration::from_secs(3_600) };
    let memory = MemoryStore::new(1_000, Arc::new(SystemClock));
    let fallback = Fallback::new(Arc::new(memory), 1);
    let metrics = Metrics::new(0, &StoreError::KINDS).unwrap();
    Arc::new(Resilience::new(deny, fallback, metrics))
}

/// A store that shares a deny cache with others.
pub async fn store_that_denies(server: &RedisServer, shared: &Arc<Resilience>) -> Layered {
    store_at(&server.url(), shared).await
}

/// A connected store for a URL.
pub async fn store_at(url: &str, shared: &Arc<Resilience>) -> Layered {
    store_within(DEADLINE, url, shared).await
}

/// A connected store for a URL, with this timeout per decision.
pub async fn store_within(timeout: Duration, url: &str, shared: &Arc<Resilience>) -> Layered {
    let address = url.parse().unwrap();
    let access = Access::new(address, &Credentials::default(), &TlsFiles::default()).unwrap();
    let options = Options { access, timeout, batch_max: 64 };
    let metrics = Metrics::new(0, &StoreError::KINDS).unwrap();
    let store = RedisStore::connect(&options, Arc::new(Shared::new(metrics))).unwrap();
    store.connected(DEADLINE).await.unwrap();
    Resilient::new(store, Arc::clone(shared))
}

/// Decides concurrent requests; the results are in the order of the requests.
pub async fn decide_at_once(
    store: &Arc<Layered>,
    requests: impl IntoIterator<Item = Vec<CounterRequest>>,
) -> Vec<Result<Decision, StoreError>> {
    decide_at_once_on(store, requests, &DecideContext::now()).await
}

/// The same in this context.
pub async fn decide_at_once_on(
    store: &Arc<Layered>,
    requests: impl IntoIterator<Item = Vec<CounterRequest>>,
    context: &DecideContext,
) -> Vec<Result<Decision, StoreError>> {
    let counter_request = |counter_requests| {
        let (store, context) = (Arc::clone(store), context.clone());
        tokio::spawn(
            async move { store.decide(counter_requests, OnStoreFailure::Error, context).await },
        )
    };
    let pending: Vec<_> = requests.into_iter().map(counter_request).collect();
    let mut decisions = Vec::new();
    for request in pending {
        decisions.push(request.await.unwrap());
    }
    decisions
}

/// The store's decision, which must succeed.
pub async fn decide(store: &Layered, counter_requests: &[CounterRequest]) -> Decision {
    store
        .decide(counter_requests.to_vec(), OnStoreFailure::Error, DecideContext::now())
        .await
        .unwrap()
}
