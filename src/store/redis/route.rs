//! From a counter's key to the server that has it.

use std::sync::Arc;

use super::link::Link;
use super::node::Node;
use super::queue::Queue;
use super::ring::Ring;
use super::slot::tag;
use super::url::Topology;
use super::{Options, Shared, probe};

/// The servers of a store, as one thread sees them.
pub(super) enum Route {
    /// Whatever server there is: one by its address, or the one that sentinels name.
    One([Arc<Node>; 1]),
    /// Independent servers, among which hash tags are spread.
    Ring(Ring, Vec<Arc<Node>>),
}

impl Route {
    /// Connects to all servers in the background.
    pub(super) fn connect(options: &Options, shared: &Arc<Shared>) -> Result<Self, String> {
        let node = |config| {
            let link = Link::connect(config, options.timeout)?;
            let queue = Queue::new(options.batch_max);
            let node = Node::new((link, queue), options.timeout, probe()?, Arc::clone(shared));
            Ok::<_, String>(Arc::new(node))
        };
        let access = &options.access;
        match access.topology() {
            Topology::Standalone(server) => Ok(Self::One([node(access.config_of(&server.node))?])),
            Topology::Sentinel(_) => {
                let config = access.sentinel_config()?.ok_or("--store: names no sentinel")?;
                Ok(Self::One([node(config)?]))
            }
            Topology::Sharded(servers) => {
                let names: Vec<String> =
                    servers.iter().map(|server| server.node.to_string()).collect();
                let ring = Ring::new(&names).ok_or("--store: names no server")?;
                let nodes = servers.iter().map(|server| node(access.config_of(&server.node)));
                Ok(Self::Ring(ring, nodes.collect::<Result<_, _>>()?))
            }
            Topology::Cluster(_) => Err("--store: Redis Cluster is not supported yet; use \
                                         redis://, redis-sentinel:// or several redis://"
                .to_owned()),
        }
    }

    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        match self {
            Self::One(node) => node,
            Self::Ring(_, nodes) => nodes,
        }
    }

    /// The index of the server that has a key.
    pub(super) fn place(&self, key: &[u8]) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Ring(ring, _) => ring.server_of(tag(key)),
        }
    }
}
