//! The state that the Redis stores of all threads share.

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
