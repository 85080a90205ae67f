//! Where counters live. A store decides a request's asks at once: it tests every limit, then
//! takes from all or from none.

mod context;
pub mod fallback;
pub mod memory;
pub mod redis;

use std::sync::Arc;
use std::time::Duration;

use crate::decide::CounterRequest;
use crate::decision::Decision;
use crate::on_store_failure::OnStoreFailure;
use crate::store_error::StoreError;
pub use context::DecideContext;
use memory::MemoryStore;
use redis::RedisStore;

/// The stores that there are.
#[derive(Debug)]
pub enum Store {
    /// In this process.
    Memory(Arc<MemoryStore>),
    /// In a Redis server that replicas share.
    Redis(Box<RedisStore>),
}

impl Store {
    /// Decides over `counters`; by `policy` while the store cannot.
    ///
    /// # Errors
    /// The store could not decide; see [`StoreError`] for whether hits may have been taken.
    pub async fn decide(
        &self,
        counters: Vec<CounterRequest>,
        policy: OnStoreFailure,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.decide(&counters, context.at_ms)),
            Self::Redis(redis) => redis.decide(counters, policy, context).await,
        }
    }

    /// The counters in this process: all, or those of the fallback.
    pub fn memory(&self) -> &MemoryStore {
        match self {
            Self::Memory(memory) => memory,
            Self::Redis(redis) => redis.fallback_memory(),
        }
    }

    /// Waits until there is a connection to the store, where it needs one.
    ///
    /// # Errors
    /// There was none within `deadline`.
    pub async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.connected(deadline).await,
        }
    }

    /// What is wrong with how the store is set up, for people.
    pub async fn warning(&self) -> Option<String> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => redis.warning().await,
        }
    }

    /// Charges the store what was admitted without it, where it decides, for so long. To be run to its
    /// end: what is under way when it is not is lost.
    pub async fn charge(&self, within: Duration) {
        if let Self::Redis(redis) = self {
            redis.charge(within).await;
        }
    }

    /// Charges the store what was admitted without it, for the last time.
    pub async fn settle(&self) {
        if let Self::Redis(redis) = self {
            redis.settle().await;
        }
    }

    /// Whether the store would decide now.
    ///
    /// # Errors
    /// Why it would not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.ready().await,
        }
    }
}
