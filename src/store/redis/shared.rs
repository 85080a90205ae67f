//! What the Redis stores of all threads share.

use super::deny::{Bounds, DenyCache};
use super::outage::{Outages, Servers};
use crate::metrics::Metrics;
use crate::store::fallback::Fallback;

/// What the stores of all threads share.
pub struct Shared {
    pub(super) deny: DenyCache,
    pub(super) fallback: Fallback,
    pub(super) outages: Outages,
    pub(super) servers: Servers,
    /// Held while charges are sent.
    pub(super) charging: tokio::sync::Mutex<()>,
    pub(super) metrics: Metrics,
}

impl Shared {
    /// State for stores with one deny cache and one fallback.
    pub fn new(deny: Bounds, fallback: Fallback, metrics: Metrics) -> Self {
        let deny = DenyCache::new(deny);
        let (outages, servers) = (Outages::default(), Servers::default());
        Self { deny, fallback, outages, servers, charging: tokio::sync::Mutex::default(), metrics }
    }
}
