//! Where counters live.
//!
//! A [`Store`] decides the counter requests of one request at once: it checks every limit, then takes
//! from all or from none. The memory store and the Redis store are the two of them. The layers in
//! [`resilient`] keep any store answering; [`AnyStore`] is what a service holds.

mod backend;
mod context;
pub mod deny_cache;
pub mod fallback;
pub mod memory;
pub mod outage;
pub mod redis;
pub mod resilient;

use std::sync::Arc;
use std::time::Duration;

use crate::decide::CounterRequest;
use crate::decision::Decision;
use crate::on_store_failure::OnStoreFailure;
use crate::store_error::StoreError;
pub use backend::Store;
pub use context::DecideContext;
use memory::MemoryStore;
use redis::RedisStore;
use resilient::Resilient;

/// The store of a service.
#[derive(Debug)]
pub enum AnyStore {
    /// In this process.
    Memory(Arc<MemoryStore>),
    /// In Redis, which replicas share, with layers that keep answering while it does not.
    Redis(Box<Resilient<RedisStore>>),
    /// In Redis and nowhere else: a replay must not invent decisions.
    Replay(Box<RedisStore>),
}

impl AnyStore {
    /// Decides over `counters`; by `policy` if the store cannot.
    ///
    /// # Errors
    /// The store could not decide; see [`StoreError`] for whether hits may have been taken.
    pub async fn transact(
        &self,
        counters: Vec<CounterRequest>,
        policy: OnStoreFailure,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.transact(&counters, context.at_ms)),
            Self::Redis(redis) => redis.transact(counters, policy, context).await,
            Self::Replay(redis) => redis.transact(Arc::new(counters), context).await,
        }
    }

    /// The counters in this process: all of them, or those of the fallback.
    pub fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Self::Memory(memory) => Some(memory),
            Self::Redis(redis) => Some(redis.fallback_memory()),
            Self::Replay(_) => None,
        }
    }

    /// Waits until the store is connected, if it needs a connection.
    ///
    /// # Errors
    /// It was not connected within `deadline`.
    pub async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        match self.redis() {
            Some(redis) => redis.connected(deadline).await,
            None => Ok(()),
        }
    }

    /// The current outage, for people.
    pub fn outage(&self) -> Option<String> {
        self.redis().and_then(RedisStore::outage)
    }

    /// A problem in the configuration of the store, for people.
    pub async fn warning(&self) -> Option<String> {
        match self.redis() {
            Some(redis) => redis.warning().await,
            None => None,
        }
    }

    /// Reconciles the store with what was decided without it, for at most `within`. Must be run to its
    /// end.
    pub async fn reconcile(&self, within: Duration) {
        if let Self::Redis(redis) = self {
            redis.reconcile(within).await;
        }
    }

    /// Reconciles for the last time.
    pub async fn flush(&self) {
        if let Self::Redis(redis) = self {
            redis.flush().await;
        }
    }

    /// Whether the store would decide now.
    ///
    /// # Errors
    /// Why it would not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        match self.redis() {
            Some(redis) => redis.ready().await,
            None => Ok(()),
        }
    }

    fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.inner()),
            Self::Replay(redis) => Some(redis),
        }
    }
}
