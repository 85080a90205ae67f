//! Outages over all servers and threads: one line in the log when the first begins and one when the
//! last has ended, however many requests met them. And which servers refuse.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use crate::metrics::Metrics;
use crate::store::StoreError;

/// How many servers are known to be down, each counted by each thread that knows.
#[derive(Debug, Default)]
pub(super) struct Outages(Mutex<usize>);

/// Which servers refused the last decision, by their names: what one thread meets, all know.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<String, Arc<AtomicBool>>>);

impl Refusals {
    /// Whether a server refused. Those that no thread asks any more are forgotten.
    pub(super) fn of(&self, server: String) -> Arc<AtomicBool> {
        let mut servers = self.0.lock();
        servers.retain(|_, refused| Arc::strong_count(refused) > 1);
        Arc::clone(servers.entry(server).or_default())
    }
}

impl Outages {
    pub(super) fn begun(&self, why: &StoreError, metrics: &Metrics) {
        let mut count = self.0.lock();
        *count += 1;
        if *count == 1 {
            metrics.store_up.set(0.0);
            tracing::warn!(%why, "the store does not answer: deciding by --on-store-failure");
        }
    }

    pub(super) fn ended(&self, metrics: &Metrics) {
        let mut count = self.0.lock();
        *count -= 1;
        if *count == 0 {
            metrics.store_up.set(1.0);
            tracing::info!("the store decides again");
        }
    }

    /// One of which nothing more will be known: the server is let go, or the service is ending.
    pub(super) fn forgotten(&self) {
        *self.0.lock() -= 1;
    }

    pub(super) fn any(&self) -> bool {
        *self.0.lock() > 0
    }
}
