//! Counters in Redis: every decision is one run of `lua/`, on Redis's own clock.
//!
//! The client is told to send a script once only: a second sending after a lost connection would
//! count hits twice. A server that has forgotten the script (a restart, SCRIPT FLUSH) says so
//! before it runs anything; then it is loaded, once for all who wait, and run again.

pub mod access;
mod backoff;
mod cluster;
mod connection;
pub mod credentials;
mod findings;
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

/// The store in Redis, which replicas share. Each thread that serves has its own, with connections
/// of its own.
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
    /// The URL is not one of a Redis server; the message does not repeat it, for its password.
    pub fn connect(options: &Options, shared: Arc<Shared>) -> Result<Self, String> {
        Ok(Self { topology: Topology::connect(options, &shared)?, shared })
    }

    /// Which asks each partition has.
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

    /// Decides requests one after the other in one script run of the first server, at one moment.
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

    /// What is wrong with how the servers are set up, for people.
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

    /// Removes counters, for a replay that cleans up after itself.
    ///
    /// # Errors
    /// Redis could not be asked or refused.
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
    /// It could not connect within `deadline`, or to a node of a cluster that is asked by itself.
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
        // A task of its own: what was taken is given back though the caller may be gone.
        let decided = tokio::spawn(scatter::scatter(shards, context)).await;
        decided.unwrap_or_else(|_| Err(StoreError::Unavailable("the service is ending".into())))
    }

    /// Pings every server. One that refused the last decision (no memory left, a replica, no
    /// permission) is asked for a decision that writes.
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
        // It is the same for all servers.
        Duration::from_micros(self.topology.target(0).timeout_us())
    }

    fn has_outage(&self) -> bool {
        self.shared.outages.any()
    }

    fn is_sharded(&self) -> bool {
        self.topology.is_several()
    }
}
