//! The processes under load, which end with this one.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;

use tempfile::TempDir;

use crate::limits;
use crate::process;

pub const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// Far above the time of a decision: a leg measures decisions, not timeouts.
const STORE_TIMEOUT: &str = "1s";

/// A running program, killed on drop.
pub struct Server {
    child: Child,
    /// The line with which it reported that it was ready.
    said: String,
}

impl Server {
    /// Starts a program and reads its output until it is ready.
    fn start(program: &str, args: &[&str], ready: Ready) -> Self {
        let mut command = process::bound_to_this_process(program);
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") {
                command.env_remove(name);
            }
        }
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            process::spawn(command).unwrap_or_else(|error| panic!("{program}: {error}"));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let said = match ready {
            Ready::Out(phrase) => {
                thread::spawn(|| drain(err));
                wait_for(out, phrase)
            }
            Ready::Err(phrase) => {
                thread::spawn(|| drain(out));
                wait_for(err, phrase)
            }
        };
        Self { child, said: said.unwrap_or_else(|log| panic!("{program} {args:?} ended:\n{log}")) }
    }

    /// Tidegate with the limits files in `folder`.
    pub fn tidegate(folder: &Path, args: &[&str]) -> Self {
        let limits = folder.to_str().unwrap();
        let ports = ["--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"];
        let fixed = ["serve", "--limits", limits, "--store-timeout", STORE_TIMEOUT];
        let text = ["--log-format", "text"];
        Self::start(TIDEGATE, &[&fixed[..], &ports, &text, args].concat(), Ready::Err("http on "))
    }

    fn floor() -> Self {
        let this = env::current_exe().unwrap();
        Self::start(
            this.to_str().unwrap(),
            &["floor", "--addr", "127.0.0.1:0"],
            Ready::Err(GRPC_ON),
        )
    }

    fn redis(port: u16) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(REDIS);
        let port = port.to_string();
        let args = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        Self::start(program.to_str().unwrap(), &args, Ready::Out("Ready to accept connections"))
    }

    /// Its gRPC address.
    pub fn addr(&self) -> String {
        let (_, addr) = self.said.split_once(GRPC_ON).expect("it says where it serves gRPC");
        addr.split_whitespace().next().unwrap().to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        process::kill(&mut self.child);
    }
}

/// The stream and the words that show that a program is ready.
#[derive(Clone, Copy)]
enum Ready {
    Out(&'static str),
    Err(&'static str),
}

const GRPC_ON: &str = "grpc on ";

/// More than all legs use.
const COUNTERS_MAX: &str = "4000000";

/// Installed by tests/tools/install-servers.
pub const REDIS: &str = ".servers/redis-7.0/redis-server";

/// The output of a program up to the line with `ready`, or all of it if it ended before.
fn wait_for(stream: impl Read + Send + 'static, ready: &str) -> Result<String, String> {
    let mut lines = BufReader::new(stream);
    let mut said = String::new();
    loop {
        let start = said.len();
        if lines.read_line(&mut said).unwrap() == 0 {
            return Err(said);
        }
        if said[start..].contains(ready) {
            thread::spawn(|| drain(lines));
            return Ok(said);
        }
    }
}

/// Keeps reading, so that the program never waits for a reader.
fn drain(mut stream: impl Read) {
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

/// The target of a leg.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    pub addr: String,
    /// The process whose CPU time counts as the server's.
    pub pid: Option<u32>,
}

/// All processes that run during the whole bench.
pub struct Servers {
    redis: Server,
    redis_port: u16,
    running: Vec<(&'static str, Server)>,
    others: Vec<Target>,
    _limits: TempDir,
}

impl Servers {
    pub fn start() -> Self {
        let limits = limits::folder();
        let redis_port = free_port();
        let redis = Server::redis(redis_port);
        let url = format!("redis://127.0.0.1:{redis_port}");
        let single = ["--store", &url, "--store-batch-max", "1"];
        let running = vec![
            ("floor", Server::floor()),
            ("memory", Server::tidegate(limits.path(), &["--memory-max-keys", COUNTERS_MAX])),
            ("redis", Server::tidegate(limits.path(), &["--store", &url])),
            ("redis, no batches", Server::tidegate(limits.path(), &single)),
        ];
        Self { redis, redis_port, running, others: others(), _limits: limits }
    }

    pub fn redis_port(&self) -> u16 {
        self.redis_port
    }

    pub fn redis_pid(&self) -> u32 {
        self.redis.pid()
    }

    /// A server of this bench, if it runs.
    pub fn target(&self, name: &str) -> Option<Target> {
        let (name, server) = self.running.iter().find(|(running, _)| *running == name)?;
        Some(Target { name: (*name).to_owned(), addr: server.addr(), pid: Some(server.pid()) })
    }

    /// The services of BENCH_ADDR.
    pub fn others(&self) -> &[Target] {
        &self.others
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// `name=host:port[=pid]`, several by comma.
fn others() -> Vec<Target> {
    let text = env::var("BENCH_ADDR").unwrap_or_default();
    let target = |text: &str| match text.split('=').collect::<Vec<_>>()[..] {
        [name, addr] => Target { name: name.to_owned(), addr: addr.to_owned(), pid: None },
        [name, addr, pid] => {
            let pid =
                pid.parse().unwrap_or_else(|_| panic!("BENCH_ADDR: {pid:?} is no process id"));
            Target { name: name.to_owned(), addr: addr.to_owned(), pid: Some(pid) }
        }
        _ => panic!("BENCH_ADDR: {text:?} is not name=host:port[=pid]"),
    };
    text.split(',').filter(|part| !part.is_empty()).map(target).collect()
}
