//! The interface of every store.
//!
//! The methods with a default body describe a store that answers in this process: no timeout, no
//! outage, one server. [`MemoryStore`] uses all of them; the Redis store overrides them.

use std::sync::Arc;
use std::time::Duration;

use super::context::DecideContext;
use super::memory::MemoryStore;
use crate::decide::CounterRequest;
use crate::decision::Decision;
use crate::store_error::StoreError;

/// A store: keeps counters and decides requests over them.
pub trait Store: Send + Sync + 'static {
    /// Checks every limit of a request, then takes hits from all counters or from none.
    ///
    /// # Errors
    /// The store could not decide; see [`StoreError`] for whether hits may have been taken.
    fn transact(
        &self,
        counters: Arc<Vec<CounterRequest>>,
        context: DecideContext,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// Whether the store would decide now.
    ///
    /// # Errors
    /// The reason why it would not.
    fn ready(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The timeout of one decision.
    fn timeout(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether a server of the store is known to be down.
    fn has_outage(&self) -> bool {
        false
    }

    /// Whether the counters of one request may be on several servers, each of which decides alone.
    fn is_sharded(&self) -> bool {
        false
    }
}

impl Store for MemoryStore {
    async fn transact(
        &self,
        counters: Arc<Vec<CounterRequest>>,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        Ok(Self::transact(self, &counters, context.at_ms))
    }

    async fn ready(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
