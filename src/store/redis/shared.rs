//! The state that the Redis stores of all threads share.
//!
//! Each thread has its own [`RedisStore`](super::RedisStore) with its own connections. An outage
//! concerns all of them, so it is logged once and counted in one metric.

use super::outage::{Outages, Servers};
use crate::metrics::Metrics;

/// The state that the Redis stores of all threads share.
pub struct Shared {
    pub(super) outages: Outages,
    pub(super) servers: Servers,
    pub(super) metrics: Metrics,
}

impl Shared {
    /// State for stores that count in `metrics`.
    pub fn new(metrics: Metrics) -> Self {
        Self { outages: Outages::default(), servers: Servers::default(), metrics }
    }
}
