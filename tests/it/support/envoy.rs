//! A real Envoy as a value: in front of an upstream that echoes, and asking Tidegate first.
//!
//! The program is that of `tests/tools/install-servers`. It takes free ports by itself and writes
//! the admin's to a file; its folder holds its configuration and its log.

mod config;

use std::fmt::Write;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

pub use config::Config;

use super::process;
use super::web::{Web, WebRequest};

/// From the start of Envoy to its listeners, on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// For something that Envoy counts to come true.
const STAT_DEADLINE: Duration = Duration::from_secs(20);

/// A running Envoy, killed on drop.
pub struct Envoy {
    /// Where it serves.
    pub addr: SocketAddr,
    admin: Web,
    web: Web,
    child: Child,
    folder: TempDir,
}

impl Envoy {
    /// Starts an Envoy and waits until it is ready.
    ///
    /// # Panics
    /// When it is not installed, refuses the configuration or is not ready in time; its log is
    /// shown.
    pub async fn start(config: &Config) -> Self {
        let folder = tempfile::tempdir().expect("a folder for temporary files");
        let path = folder.path().join("envoy.json");
        fs::write(&path, config.to_string()).expect("the folder is writable");
        Self::of_file(&path, folder).await
    }

    /// Starts an Envoy with a configuration file, whose first listener it speaks to.
    ///
    /// # Panics
    /// As [`Envoy::start`].
    pub async fn of_file(config: &Path, folder: TempDir) -> Self {
        let mut child = spawn(config, folder.path());
        let ready = process::eventually(START_DEADLINE, async || {
            if child.try_wait().expect("a child can be waited for").is_some() {
                return Some(None);
            }
            ready(folder.path()).await.map(Some)
        });
        if let Some(Some((admin, addr))) = ready.await {
            let web = Web::on(addr);
            return Self { addr, admin: Web::on(admin), web, child, folder };
        }
        process::kill(&mut child);
        panic!("envoy did not become ready; its log:\n{}", log(folder.path()))
    }

    /// A request to it, over HTTP/1.1.
    pub fn get(&self, path: &str) -> WebRequest {
        self.web.get(path)
    }

    /// A client of its own, over HTTP/2.
    pub fn http2(&self) -> Web {
        Web::http2_on(self.addr)
    }

    /// One of its counters and gauges; 0 if it does not know it yet.
    ///
    /// # Panics
    /// When the admin port does not answer.
    pub async fn stat(&self, name: &str) -> u64 {
        stat(&self.admin, name).await
    }

    /// Waits until one of its counters or gauges is at least so high.
    ///
    /// # Panics
    /// When it is not in time.
    pub async fn wait_for_stat(&self, name: &str, least: u64) {
        let mut seen = 0;
        let reached = process::eventually(STAT_DEADLINE, async || {
            seen = self.stat(name).await;
            (seen >= least).then_some(())
        });
        assert!(reached.await.is_some(), "{name} is {seen}, not {least}");
    }

    /// What it wrote: its own log, and the access log of a configuration that has one there.
    pub fn log(&self) -> String {
        log(self.folder.path())
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        process::kill(&mut self.child);
        if thread::panicking() {
            eprintln!("the log of envoy on {}:\n{}", self.addr, self.log());
        }
    }
}

fn spawn(config: &Path, folder: &Path) -> Child {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".servers/envoy/envoy");
    assert!(program.exists(), "envoy is not installed: run tests/tools/install-servers envoy");
    let program = program.to_str().expect("the checkout's path is UTF-8");
    let log = File::create(folder.join("log")).expect("the folder is writable");
    let mut command: Command = process::bound_to_this_process(program);
    // Without hot restart there is no shared memory that several Envoys could meet in.
    command.args(["--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"]);
    command.arg("--config-path").arg(config);
    command.arg("--admin-address-path").arg(folder.join("admin"));
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
    process::spawn(command).unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// The addresses of the admin port and of the first listener, once it serves.
async fn ready(folder: &Path) -> Option<(SocketAddr, SocketAddr)> {
    let admin = fs::read_to_string(folder.join("admin")).ok()?.trim().parse().ok()?;
    let web = Web::on(admin);
    if web.get("/ready").try_send().await?.status != 200 {
        return None;
    }
    // A line for each: `name::address`.
    let listeners = web.get("/listeners").try_send().await?.body;
    let address = listeners.lines().next()?.split_once("::")?.1;
    Some((admin, address.parse().ok()?))
}

async fn stat(admin: &Web, name: &str) -> u64 {
    let mut path = "/stats?filter=^".to_owned();
    write!(path, "{}$", name.replace('.', "\\.")).expect("a string takes all");
    let page = admin.get(&path).send().await;
    let value = page.body.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
    value.map_or(0, |value| value.parse().expect("a number"))
}

fn log(folder: &Path) -> String {
    fs::read(folder.join("log")).map_or_else(
        |error| format!("no log: {error}"),
        |log| String::from_utf8_lossy(&log).into_owned(),
    )
}
