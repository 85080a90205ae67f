//! What every store can do.

use std::sync::Arc;
use std::time::Duration;

use super::context::DecideContext;
use super::memory::MemoryStore;
use crate::decide::CounterRequest;
use crate::decision::Decision;
use crate::store_error::StoreError;

/// A place where counters live.
pub trait Store: Send + Sync + 'static {
    /// Checks every limit of a request, then takes from all or from none.
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
    /// Why it would not.
    fn ready(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// How long one decision may take.
    fn timeout(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether a part of the store is known not to answer.
    fn has_outage(&self) -> bool {
        false
    }

    /// Whether the counters of one request may be on several servers, which decide one by one.
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
