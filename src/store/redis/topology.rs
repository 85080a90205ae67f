//! The servers of a store, and the mapping from a counter's key to its server.
//!
//! Keys are grouped into partitions: keys of one partition can be decided in one script run. A
//! single server is one partition. On a ring of independent servers each server is a partition, and
//! in a cluster each of the 16,384 slots is one, because a script may use keys of one slot only.

use std::sync::Arc;
use std::time::Duration;

use fred::types::config::Config;

use super::cluster::Cluster;
use super::connection::Connection;
use super::node::{Node, NodeOptions};
use super::options::Options;
use super::probe::probe;
use super::queue::{BatchKey, Queue};
use super::ring::Ring;
use super::shared::Shared;
use super::slot::{slot, tag};
use super::url::{Endpoints, HostPort};
use crate::decide::CounterRequest;
use crate::decision::Decision;
use crate::store::context::DecideContext;
use crate::store_error::StoreError;

/// The servers of a store, as one thread sees them.
pub(super) enum Topology {
    /// One server: by its address, or the one that sentinels name.
    One(Arc<Node>),
    /// Independent servers; a ring maps hash tags to them.
    Ring(Ring, Vec<Arc<Node>>),
    /// A Redis Cluster, whose nodes divide the slots among themselves.
    Cluster(Arc<Cluster>),
}

/// The server of one partition.
#[derive(Clone)]
pub(super) enum Target {
    Node(Arc<Node>),
    Slot(Arc<Cluster>, u16),
}

impl Target {
    /// The timeout of a decision.
    pub(super) fn timeout_us(&self) -> u64 {
        match self {
            Self::Node(node) => node.timeout_us(),
            Self::Slot(cluster, _) => cluster.timeout_us(),
        }
    }

    pub(super) async fn dispatch(
        &self,
        counters: Arc<Vec<CounterRequest>>,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        match self {
            Self::Node(node) => node.enqueue(BatchKey::default(), counters, context).await,
            Self::Slot(cluster, slot) => cluster.follow_redirects(*slot, counters, context).await,
        }
    }
}

impl Topology {
    /// Connects to all servers in the background.
    pub(super) fn connect(options: &Options, shared: &Arc<Shared>) -> Result<Self, String> {
        let access = &options.access;
        let (timeout, batch_max, shared) = (options.timeout, options.batch_max, Arc::clone(shared));
        let in_cluster = matches!(access.endpoints(), Endpoints::Cluster(_));
        let connect = move |(name, config): (String, Config)| {
            let (connection, queue) =
                (Connection::connect(config, timeout)?, Queue::new(batch_max));
            let options = NodeOptions { name, connection, queue, timeout, in_cluster };
            Ok::<_, String>(Arc::new(Node::new(options, probe(0)?, Arc::clone(&shared))))
        };
        let named = |node: &HostPort| (node.to_string(), access.config_of(node));
        match options.access.endpoints() {
            Endpoints::Standalone(server) => Ok(Self::One(connect(named(&server.node))?)),
            Endpoints::Sentinel(sentinel) => {
                let config = access.sentinel_config()?.ok_or("--store: names no sentinel")?;
                let name = format!("{}, as sentinels name it", sentinel.service);
                Ok(Self::One(connect((name, config))?))
            }
            Endpoints::Sharded(servers) => {
                let names: Vec<String> =
                    servers.iter().map(|server| server.node.to_string()).collect();
                let ring = Ring::new(&names).ok_or("--store: names no server")?;
                let nodes = servers.iter().map(|server| connect(named(&server.node)));
                Ok(Self::Ring(ring, nodes.collect::<Result<_, _>>()?))
            }
            Endpoints::Cluster(cluster) => {
                let access = access.clone();
                let connect =
                    move |node: &HostPort| connect((node.to_string(), access.config_of(node)));
                Ok(Self::Cluster(Cluster::start(&cluster.seeds, timeout, Box::new(connect))))
            }
        }
    }

    /// Checks that the servers are known: a cluster's are not until a node reports the slots.
    pub(super) fn is_known(&self) -> Result<(), StoreError> {
        match self {
            Self::Cluster(cluster) if cluster.masters().is_empty() => Err(cluster.slots_unknown()),
            Self::One(_) | Self::Ring(..) | Self::Cluster(_) => Ok(()),
        }
    }

    /// Whether the keys of one request may be in several partitions.
    pub(super) const fn is_several(&self) -> bool {
        match self {
            Self::One(_) => false,
            Self::Ring(..) | Self::Cluster(_) => true,
        }
    }

    /// The servers that decide now; in a cluster, its primaries.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Ring(_, nodes) => nodes.clone(),
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    /// The partition of a key. Keys of one partition can be decided in one script run.
    pub(super) fn partition(&self, key: &[u8]) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Ring(ring, _) => ring.server_of(tag(key)),
            Self::Cluster(_) => usize::from(slot(key)),
        }
    }

    /// The server of a partition.
    pub(super) fn target(&self, partition: usize) -> Target {
        match self {
            Self::One(node) => Target::Node(Arc::clone(node)),
            Self::Ring(_, nodes) => Target::Node(Arc::clone(&nodes[partition])),
            Self::Cluster(cluster) => {
                Target::Slot(Arc::clone(cluster), u16::try_from(partition).unwrap_or(0))
            }
        }
    }

    /// Removes keys of one partition.
    pub(super) async fn remove(
        &self,
        partition: usize,
        keys: &[&Vec<u8>],
    ) -> Result<(), StoreError> {
        match self.target(partition) {
            Target::Node(node) => node.connection().remove(keys).await,
            Target::Slot(cluster, slot) => cluster.master(slot)?.connection().remove(keys).await,
        }
    }

    /// Waits until all servers are connected.
    pub(super) async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        if let Self::Cluster(cluster) = self {
            return cluster.connected(deadline).await;
        }
        for node in self.nodes() {
            node.connection().connected(deadline).await?;
            node.check_topology().await?;
        }
        Ok(())
    }
}
