//! What tests of faults stand on does what it says: real clusters, sentinels, certificates, users,
//! a proxy and a load, asked in plain RESP.

mod acl;
mod cluster;
mod load;
mod proxy;
mod sentinels;
mod tls;

use std::time::Duration;

/// For a failover on a busy machine.
const FAILOVER_DEADLINE: Duration = Duration::from_secs(30);
