//! Stores keep counters and decide requests over them.
//!
//! A [`Store`] decides all counter requests of one request at once: it checks every limit, then
//! takes hits from all counters or from none. There are two stores. [`memory`] keeps counters in
//! this process. [`redis`] keeps them in Redis, where replicas share them, and decides in a Lua
//! script.
//!
//! A store does not handle its own failures: it decides, or returns a [`StoreError`]. [`resilient`]
//! puts layers around a store that keep answering while it fails: the [`deny_cache`] in front of it
//! rejects requests for full limits without asking the store, and the [`fallback`] behind it
//! decides in this process.
//!
//! [`AnyStore`] is the store of a service: one of the two, with or without layers.

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
    /// Counters in this process.
    Memory(Arc<MemoryStore>),
    /// Counters in Redis, which replicas share, with layers that answer while Redis does not.
    Redis(Box<Resilient<RedisStore>>),
    /// Counters in Redis, without layers: in a replay every decision must come from Redis.
    Replay(Box<RedisStore>),
}

impl AnyStore {
    /// Decides over `counters`, or applies `policy` if the store cannot decide.
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

    /// The memory store: the store itself, or the one of the fallback.
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

    /// A warning for the log if the store is configured badly.
    pub async fn warning(&self) -> Option<String> {
        match self.redis() {
            Some(redis) => redis.warning().await,
            None => None,
        }
    }

    /// Reconciles the store with what was decided without it, for at most `within`. The future must
    /// not be dropped before it completes.
    pub async fn reconcile(&self, within: Duration) {
        if let Self::Redis(redis) = self {
            redis.reconcile(within).await;
        }
    }

    /// Reconciles for the last time, when the service ends.
    pub async fn flush(&self) {
        if let Self::Redis(redis) = self {
            redis.flush().await;
        }
    }

    /// Whether the store would decide now.
    ///
    /// # Errors
    /// The reason why it would not.
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
