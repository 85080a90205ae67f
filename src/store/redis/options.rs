//! The options of a Redis store.

use std::time::Duration;

use super::access::Access;

/// The servers of a store, and its limits.
#[derive(Clone)]
pub struct Options {
    /// The addresses, credentials and encryption of the servers.
    pub access: Access,
    /// The timeout of one decision, from when it was requested.
    pub timeout: Duration,
    /// Requests per script run, at most.
    pub batch_max: usize,
}
