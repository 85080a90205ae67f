//! Tests of the test infrastructure: real clusters, sentinels, certificates, users, a proxy and a
//! load, checked with plain RESP.

mod acl;
mod cluster;
mod load;
mod proxy;
mod sentinels;
mod tls;

use std::time::Duration;

/// The deadline for a failover on a busy machine.
const FAILOVER_DEADLINE: Duration = Duration::from_secs(30);
