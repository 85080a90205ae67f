//! The Redis store: every decision is one run of the Lua script of `lua/`, on Redis's own clock.
//!
//! From a request to the script: the `topology` maps each counter's key to a server, `scatter`
//! handles requests whose counters are on several servers, a `node` batches the requests to one
//! server in its `queue`, `wire` encodes a batch as the script's arguments, and a `connection`
//! sends it.
//!
//! The client sends a script run once only: sending it again after a lost connection could count
//! hits twice. A server without the script (after a restart or SCRIPT FLUSH) answers NOSCRIPT
//! before it runs anything. Then the script is loaded, once for all waiting runs, and run again.
//!
//! Each serving thread has its own stores and connections, so that a decision takes no lock that
//! other threads contend for. The threads share only the state in `shared`: which servers are down,
//! and the metrics.

pub mod access;
mod backoff;
mod cluster;
mod connection;
pub mod credentials;
mod flags;
mod fred_error;
mod node;
mod options;
mod probe;
mod queue;
pub mod ring;
mod scatter;
mod script;
mod shared;
pub mod slot;
pub mod tls;
mod topology;
pub mod url;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::decide::CounterRequest;
use crate::decision::Decision;
use crate::store::backend::Store;
use crate::store::context::DecideContext;
use crate::store_error::StoreError;
pub use options::Options;
use scatter::ShardRequest;
pub use script::SCRIPT;
pub use shared::Shared;
use topology::Topology;

/// The Redis store, which replicas share. Each serving thread has one, with its own connections.
pub struct RedisStore {
    topology: Topology,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Prepares a client and connects in the background.
    ///
    /// # Errors
    /// The URL does not name a Redis server. The message does not repeat it: it may have a password.
    pub fn connect(options: &Options, shared: Arc<Shared>) -> Result<Self, String> {
        Ok(Self { topology: Topology::connect(options, &shared)?, shared })
    }

    /// The partitions of a request, each with the positions of its counter requests.
    fn shards(&self, counters: &[CounterRequest]) -> Vec<(usize, Vec<usize>)> {
        let mut shards: Vec<(usize, Vec<usize>)> = Vec::new();
        for (at, counter) in counters.iter().enumerate() {
            let partition = self.topology.partition(counter.key.as_bytes());
            match shards.iter_mut().find(|(other, _)| *other == partition) {
                Some((_, positions)) => positions.push(at),
                None => shards.push((partition, vec![at])),
            }
        }
        shards
    }

    /// Decides requests in order in one script run on the first server, at one moment.
    ///
    /// # Errors
    /// As [`Store::transact`], for all of them.
    pub async fn transact_batch(
        &self,
        requests: &[&[CounterRequest]],
        at_ms: Option<u64>,
    ) -> Result<Vec<Decision>, StoreError> {
        let first = self.topology.nodes().into_iter().next();
        let first = first.ok_or_else(|| StoreError::Unavailable("no server".to_owned()))?;
        first.run_now(requests.iter().copied(), at_ms).await
    }

    /// The current outage, for people.
    pub fn outage(&self) -> Option<String> {
        self.shared.outages.describe()
    }

    /// A warning for the log if a server's eviction policy may drop counters.
    pub async fn warning(&self) -> Option<String> {
        for node in self.topology.nodes() {
            if let Ok(Some(policy)) = node.connection().eviction_policy().await
                && policy != "noeviction"
            {
                return Some(format!(
                    "maxmemory-policy of Redis is {policy}: counters in force may be dropped; set \
                     noeviction"
                ));
            }
        }
        None
    }

    /// Removes counters. A replay cleans up its own with it.
    ///
    /// # Errors
    /// Redis could not be reached, or refused.
    pub async fn remove(&self, keys: &[Vec<u8>]) -> Result<(), StoreError> {
        let mut by_partition: BTreeMap<usize, Vec<&Vec<u8>>> = BTreeMap::new();
        for key in keys {
            by_partition.entry(self.topology.partition(key)).or_default().push(key);
        }
        for (partition, keys) in by_partition {
            self.topology.remove(partition, &keys).await?;
        }
        Ok(())
    }

    /// Waits until the client is connected.
    ///
    /// # Errors
    /// It could not connect within `deadline`, or the URL names a node of a cluster as a single
    /// server.
    pub async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        self.topology.connected(deadline).await
    }
}

impl Store for RedisStore {
    /// Sends the request to its server, or scatters it over several.
    async fn transact(
        &self,
        counters: Arc<Vec<CounterRequest>>,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        let partition = |counter: &CounterRequest| self.topology.partition(counter.key.as_bytes());
        let first = counters.first().map_or(0, partition);
        if counters.iter().skip(1).all(|counter| partition(counter) == first) {
            return self.topology.target(first).dispatch(counters, context).await;
        }
        let shard = |(partition, positions): (usize, Vec<usize>)| ShardRequest {
            target: self.topology.target(partition),
            counters: Arc::new(positions.iter().map(|at| counters[*at].clone()).collect()),
            positions,
        };
        let shards = self.shards(&counters).into_iter().map(shard).collect();
        // In its own task, so that undos are sent even if the caller gives up.
        let decided = tokio::spawn(scatter::scatter(shards, context)).await;
        decided.unwrap_or_else(|_| Err(StoreError::Unavailable("the service is ending".into())))
    }

    /// Pings every server. A server that refused its last decision (no memory left, a replica, no
    /// permission) must make a decision that writes instead.
    async fn ready(&self) -> Result<(), StoreError> {
        let mut ready = self.topology.is_known();
        for node in self.topology.nodes() {
            ready = ready.and(node.ready().await);
        }
        let decides = ready.is_ok() && !self.shared.outages.any();
        self.shared.metrics.store_up.set(if decides { 1.0 } else { 0.0 });
        ready
    }

    fn timeout(&self) -> Duration {
        // All servers have the same timeout.
        Duration::from_micros(self.topology.target(0).timeout_us())
    }

    fn has_outage(&self) -> bool {
        self.shared.outages.any()
    }

    fn is_sharded(&self) -> bool {
        self.topology.is_several()
    }
}
