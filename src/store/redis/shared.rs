//! The state that the Redis stores of all threads share.
//!
//! Each thread has its own [`RedisStore`](super::RedisStore) with its own connections. An outage
//! concerns all of them, so it is logged once and counted in one metric.

use std::sync::Arc;

use super::flags::Servers;
use crate::metrics::Metrics;
use crate::store::outage::Outages;

/// The state that the Redis stores of all threads share.
pub struct Shared {
    pub(super) outages: Arc<Outages>,
    pub(super) servers: Servers,
    pub(super) metrics: Metrics,
}

impl Shared {
    /// State for stores that count in `metrics`.
    pub fn new(metrics: Metrics) -> Self {
        Self::with_outages(metrics, Arc::default())
    }

    /// The same, with outages that others know of too.
    pub fn with_outages(metrics: Metrics, outages: Arc<Outages>) -> Self {
        Self { outages, servers: Servers::default(), metrics }
    }
}
