//! How a store in Redis is set up.

use std::time::Duration;

use super::access::Access;

/// How to reach Redis, and the bounds on what it is asked.
#[derive(Clone)]
pub struct Options {
    /// The servers, and how to reach them.
    pub access: Access,
    /// The time of one decision, from when it was requested.
    pub timeout: Duration,
    /// The most requests that one script run decides.
    pub batch_max: usize,
}
