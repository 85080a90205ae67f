//! What one thread found out about a server and all others need to know.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::store_error::StoreError;

/// What all threads know of each server, by the servers' names.
#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<HashMap<Arc<str>, Arc<Findings>>>);

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
    pub(super) fn findings(&self, server: &Arc<str>) -> Arc<Findings> {
        let mut servers = self.0.lock();
        servers.retain(|_, findings| Arc::strong_count(findings) > 1);
        Arc::clone(servers.entry(Arc::clone(server)).or_default())
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
