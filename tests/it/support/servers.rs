//! Real Redis and Valkey servers as values.
//!
//! The programs are installed by `tests/tools/install-servers`; a test without its server fails
//! with that message. Each server has a port and a folder of its own, stores nothing on disk,
//! listens on loopback only and is killed on drop.
//!
//! A server's port is below the ports that the kernel assigns to outgoing connections: while a test
//! has stopped a server, neither another process's connection nor the client's own reconnects can
//! take the port.

use std::fmt;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use super::process;
use super::resp::{Connection, ask, field};

pub use super::resp::Reply;

/// The deadline from the start of a server to its first answer.
const START_DEADLINE: Duration = Duration::from_secs(10);

/// The deadline from a write until replicas have it.
const REPLICATION_DEADLINE: Duration = Duration::from_secs(10);

/// The number of ports tried for one server before its start fails.
const PORTS_TRIED_MAX: u32 = 10;

/// The servers that Tidegate supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The oldest.
    Redis62,
    /// The most common one.
    Redis70,
    /// The newest.
    Valkey91,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 3] = [Self::Redis62, Self::Redis70, Self::Valkey91];

    /// The path of the installed program.
    fn program(self) -> PathBuf {
        let path = match self {
            Self::Redis62 => ".servers/redis-6.2/redis-server",
            Self::Redis70 => ".servers/redis-7.0/redis-server",
            Self::Valkey91 => ".servers/valkey-9.1/valkey-server",
        };
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        assert!(program.exists(), "{self:?} is not installed: run tests/tools/install-servers");
        program
    }
}

/// A running server, or one that was stopped with [`RedisServer::stop`].
pub struct RedisServer {
    version: Version,
    port: u16,
    /// `None` when stopped.
    child: Option<Child>,
    args: Vec<String>,
    /// Further ports, by the arguments that set them.
    more_ports: Vec<(&'static str, u16)>,
    sentinel: bool,
    folder: TempDir,
}

/// How to start a server; the default is a plain one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Launch<'a> {
    /// Further arguments.
    pub args: &'a [&'a str],
    /// Arguments that each get a free port, such as `--tls-port`.
    pub ports: &'a [&'static str],
    /// Whether to start a sentinel instead.
    pub sentinel: bool,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// When the server is not installed, or does not answer in time.
    pub fn start(version: Version) -> Self {
        Self::start_with(version, &[])
    }

    /// Starts a server with further arguments, such as `["--maxmemory", "1mb"]`.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    pub fn start_with(version: Version, args: &[&str]) -> Self {
        Self::launch(version, &Launch { args, ..Launch::default() })
    }

    /// Starts a server with these options.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    pub fn launch(version: Version, launch: &Launch<'_>) -> Self {
        let mut server = Self {
            version,
            port: free_port(),
            child: None,
            args: launch.args.iter().map(ToString::to_string).collect(),
            more_ports: launch.ports.iter().map(|name| (*name, free_port())).collect(),
            sentinel: launch.sentinel,
            folder: tempfile::tempdir().expect("a folder for temporary files"),
        };
        for _ in 0..PORTS_TRIED_MAX {
            if server.try_start() {
                return server;
            }
            if !server.log().contains("in use") {
                break;
            }
            server.port = free_port();
            server.more_ports.iter_mut().for_each(|(_, port)| *port = free_port());
        }
        panic!("{version:?} does not start: {}", server.log());
    }

    /// The URL for clients.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The port that [`Launch::ports`] assigned to this argument.
    ///
    /// # Panics
    /// When there is none.
    pub fn port_of(&self, argument: &str) -> u16 {
        let found = self.more_ports.iter().find(|(name, _)| *name == argument);
        found.unwrap_or_else(|| panic!("{self:?} has no {argument}")).1
    }

    /// The server's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Kills the server, so that its data is lost and its connections break.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::kill(&mut child);
        }
    }

    /// Stops the server if it runs and starts an empty one on the same port.
    ///
    /// # Panics
    /// When it does not answer in time.
    pub fn restart(&mut self) {
        self.stop();
        assert!(self.try_start(), "{:?} does not start again: {}", self.version, self.log());
    }

    /// Starts a server with other arguments on the same port, and stops this one.
    ///
    /// # Panics
    /// When it does not answer in time.
    pub fn replaced_by(mut self, args: &[&str]) -> Self {
        self.stop();
        let args = args.iter().map(ToString::to_string).collect();
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let (version, port) = (self.version, self.port);
        let (child, more_ports, sentinel) = (None, Vec::new(), false);
        let mut server = Self { version, port, child, args, more_ports, sentinel, folder };
        assert!(server.try_start(), "{version:?} does not start: {}", server.log());
        server
    }

    /// Pauses the server with open connections, until [`RedisServer::resume`].
    pub fn pause(&self) {
        process::signal(self.running(), "STOP");
    }

    /// Resumes after [`RedisServer::pause`].
    pub fn resume(&self) {
        process::signal(self.running(), "CONT");
    }

    /// Sends one command over a new connection.
    ///
    /// # Panics
    /// When no reply comes in time. An error reply is a [`Reply::Error`].
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        ask(self.port, args).unwrap_or_else(|error| {
            panic!("no reply from {:?} on port {}: {error}", self.version, self.port)
        })
    }

    /// As [`RedisServer::command`], if the server may be about to close its connections: a change
    /// of its role by a sentinel does so.
    ///
    /// # Errors
    /// No reply comes.
    pub fn try_command<A: AsRef<[u8]>>(&self, args: &[A]) -> io::Result<Reply> {
        ask(self.port, args)
    }

    /// Sends a write command, and waits until so many replicas have its effect. A replica that has
    /// just synchronized is linked, but receives writes up to a second later; WAIT only waits for
    /// writes of its own connection.
    ///
    /// # Panics
    /// When they do not have it in time.
    pub fn replicated(&self, replicas: i64, args: &[&str]) -> Reply {
        let mut connection = Connection::open(self.port).expect("a connection");
        connection.wait_at_most(2 * REPLICATION_DEADLINE);
        let reply = connection.command(args).expect("a reply");
        let deadline_ms = REPLICATION_DEADLINE.as_millis().to_string();
        let waited = connection.command(&["WAIT", &replicas.to_string(), &deadline_ms]);
        assert_eq!(waited.expect("a reply"), Reply::Int(replicas), "replicas of {self:?}");
        reply
    }

    /// All keys, in no order.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut cursor = b"0".to_vec();
        loop {
            let step = self.command(&[b"SCAN".as_slice(), &cursor, b"COUNT", b"1000"]);
            let [next, page] = step.into_array().try_into().expect("a cursor and keys");
            keys.extend(page.into_array().into_iter().map(Reply::into_bytes));
            cursor = next.into_bytes();
            if cursor == b"0" {
                // SCAN may name a key twice.
                keys.sort();
                keys.dedup();
                return keys;
            }
        }
    }

    /// EVALSHA calls since the start, including those that failed because the script was missing.
    pub fn evalsha_calls(&self) -> u64 {
        let info = self.info("commandstats");
        let Some(stats) = field(&info, "cmdstat_evalsha") else {
            return 0;
        };
        let calls = stats.split(',').find_map(|stat| stat.strip_prefix("calls="));
        calls.and_then(|calls| calls.parse().ok()).expect("INFO commandstats counts calls")
    }

    /// CPU time since the start, including the kernel's share.
    pub fn used_cpu(&self) -> Duration {
        let info = self.info("cpu");
        let time = |name| {
            let seconds = field(&info, name).and_then(|seconds| seconds.parse().ok());
            Duration::from_secs_f64(seconds.expect("INFO cpu gives seconds"))
        };
        time("used_cpu_user") + time("used_cpu_sys")
    }

    /// One section of INFO.
    pub fn info(&self, section: &str) -> String {
        String::from_utf8(self.command(&["INFO", section]).into_bytes()).expect("INFO is text")
    }

    /// The server's log.
    pub fn log(&self) -> String {
        fs::read(self.log_path()).map_or_else(
            |error| format!("no log: {error}"),
            |log| String::from_utf8_lossy(&log).into_owned(),
        )
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Starts the process; false if it ended, for example because another one took the port.
    fn try_start(&mut self) -> bool {
        let mut child = self.spawn();
        let answered = process::wait_until(START_DEADLINE, || {
            let ended = child.try_wait().expect("a child can be waited for").is_some();
            if ended { Some(false) } else { answers(self.port, child.id()).then_some(true) }
        });
        if answered == Some(true) {
            self.child = Some(child);
            return true;
        }
        process::kill(&mut child);
        assert!(answered.is_some(), "{:?} does not answer in time: {}", self.version, self.log());
        false
    }

    fn spawn(&self) -> Child {
        let program = self.version.program();
        let program = program.to_str().expect("the checkout's path is UTF-8");
        let mut command = process::bound_to_this_process(program);
        command.current_dir(self.folder.path());
        if self.sentinel {
            // It writes its own state there.
            let kept = self.folder.path().join("sentinel.conf");
            File::options().create(true).append(true).open(kept).expect("it is writable");
            command.args(["sentinel.conf", "--sentinel"]);
        }
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string()]);
        command.args(["--save", "", "--appendonly", "no"]);
        for (name, port) in &self.more_ports {
            command.args([*name, &port.to_string()]);
        }
        command.args(&self.args);
        // Mistakes in its arguments are printed before its log starts, and elsewhere.
        let log = File::options().create(true).append(true).open(self.log_path());
        let log = log.expect("the server's folder can be written");
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        process::spawn(command).unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    fn running(&self) -> &Child {
        self.child.as_ref().expect("the server was stopped")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on port {}", self.version, self.port)
    }
}

/// A free port, which this process was not given before.
///
/// # Panics
/// When there is none.
pub fn free_port() -> u16 {
    /// Below the outgoing ports of Linux (from 32,768) and macOS (from 49,152).
    const FIRST: u16 = 16_384;
    const COUNT: u16 = 16_384;
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    let next = NEXT.get_or_init(|| {
        // Concurrent test processes start at different ports.
        let [high, low, ..] = RandomState::new().hash_one(FIRST).to_be_bytes();
        AtomicU16::new(u16::from_be_bytes([high, low]))
    });
    (0..COUNT)
        .map(|_| FIRST + next.fetch_add(1, Ordering::Relaxed) % COUNT)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a port below 32768 is free")
}

/// Whether the process `id` answers on `port`, rather than another one that took the port before
/// it.
fn answers(port: u16, id: u32) -> bool {
    match ask(port, &["INFO", "server"]) {
        Ok(Reply::Bulk(info)) => {
            field(&String::from_utf8_lossy(&info), "process_id") == Some(&id.to_string())
        }
        // A server with a password only answers with an error.
        Ok(Reply::Error(error)) => error.starts_with("NOAUTH"),
        _ => false,
    }
}
