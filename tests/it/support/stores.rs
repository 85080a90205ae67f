//! A store on a server of a test's own.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::SystemClock;
use tidegate::decide::CounterRequest;
use tidegate::decision::Decision;
use tidegate::metrics::Metrics;
use tidegate::rules::OnStoreFailure;
use tidegate::store::fallback::Fallback;
use tidegate::store::memory::MemoryStore;
use tidegate::store::redis::access::Access;
use tidegate::store::redis::credentials::Credentials;
use tidegate::store::redis::deny::Bounds;
use tidegate::store::redis::tls::TlsFiles;
use tidegate::store::redis::{Options, RedisStore, Shared};
use tidegate::store::{DecideContext, StoreError};

use super::servers::RedisServer;

/// For a connection, and for one command on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A store that asks the server every time.
pub async fn store_on(server: &RedisServer) -> RedisStore {
    store_that_denies(server, &shared(0)).await
}

/// What stores share whose deny cache has room for `keys_max`.
pub fn shared(keys_max: usize) -> Arc<Shared> {
    let deny = Bounds { keys_max, ttl: Duration::from_secs(3_600) };
    let memory = MemoryStore::new(1_000, Arc::new(SystemClock));
    let fallback = Fallback::new(Arc::new(memory), 1);
    Arc::new(Shared::new(deny, fallback, Metrics::new(0).unwrap()))
}

/// A store that shares a deny cache with others.
pub async fn store_that_denies(server: &RedisServer, shared: &Arc<Shared>) -> RedisStore {
    store_at(&server.url(), shared).await
}

/// A store at a URL, connected.
pub async fn store_at(url: &str, shared: &Arc<Shared>) -> RedisStore {
    store_within(DEADLINE, url, shared).await
}

/// A store at a URL, connected, with so long for a decision.
pub async fn store_within(timeout: Duration, url: &str, shared: &Arc<Shared>) -> RedisStore {
    let address = url.parse().unwrap();
    let access = Access::new(address, &Credentials::default(), &TlsFiles::default()).unwrap();
    let options = Options { access, timeout, batch_max: 64 };
    let store = RedisStore::connect(&options, Arc::clone(shared)).unwrap();
    store.connected(DEADLINE).await.unwrap();
    store
}

/// Decides requests that come at once; the results are in the requests' order.
pub async fn decide_at_once(
    store: &Arc<RedisStore>,
    requests: impl IntoIterator<Item = Vec<CounterRequest>>,
) -> Vec<Result<Decision, StoreError>> {
    decide_at_once_on(store, requests, &DecideContext::now()).await
}

/// The same on an occasion.
pub async fn decide_at_once_on(
    store: &Arc<RedisStore>,
    requests: impl IntoIterator<Item = Vec<CounterRequest>>,
    context: &DecideContext,
) -> Vec<Result<Decision, StoreError>> {
    let ask = |asks| {
        let (store, context) = (Arc::clone(store), context.clone());
        tokio::spawn(async move { store.transact(asks, OnStoreFailure::Error, context).await })
    };
    let asked: Vec<_> = requests.into_iter().map(ask).collect();
    let mut decisions = Vec::new();
    for request in asked {
        decisions.push(request.await.unwrap());
    }
    decisions
}

/// The store's decision, which there is.
pub async fn decide(store: &RedisStore, asks: &[CounterRequest]) -> Decision {
    store.transact(asks.to_vec(), OnStoreFailure::Error, DecideContext::now()).await.unwrap()
}
