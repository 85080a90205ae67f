//! State about servers that all threads share: outages, and flags per server.
//!
//! Outages are counted over all servers and threads, so that the log gets one line when the first
//! outage begins and one when the last has ended, however many requests fail in between. The metric
//! `store_up` follows.
//!
//! The flags of a server are what one thread learned from an error reply and the others need to
//! know: that the server refuses writes, or that it is a cluster node.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::metrics::Metrics;
use crate::store_error::StoreError;

/// The number of servers known to be down, counted once per thread that found out.
#[derive(Debug, Default)]
pub(super) struct Outages(Mutex<usize>);

/// The flags of each server, by server name.
#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<HashMap<String, Arc<ServerFlags>>>);

/// Flags of one server, shared by all threads.
#[derive(Debug, Default)]
pub(super) struct ServerFlags {
    /// It refused a decision, and no decision has written since.
    refuses: AtomicBool,
    /// It is a node of a cluster, but `--store` names it as a single server.
    is_clustered: AtomicBool,
}

impl Servers {
    /// The flags of a server. Drops those of servers that no thread uses any more.
    pub(super) fn flags(&self, server: String) -> Arc<ServerFlags> {
        let mut servers = self.0.lock();
        servers.retain(|_, flags| Arc::strong_count(flags) > 1);
        Arc::clone(servers.entry(server).or_default())
    }
}

impl ServerFlags {
    pub(super) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }

    pub(super) fn set_refuses(&self, refuses: bool) {
        // Written only if it changes, because all threads share it.
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
    pub(super) fn begin(&self, why: &StoreError, metrics: &Metrics) {
        let mut count = self.0.lock();
        *count += 1;
        if *count == 1 {
            metrics.store_up.set(0.0);
            tracing::warn!(%why, "the store does not answer: deciding by --on-store-failure");
        }
    }

    pub(super) fn end(&self, metrics: &Metrics) {
        let mut count = self.0.lock();
        *count -= 1;
        if *count == 0 {
            metrics.store_up.set(1.0);
            tracing::info!("the store decides again");
        }
    }

    /// Drops an outage whose end will not be noticed, because its node is dropped.
    pub(super) fn forget(&self) {
        *self.0.lock() -= 1;
    }

    pub(super) fn any(&self) -> bool {
        *self.0.lock() > 0
    }
}
