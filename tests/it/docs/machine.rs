//! The machine that a reader of a page has: the program, a service with the example limits, a
//! Redis, and the page's files. Addresses on the page are replaced by those of this machine.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;

use crate::support::pages::words;
use crate::support::process;
use crate::support::servers::{RedisServer, Version, free_port};
use crate::support::tidegate::Tidegate;
use crate::support::tools::{root, text};

/// A file with mistakes for README's `check`.
const BAD: &str = "domain: edge
descriptors:
  - key: user_id
    rate_limit: { unit: secnd, requests_per_unit: 10 }
  - key: ip
    rate_limit: { limit: 3, period: 1m, brst: 5 }
";

pub(super) struct Machine {
    folder: TempDir,
    /// `None` between two services.
    service: Option<Tidegate>,
    redis: RedisServer,
    admin: u16,
}

/// The output of a command, including stderr.
pub(super) struct Printed {
    pub(super) code: i32,
    pub(super) text: String,
}

impl Machine {
    pub(super) fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let program = env!("CARGO_BIN_EXE_tidegate");
        for (link, to) in [
            ("bin/tidegate", Path::new(program)),
            ("target/quick/tidegate", Path::new(program)),
            ("deploy", &root().join("deploy")),
        ] {
            let link = folder.path().join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(to, link).unwrap();
        }
        let limits = folder.path().join("etc/tidegate/limits");
        fs::create_dir_all(&limits).unwrap();
        for folder in [&limits, limits.parent().unwrap()] {
            fs::write(folder.join("limits.yaml"), text("deploy/example/limits.yaml")).unwrap();
        }
        let redis = RedisServer::start(Version::Redis70);
        let mut machine = Self { folder, service: None, redis, admin: free_port() };
        fs::write(machine.folder.path().join("bad.yaml"), BAD).unwrap();
        let served = "tidegate serve --limits /etc/tidegate/limits --admin-addr 127.0.0.1:8082";
        machine.serve(served);
        machine
    }

    /// Writes a file whose first line is a comment with its name.
    pub(super) fn write(&self, text: &str) {
        let name = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap();
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c));
        if is_plain && name.ends_with(".yaml") {
            fs::write(self.folder.path().join(name), text).unwrap();
        }
    }

    pub(super) fn run(&mut self, command: &str) -> Printed {
        let ours = command.replace("target/quick/tidegate", "tidegate");
        if ours.starts_with("tidegate serve ") {
            self.serve(&ours);
            return Printed { code: 0, text: String::new() };
        }
        let mut shell = process::bound_to_this_process("sh");
        shell.args(["-c", &format!("exec 2>&1\n{}", self.here(command))]);
        shell.current_dir(self.folder.path()).env("PATH", self.path());
        let service = self.service.as_ref().unwrap();
        // Readers have a terminal.
        shell.env("TIDEGATE_LOG_FORMAT", "text");
        shell.env("TIDEGATE_ADDR", service.grpc.to_string());
        shell.env("TIDEGATE_HTTP_ADDR", service.http.to_string());
        shell.env("TIDEGATE_ADMIN_ADDR", format!("127.0.0.1:{}", self.admin));
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = process::spawn(shell).expect("sh starts");
        let output = child.wait_with_output().expect("a child can be waited for");
        let text = String::from_utf8(output.stdout).expect("commands print text");
        let is_missing = output.status.code() == Some(127) || text.contains(": not found");
        assert!(!is_missing, "{command}: {text}run tests/tools/install-servers redis-7.0 curl");
        Printed { code: output.status.code().unwrap_or(-1), text: self.there(&text) }
    }

    /// Replaces the service by the one that a command starts.
    fn serve(&mut self, command: &str) {
        self.service = None;
        let mut words = words(&self.here(command));
        // A file of the page.
        for word in words.iter_mut().filter(|word| self.folder.path().join(word).is_file()) {
            *word = self.folder.path().join(&*word).to_str().unwrap().to_owned();
        }
        let mut args = Vec::new();
        let mut words = words.iter().skip(2).map(String::as_str).filter(|word| *word != "&");
        while let Some(word) = words.next() {
            // The machine assigns its addresses.
            if ["--grpc-addr", "--http-addr"].contains(&word) {
                words.next();
            } else {
                args.push(word);
            }
        }
        // A busy machine must not count as an outage.
        if !args.contains(&"--store-timeout") {
            args.extend(["--store-timeout", "2s"]);
        }
        self.service = Some(Tidegate::serve(&args));
    }

    /// Replaces a page's addresses and paths by those of this machine.
    fn here(&self, command: &str) -> String {
        let redis = self.redis.addr().to_string();
        let mut command = command.replace("/data/ratelimit/config", "/etc/tidegate/limits");
        command = command.replace("/etc/tidegate", &self.etc());
        for page in ["127.0.0.1:6379", "redis:6379", "10.0.0.5:6379"] {
            command = command.replace(page, &redis);
        }
        command = command.replace("127.0.0.1:8082", &format!("127.0.0.1:{}", self.admin));
        command =
            command.replace("redis-cli ", &format!("redis-cli -p {} ", self.redis.addr().port()));
        if let Some(service) = &self.service {
            command = command.replace("127.0.0.1:8080", &service.http.to_string());
            command = command.replace("127.0.0.1:8081", &service.grpc.to_string());
        }
        command
    }

    /// Replaces the machine's addresses and paths in output by the page's.
    fn there(&self, text: &str) -> String {
        let mut text = text.replace(&self.etc(), "/etc/tidegate");
        text = text.replace(&self.redis.addr().to_string(), "127.0.0.1:6379");
        if let Some(service) = &self.service {
            text = text.replace(&service.http.to_string(), "127.0.0.1:8080");
            text = text.replace(&service.grpc.to_string(), "127.0.0.1:8081");
        }
        text.replace(&format!("127.0.0.1:{}", self.admin), "127.0.0.1:8082")
    }

    fn etc(&self) -> String {
        self.folder.path().join("etc/tidegate").to_str().unwrap().to_owned()
    }

    fn path(&self) -> std::ffi::OsString {
        let others = env::var_os("PATH").unwrap_or_default();
        let folders = [self.folder.path().join("bin")].into_iter().chain(env::split_paths(&others));
        env::join_paths(folders).expect("folders without the separator")
    }
}
