//! Flags of servers that all threads share: what one thread learned from an error reply and the others
//! need to know, namely that a server refuses writes, or that it is a cluster node.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::store_error::StoreError;

/// The flags of each server, by server name.
#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<HashMap<Arc<str>, Arc<ServerFlags>>>);

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
    pub(super) fn flags(&self, server: &Arc<str>) -> Arc<ServerFlags> {
        let mut servers = self.0.lock();
        servers.retain(|_, flags| Arc::strong_count(flags) > 1);
        Arc::clone(servers.entry(Arc::clone(server)).or_default())
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
