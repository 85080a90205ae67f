//! What tests of faults stand on does what it says: real clusters, sentinels, certificates, users,
//! a proxy and a load, asked in plain RESP.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on panics")]
#![allow(clippy::disallowed_methods, reason = "what other processes do takes real time")]

mod acl;
mod cluster;
mod load;
mod proxy;
mod sentinels;
mod tls;

use std::time::Duration;

/// For a failover on a busy machine.
const FAILOVER_DEADLINE: Duration = Duration::from_secs(30);
