//! Outages over all servers and threads: one line in the log when the first begins and one when the
//! last has ended, however many requests met them. And what one thread found out about a server
//! that all are to know.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::metrics::Metrics;
use crate::store_error::StoreError;

/// How many servers are known to be down, each counted by each thread that knows.
#[derive(Debug, Default)]
pub(super) struct Outages(Mutex<usize>);

/// What all threads know of each server, by the servers' names.
#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<HashMap<String, Arc<Findings>>>);

/// What all threads know of one server.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// It refused a decision, and none has written since.
    refuses: AtomicBool,
    /// It is a node of a cluster, and is asked as a server by itself.
    is_clustered: AtomicBool,
}

impl Servers {
    /// What is known of a server. Servers that no thread asks any more are forgotten.
    pub(super) fn findings(&self, server: String) -> Arc<Findings> {
        let mut servers = self.0.lock();
        servers.retain(|_, findings| Arc::strong_count(findings) > 1);
        Arc::clone(servers.entry(server).or_default())
    }
}

impl Findings {
    pub(super) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }

    pub(super) fn set_refuses(&self, refuses: bool) {
        // Written only when it changes: threads share it.
        if refuses != self.refuses() {
            self.refuses.store(refuses, Ordering::Relaxed);
        }
    }

    pub(super) fn is_clustered(&self) -> bool {
        self.is_clustered.load(Ordering::Relaxed)
    }

    pub(super) fn set_clustered(&self, is_clustered: bool) {
        if is_clustered != self.is_clustered()
            && !self.is_clustered.swap(is_clustered, Ordering::Relaxed)
        {
            tracing::warn!("{}", StoreError::Clustered);
        }
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
