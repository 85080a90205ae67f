//! Stores on a test's own server. The conformance suite builds stores only here.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::SystemClock;
use tidegate::decide::CounterRequest;
use tidegate::decision::Decision;
use tidegate::metrics::Metrics;
use tidegate::on_store_failure::OnStoreFailure;
use tidegate::store::AnyStore;
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

/// Decides concurrent requests in this context; the results are in the order of the requests.
pub async fn decide_at_once_on(
    store: &Arc<Layered>,
    requests: impl IntoIterator<Item = Vec<CounterRequest>>,
    context: &DecideContext,
) -> Vec<Result<Decision, StoreError>> {
    let counter_request = |counter_requests| {
        let (store, context) = (Arc::clone(store), context.clone());
        tokio::spawn(async move {
            store.transact(counter_requests, OnStoreFailure::Error, context).await
        })
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
        .transact(counter_requests.to_vec(), OnStoreFailure::Error, DecideContext::now())
        .await
        .unwrap()
}

/// A store under the conformance suite.
pub struct Subject {
    store: Arc<AnyStore>,
    policy: OnStoreFailure,
    /// Whether it decides at the moments of a replay rather than by its own clock.
    pub replays: bool,
    /// Whether counters of one request may be in several slots.
    pub spreads: bool,
}

impl Subject {
    /// The store in this process.
    pub fn memory() -> Self {
        let memory = MemoryStore::new(10_000, Arc::new(SystemClock));
        Self::of(AnyStore::Memory(Arc::new(memory)))
    }

    /// The store at a URL.
    pub async fn at(url: &str) -> Self {
        Self::of(AnyStore::Redis(Box::new(store_at(url, &shared(0)).await)))
    }

    /// The store at a URL with a deny cache and a fallback, as `serve` uses it. The deny cache
    /// decides nothing in a replay.
    pub async fn layered(url: &str) -> Self {
        let store = AnyStore::Redis(Box::new(store_at(url, &shared(10_000)).await));
        Self { policy: OnStoreFailure::Local, replays: false, ..Self::of(store) }
    }

    fn of(store: AnyStore) -> Self {
        let (store, policy) = (Arc::new(store), OnStoreFailure::Error);
        Self { store, policy, replays: true, spreads: false }
    }

    /// The same store, for requests with counters in several slots.
    pub fn spreading(self) -> Self {
        Self { spreads: true, ..self }
    }

    /// The same store, deciding by its own clock.
    pub fn on_its_own_clock(self) -> Self {
        Self { replays: false, ..self }
    }

    /// Decides now, or at a moment of a replay.
    pub async fn decide(&self, request: Vec<CounterRequest>, at_ms: Option<u64>) -> Decision {
        self.store.transact(request, self.policy, self.context(at_ms)).await.unwrap()
    }

    /// Decides concurrent requests; the decisions are in the order of the requests.
    pub async fn decide_at_once(
        &self,
        requests: impl IntoIterator<Item = Vec<CounterRequest>>,
        at_ms: Option<u64>,
    ) -> Vec<Decision> {
        let decide = |request| {
            let (store, policy) = (Arc::clone(&self.store), self.policy);
            let context = self.context(at_ms);
            tokio::spawn(async move { store.transact(request, policy, context).await })
        };
        let pending: Vec<_> = requests.into_iter().map(decide).collect();
        let mut decisions = Vec::new();
        for request in pending {
            decisions.push(request.await.unwrap().unwrap());
        }
        decisions
    }

    fn context(&self, at_ms: Option<u64>) -> DecideContext {
        let context = at_ms.map_or_else(DecideContext::now, DecideContext::at);
        context.spreading(self.spreads)
    }
}
