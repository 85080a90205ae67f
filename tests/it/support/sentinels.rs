//! A master with two replicas, and three sentinels that promote a replica when it fails.
//!
//! By default, sentinels poll every second and gossip every two; these do so more often (`SENTINEL
//! DEBUG`), so that a failover takes little more than its detection.

use std::fmt;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::process;
use super::resp::field;
use super::servers::{Launch, RedisServer, Reply, Version};

/// The name of the master in the sentinels' configuration.
pub const SERVICE: &str = "tidegate";

/// The deadline from the first server's start until all sentinels know all.
const READY_DEADLINE: Duration = Duration::from_secs(30);

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

/// The silence after which each sentinel considers a server down. Two are enough to start a
/// failover; if all were equally fast, each might vote for itself, and no leader be elected until
/// the next attempt.
const DOWN_AFTER_MS: [&str; SENTINELS] = ["500", "500", "900"];

/// After twice this time, a failover without an elected leader is tried again.
const FAILOVER_TIMEOUT_MS: &str = "1000";

/// Running servers and their sentinels; all stop on drop.
pub struct Sentinels {
    /// The first master, then its replicas.
    servers: Vec<RedisServer>,
    sentinels: Vec<Option<RedisServer>>,
}

impl Sentinels {
    /// Starts all, and waits until each sentinel knows every server and every sentinel.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn start() -> Self {
        // The delay, 5 s by default, only waits for more replicas.
        let args = &["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
        let servers = start_all(REPLICAS + 1, Launch { args, ..Launch::default() });
        let port = servers[0].port().to_string();
        for replica in &servers[1..] {
            expect_ok(replica, &["REPLICAOF", "127.0.0.1", &port]);
        }
        // Sentinels look for replicas when they first see the master, and rarely later.
        process::wait_until(READY_DEADLINE, || servers[1..].iter().all(is_linked).then_some(()))
            .expect("the replicas are linked in time");
        let sentinels = start_all(SENTINELS, Launch { sentinel: true, ..Launch::default() });
        for (sentinel, down_after_ms) in sentinels.iter().zip(DOWN_AFTER_MS) {
            watch_often(sentinel, &port, down_after_ms);
        }
        let started = Self { servers, sentinels: sentinels.into_iter().map(Some).collect() };
        process::wait_until(READY_DEADLINE, || started.is_ready().then_some(()))
            .unwrap_or_else(|| panic!("the sentinels are not ready in time: {started:?}"));
        started
    }

    /// The sentinels and the service's name, in the form that clients read.
    pub fn url(&self) -> String {
        let mut sentinels = self.sentinels.iter().flatten().map(RedisServer::addr);
        let first = sentinels.next().expect("a sentinel");
        let others: String = sentinels.map(|addr| format!("&node={addr}")).collect();
        format!("redis-sentinel://{first}/0?sentinelServiceName={SERVICE}{others}")
    }

    /// The addresses of the running sentinels.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().flatten().map(RedisServer::addr).collect()
    }

    /// A server: 0 is the first master, 1 and 2 are its replicas at the start.
    pub fn server(&self, at: usize) -> &RedisServer {
        &self.servers[at]
    }

    /// The master that all running sentinels announce; `None` while they disagree.
    pub fn announced(&self) -> Option<usize> {
        let announce = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
        let mut ports = self.sentinels.iter().flatten().map(|sentinel| {
            let [_, port] = sentinel.command(&announce).into_array().try_into().expect("a pair");
            port.into_text()
        });
        let port = ports.next().expect("a sentinel");
        let agreed = ports.all(|other| other == port);
        let named = || self.servers.iter().position(|server| server.port().to_string() == port);
        if agreed { named() } else { None }
    }

    /// Kills the announced master with SIGKILL; returns its index.
    pub fn kill_master(&mut self) -> usize {
        let master = self.master();
        self.servers[master].stop();
        master
    }

    /// Makes the announced master hand over to a replica with its own command FAILOVER, which keeps
    /// the connections of clients open; returns its index.
    ///
    /// The sentinels notice, and accept that replica as the master. If they had chosen another one,
    /// they would reconfigure all others as replicas and so cut the connections of clients.
    pub fn hand_over(&self) -> usize {
        let master = self.master();
        let mut replicas = (0..self.servers.len()).filter(|at| *at != master);
        let next = replicas.next().expect("a replica");
        for other in replicas {
            expect_ok(&self.servers[other], &["CONFIG", "SET", "replica-priority", "0"]);
        }
        let port = self.servers[next].port().to_string();
        // Redis gives up a failover that sentinels or a slow replica disturb, and stays the master.
        let old = &self.servers[master];
        let handed_over = || {
            if says(old, "master_failover_state", "no-failover") {
                // Refused once the server is a replica.
                old.command(&["FAILOVER", "TO", "127.0.0.1", &port]);
            }
            says(old, "role", "slave").then_some(())
        };
        process::wait_until(READY_DEADLINE, handed_over)
            .unwrap_or_else(|| panic!("server {master} does not hand over: {self:?}"));
        master
    }

    /// Pauses the announced master with SIGSTOP; returns its index, for `resume`.
    pub fn pause_master(&self) -> usize {
        let master = self.master();
        self.servers[master].pause();
        master
    }

    /// Kills a sentinel with SIGKILL.
    pub fn kill_sentinel(&mut self, at: usize) {
        self.sentinels[at] = None;
    }

    /// Waits until all sentinels announce a master other than `lost`, which accepts writes; returns
    /// its index.
    ///
    /// # Panics
    /// When that takes longer than `deadline`.
    pub fn wait_for_failover(&self, lost: usize, deadline: Duration) -> usize {
        let replaced =
            || self.announced().filter(|at| *at != lost && is_master(&self.servers[*at]));
        process::wait_until(deadline, replaced)
            .unwrap_or_else(|| panic!("server {lost} was not replaced in time: {self:?}"))
    }

    /// Waits until a former master, which is back, replicates the new one.
    ///
    /// # Panics
    /// When that takes longer than `deadline`.
    pub fn wait_for_replica(&self, at: usize, deadline: Duration) {
        process::wait_until(deadline, || is_linked(&self.servers[at]).then_some(()))
            .unwrap_or_else(|| panic!("server {at} is no replica in time: {self:?}"));
    }

    fn master(&self) -> usize {
        process::wait_until(READY_DEADLINE, || self.announced()).expect("a master is announced")
    }

    fn is_ready(&self) -> bool {
        let seen = |sentinel: &RedisServer, what: &str| {
            sentinel.command(&["SENTINEL", what, SERVICE]).into_array().len()
        };
        self.sentinels.iter().flatten().all(|sentinel| {
            seen(sentinel, "REPLICAS") == REPLICAS && seen(sentinel, "SENTINELS") == SENTINELS - 1
        }) && self.announced() == Some(0)
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.servers)?;
        for sentinel in self.sentinels.iter().flatten() {
            writeln!(f, "sentinel {sentinel:?}:\n{}", sentinel.log())?;
        }
        Ok(())
    }
}

fn start_all(count: usize, launch: Launch<'_>) -> Vec<RedisServer> {
    thread::scope(|scope| {
        let start = || RedisServer::launch(Version::Redis70, &launch);
        let starts: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|start| start.join().expect("a server starts")).collect()
    })
}

fn watch_often(sentinel: &RedisServer, port: &str, down_after_ms: &str) {
    let periods = ["PING-PERIOD", "100", "ASK-PERIOD", "100", "PUBLISH-PERIOD", "100"];
    let times = ["INFO-PERIOD", "200", "MIN-LINK-RECONNECT-PERIOD", "200"];
    // A sentinel that was paused for two seconds does nothing for 30, unless configured otherwise.
    let others = ["ELECTION-TIMEOUT", "1000", "TILT-PERIOD", "1000"];
    let settings = periods.into_iter().chain(times).chain(others);
    let command: Vec<_> = ["SENTINEL", "DEBUG"].into_iter().chain(settings).collect();
    expect_ok(sentinel, &command);
    expect_ok(sentinel, &["SENTINEL", "MONITOR", SERVICE, "127.0.0.1", port, "2"]);
    let settings = [
        ["down-after-milliseconds", down_after_ms],
        ["failover-timeout", FAILOVER_TIMEOUT_MS],
        ["parallel-syncs", "2"],
    ];
    for [name, value] in settings {
        expect_ok(sentinel, &["SENTINEL", "SET", SERVICE, name, value]);
    }
}

fn is_master(server: &RedisServer) -> bool {
    says(server, "role", "master")
}

fn is_linked(replica: &RedisServer) -> bool {
    says(replica, "master_link_status", "up")
}

/// Whether the server reports this replication state now.
fn says(server: &RedisServer, name: &str, value: &str) -> bool {
    let info = server.try_command(&["INFO", "replication"]);
    info.is_ok_and(|info| field(&info.into_text(), name) == Some(value))
}

fn expect_ok(server: &RedisServer, args: &[&str]) {
    let reply = server.command(args);
    assert_eq!(reply, Reply::Status("OK".to_owned()), "{args:?} to {server:?}");
}
