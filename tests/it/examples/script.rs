//! `deploy/example/run`: one command starts an example and stops it.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::{fitted, folder};
use crate::support::process;
use crate::support::servers::free_port;
use crate::support::web::Web;

/// The deadline for both programs to start, and to stop.
const DEADLINE: Duration = Duration::from_secs(60);

/// The script with a copy of an example that uses the test's own ports.
struct Script {
    child: Child,
    tidegate: SocketAddr,
    front: SocketAddr,
    folder: TempDir,
}

impl Script {
    fn start(example: &str) -> Self {
        let copy = TempDir::new().unwrap();
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (tidegate, front) = (local(free_port()), local(free_port()));
        let to = copy.path().join(example);
        fs::create_dir(&to).unwrap();
        fs::copy(folder("run"), copy.path().join("run")).unwrap();
        fs::copy(folder(example).join("limits.yaml"), to.join("limits.yaml")).unwrap();
        let config = fs::read_to_string(folder(example).join("envoy.yaml")).unwrap();
        let config = fitted(&config, tidegate, front.port(), free_port());
        fs::write(to.join("envoy.yaml"), config).unwrap();

        let mut command = process::bound_to_this_process("sh");
        command.arg(copy.path().join("run")).arg(example);
        command.env("PATH", path_with_both()).stdin(Stdio::null());
        command.env("TIDEGATE_GRPC_ADDR", tidegate.to_string());
        command.env("TIDEGATE_HTTP_ADDR", "127.0.0.1:0");
        let log = File::create(copy.path().join("log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = process::spawn(command).expect("sh starts");
        Self { child, tidegate, front, folder: copy }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            // If killed, it could not stop the programs that it started.
            process::signal(&self.child, "TERM");
            process::wait_for_exit(&mut self.child, DEADLINE);
        }
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log"));
            eprintln!("the log of the script:\n{}", log.unwrap_or_default());
        }
    }
}

fn path_with_both() -> std::ffi::OsString {
    let tidegate = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("a folder");
    let envoy = Path::new(env!("CARGO_MANIFEST_DIR")).join(".servers/envoy");
    let others = env::var_os("PATH").unwrap_or_default();
    let folders = [tidegate.to_owned(), envoy].into_iter().chain(env::split_paths(&others));
    env::join_paths(folders).expect("folders without the separator")
}

#[tokio::test]
async fn one_command_starts_an_example_and_stops_it() {
    let cases = [("envoy", "/healthz", 200), ("llm-tokens", "/", 401)];
    for (example, path, status) in cases {
        let mut script = Script::start(example);
        let ask = Web::on(script.front).get(path);
        let answered = process::eventually(DEADLINE, async || ask.try_send().await).await;
        assert_eq!(answered.expect("envoy answers").status, status, "{example}");
        // Envoy may be up first, and answers without it.
        let listens = || TcpStream::connect(script.tidegate).ok();
        process::wait_until(DEADLINE, listens).expect("tidegate listens");
        process::signal(&script.child, "TERM");
        let ended = process::wait_for_exit(&mut script.child, DEADLINE);
        assert_eq!(ended.expect("the script ends").code(), Some(143), "{example}");
        for addr in [script.front, script.tidegate] {
            TcpStream::connect(addr).expect_err("nothing listens any more");
        }
    }
}

#[test]
fn without_an_example_the_command_lists_them() {
    let mut command = std::process::Command::new("sh");
    let output = command.arg(folder("run")).arg("nothing").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && printed.contains("envoy | llm-tokens"), "{printed}");
}
