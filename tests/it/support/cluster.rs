//! A Redis Cluster of real servers: three masters, each with a replica unless a test needs none.
//!
//! Nodes 0, 1 and 2 start as the masters of the slots in three equal parts, nodes 3, 4 and 5 as
//! their replicas in that order. After a failover or a migration use [`Cluster::master_of`].
//!
//! The cluster is formed over RESP, during a time that passes anyway: a master refuses writes for 2
//! s after it first sees the cluster (`CLUSTER_WRITABLE_DELAY`). No setting shortens that.

pub mod migration;
pub mod reshard;

use std::fmt;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::process;
use super::servers::{Launch, RedisServer, Reply, Version};

/// The deadline from the first node's start until all agree.
const READY_DEADLINE: Duration = Duration::from_secs(30);

/// Masters, each with one replica or none.
pub const SHARDS: usize = 3;

/// Slots of a cluster.
pub const SLOTS: u16 = 16_384;

/// Silence after which a node counts as failed.
const NODE_TIMEOUT_MS: &str = "1000";

/// A running cluster; its nodes stop on drop.
pub struct Cluster {
    nodes: Vec<Node>,
}

struct Node {
    server: RedisServer,
    /// Its node id.
    id: String,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Paused,
    Killed,
}

/// Slots of one master, in the view of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    first: u64,
    last: u64,
    /// The ids of the master and of its replicas.
    ids: Vec<String>,
}

impl Cluster {
    /// Starts the nodes and forms the cluster, ready for reads and writes on every slot.
    ///
    /// # Panics
    /// When it is not ready in time.
    pub fn start() -> Self {
        Self::of(Version::Redis70, 2 * SHARDS)
    }

    /// As [`Cluster::start`], of masters without replicas.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub fn without_replicas(version: Version) -> Self {
        Self::of(version, SHARDS)
    }

    fn of(version: Version, nodes: usize) -> Self {
        let cluster = Self { nodes: start_nodes(version, nodes) };
        cluster.meet();
        cluster.share_slots();
        cluster.attach_replicas();
        let ready = || cluster.is_ready().then_some(());
        process::wait_until(READY_DEADLINE, ready)
            .unwrap_or_else(|| panic!("the cluster is not ready in time: {cluster:?}"));
        cluster
    }

    /// The URL of all nodes: the first as the host, the others as parameters.
    pub fn url(&self) -> String {
        let mut addresses = self.addresses().into_iter();
        let first = addresses.next().expect("six nodes");
        let others: Vec<_> = addresses.map(|addr| format!("node={addr}")).collect();
        format!("redis-cluster://{first}?{}", others.join("&"))
    }

    /// The address of each node.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.server.addr()).collect()
    }

    /// One node as a server.
    pub fn server(&self, node: usize) -> &RedisServer {
        &self.nodes[node].server
    }

    /// Sends one command to a node, which may redirect to the owner of the slot.
    ///
    /// # Panics
    /// When no reply comes in time.
    pub fn command<A: AsRef<[u8]>>(&self, node: usize, args: &[A]) -> Reply {
        self.nodes[node].server.command(args)
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &[u8]) -> u16 {
        let slot = self.command(self.running()[0], &[b"CLUSTER".as_slice(), b"KEYSLOT", key]);
        u16::try_from(slot.into_count()).expect("a slot")
    }

    /// The owner of a slot in the view of the first running node.
    ///
    /// # Panics
    /// When there is none.
    pub fn master_of(&self, slot: u16) -> usize {
        let (view, slot) = (self.view(self.running()[0]), u64::from(slot));
        let range = view.iter().find(|range| (range.first..=range.last).contains(&slot));
        let range = range.unwrap_or_else(|| panic!("nobody has slot {slot}: {view:?}"));
        self.node_of(&range.ids[0])
    }

    /// Kills a node with SIGKILL; its data is lost.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].server.stop();
        self.nodes[node].state = State::Killed;
    }

    /// Pauses a node with SIGSTOP: it keeps its connections and does not respond.
    pub fn pause(&mut self, node: usize) {
        self.nodes[node].server.pause();
        self.nodes[node].state = State::Paused;
    }

    /// Resumes a node after [`Cluster::pause`].
    pub fn resume(&mut self, node: usize) {
        self.nodes[node].server.resume();
        self.nodes[node].state = State::Running;
    }

    /// Restarts a killed node, empty, on its port and with its node id.
    pub fn restart(&mut self, node: usize) {
        self.nodes[node].server.restart();
        self.nodes[node].state = State::Running;
    }

    /// Waits until a replica owns the slots of `lost` in the view of all running nodes, and the
    /// cluster is healthy; returns the replica.
    ///
    /// # Panics
    /// When that takes longer than `deadline`.
    pub fn wait_for_failover(&self, lost: usize, deadline: Duration) -> usize {
        let running = self.running();
        let replica = || {
            running.iter().copied().find(|node| *node % SHARDS == lost % SHARDS && *node != lost)
        };
        let replica = replica().unwrap_or_else(|| panic!("node {lost} has no replica that runs"));
        let promoted = || {
            let agreed = running.iter().all(|node| {
                let view = self.view(*node);
                let has = |id: &String| view.iter().any(|range| range.ids.first() == Some(id));
                has(&self.nodes[replica].id) && !has(&self.nodes[lost].id) && self.is_ok(*node)
            });
            agreed.then_some(replica)
        };
        process::wait_until(deadline, promoted)
            .unwrap_or_else(|| panic!("node {lost} was not replaced in time: {self:?}"))
    }

    /// Waits until every node runs, agrees and is linked, as after the start; used after a killed
    /// node is restarted.
    ///
    /// # Panics
    /// When that takes longer than `deadline`.
    pub fn wait_until_whole(&self, deadline: Duration) {
        process::wait_until(deadline, || self.is_ready().then_some(()))
            .unwrap_or_else(|| panic!("the cluster is not whole in time: {self:?}"));
    }

    fn expect_ok(&self, node: usize, args: &[&str]) {
        let reply = self.command(node, args);
        assert_eq!(reply, Reply::Status("OK".to_owned()), "{args:?} to node {node}");
    }

    /// Every node meets every other, which is faster than gossip.
    fn meet(&self) {
        for node in 0..self.nodes.len() {
            for other in self.nodes.iter().skip(node + 1) {
                let (port, bus) = (other.server.port().to_string(), bus_port(&other.server));
                self.expect_ok(node, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus.to_string()]);
            }
        }
    }

    fn share_slots(&self) {
        for (shard, (first, last)) in
            [(0, 5_460), (5_461, 10_922), (10_923, SLOTS - 1)].into_iter().enumerate()
        {
            // Redis 6.2 has no ADDSLOTSRANGE.
            let slots: Vec<_> = (first..=last).map(|slot| slot.to_string()).collect();
            let command = ["CLUSTER", "ADDSLOTS"].into_iter();
            let command: Vec<_> = command.chain(slots.iter().map(String::as_str)).collect();
            self.expect_ok(shard, &command);
        }
    }

    fn attach_replicas(&self) {
        for replica in SHARDS..self.nodes.len() {
            let command = ["CLUSTER", "REPLICATE", &self.nodes[replica - SHARDS].id];
            // Refused until the two have met.
            let attached = || {
                let reply = self.command(replica, &command);
                (reply == Reply::Status("OK".to_owned())).then_some(())
            };
            process::wait_until(READY_DEADLINE, attached)
                .unwrap_or_else(|| panic!("node {replica} does not become a replica: {self:?}"));
        }
    }

    /// Whether every node runs and sees the same shards, each with its replica, and all replicas
    /// are linked.
    fn is_ready(&self) -> bool {
        let all = 0..self.nodes.len();
        if all.clone().any(|node| self.nodes[node].state != State::Running || !self.is_ok(node)) {
            return false;
        }
        let view = self.view(0);
        let slots: u64 = view.iter().map(|range| range.last - range.first + 1).sum();
        slots == u64::from(SLOTS)
            && view.iter().all(|range| range.ids.len() == self.nodes.len() / SHARDS)
            && all.clone().all(|node| self.view(node) == view && self.is_linked(node))
    }

    fn is_ok(&self, node: usize) -> bool {
        let info = self.command(node, &["CLUSTER", "INFO"]).into_text();
        info.lines().any(|line| line == "cluster_state:ok")
    }

    fn is_linked(&self, node: usize) -> bool {
        let info = self.server(node).info("replication");
        info.contains("role:master") || info.contains("master_link_status:up")
    }

    fn running(&self) -> Vec<usize> {
        let runs = |node: &usize| self.nodes[*node].state == State::Running;
        (0..self.nodes.len()).filter(runs).collect()
    }

    fn node_of(&self, id: &str) -> usize {
        self.nodes.iter().position(|node| node.id == id).expect("a node of this cluster")
    }

    /// The owners of all slots in the view of a node, in order.
    fn view(&self, node: usize) -> Vec<Range> {
        let ranges = self.command(node, &["CLUSTER", "SLOTS"]).into_array();
        let range = |range: Reply| {
            let mut parts = range.into_array().into_iter();
            let mut number = || parts.next().expect("two ends").into_count();
            let (first, last) = (number(), number());
            let id = |node: Reply| node.into_array().into_iter().nth(2).expect("an id").into_text();
            Range { first, last, ids: parts.map(id).collect() }
        };
        let mut view: Vec<_> = ranges.into_iter().map(range).collect();
        view.sort();
        view
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, node) in self.nodes.iter().enumerate() {
            writeln!(f, "node {at} ({}), {:?}, {:?}", node.id, node.server, node.state)?;
        }
        for node in self.running() {
            let seen = self.command(node, &["CLUSTER", "NODES"]).into_text();
            writeln!(f, "node {node} sees:\n{seen}")?;
        }
        Ok(())
    }
}

/// Redis 6.2 has no setting for it.
fn bus_port(server: &RedisServer) -> u16 {
    match server.version() {
        Version::Redis62 => server.port() + 10_000,
        Version::Redis70 | Version::Valkey91 => server.port_of("--cluster-port"),
    }
}

fn start_nodes(version: Version, count: usize) -> Vec<Node> {
    let args = ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS]
        .into_iter()
        .chain(["--cluster-require-full-coverage", "no", "--cluster-announce-ip", "127.0.0.1"])
        // A replica may take over however long the master was away.
        .chain(["--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"])
        // A replica is listed for clients once its master has sent it data.
        .chain(["--repl-ping-replica-period", "1"])
        .collect::<Vec<_>>();
    let ports: &[_] = if version == Version::Redis62 { &[] } else { &["--cluster-port"] };
    let launch = Launch { args: &args, ports, sentinel: false };
    let start = || {
        let server = RedisServer::launch(version, &launch);
        let id = server.command(&["CLUSTER", "MYID"]).into_text();
        Node { server, id, state: State::Running }
    };
    thread::scope(|scope| {
        let starts: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|start| start.join().expect("a node starts")).collect()
    })
}
