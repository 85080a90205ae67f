//! The real program as a value: `tidegate serve` on ports of its own, and the other commands.
//!
//! It does not inherit settings from the environment of the tests (`TIDEGATE_…`, `RUST_LOG`).

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::process;

/// The deadline from the start of the service to the log lines with its addresses.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// The deadline from SIGTERM to the end, above any drain timeout in tests.
const EXIT_DEADLINE: Duration = Duration::from_secs(30);

/// The deadline for a log line.
const LOG_DEADLINE: Duration = Duration::from_secs(30);

/// The deadline of a command other than `serve`.
const RUN_DEADLINE: Duration = Duration::from_secs(60);

/// A running `tidegate serve`, killed on drop.
pub struct Tidegate {
    /// Its gRPC address.
    pub grpc: SocketAddr,
    /// Its HTTP address.
    pub http: SocketAddr,
    child: Child,
    log: Arc<Mutex<String>>,
    /// Held while a line is read.
    reading: Arc<Mutex<()>>,
}

/// While this exists, the log of a service is not read.
pub struct Unread<'a> {
    _held: MutexGuard<'a, ()>,
}

impl Tidegate {
    /// Starts the service with `args` after its addresses, and waits until it logs them. Its
    /// shutdown has no delay, unless `args` say otherwise.
    ///
    /// # Panics
    /// When it ends or logs no addresses in time; the message contains its log.
    pub fn serve(args: &[&str]) -> Self {
        Self::serve_on((Ipv4Addr::LOCALHOST, 0).into(), args)
    }

    /// The same on a given address, as after a restart.
    ///
    /// # Panics
    /// As [`Tidegate::serve`].
    pub fn serve_on(grpc: SocketAddr, args: &[&str]) -> Self {
        Self::serve_at(&grpc.to_string(), "127.0.0.1:0", args)
    }

    /// The same on addresses that may be Unix sockets; [`Tidegate::grpc`] and [`Tidegate::http`]
    /// are unspecified then.
    ///
    /// # Panics
    /// As [`Tidegate::serve`].
    pub fn serve_at(grpc: &str, http: &str, args: &[&str]) -> Self {
        Self::start(program(), grpc, http, args)
    }

    /// As [`Tidegate::serve`], with an environment variable.
    ///
    /// # Panics
    /// As [`Tidegate::serve`].
    pub fn serve_with_variable(name: &str, value: &str, args: &[&str]) -> Self {
        let mut command = program();
        command.env(name, value);
        Self::start(command, "127.0.0.1:0", "127.0.0.1:0", args)
    }

    fn start(mut command: Command, grpc: &str, http: &str, args: &[&str]) -> Self {
        command.args(["serve", "--grpc-addr", grpc, "--http-addr", http]);
        if !args.contains(&"--drain-delay") {
            command.args(["--drain-delay", "0"]);
        }
        command.args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = process::spawn(command).expect("tidegate starts");
        let (log, reading) = (Arc::new(Mutex::new(String::new())), Arc::default());
        let lines = follow(child.stderr.take().expect("its error output is piped"), &log, &reading);
        match read_addresses(&lines) {
            Ok((grpc, http)) => Self { grpc, http, child, log, reading },
            Err(reason) => {
                process::kill(&mut child);
                let log = log.lock().unwrap();
                panic!("tidegate serve {args:?} {reason}; its log:\n{log}")
            }
        }
    }

    /// Runs another command to its end, with `stdin` as its input.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn run(args: &[&str], stdin: &str) -> Output {
        let mut command = program();
        command.args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = process::spawn(command).expect("tidegate starts");
        let stdout = read_all(child.stdout.take().expect("its output is piped"));
        let stderr = read_all(child.stderr.take().expect("its error output is piped"));
        let mut input = child.stdin.take().expect("its input is piped");
        let text = stdin.to_owned();
        // A command may end without reading its input, and then this may fail.
        thread::spawn(move || input.write_all(text.as_bytes()));
        let status = process::wait_for_exit(&mut child, RUN_DEADLINE);
        process::kill(&mut child);
        let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
        let Some(status) = status else {
            let stderr = String::from_utf8_lossy(&stderr);
            panic!("tidegate {args:?} still runs after {RUN_DEADLINE:?}:\n{stderr}")
        };
        Output { status, stdout, stderr }
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until its log contains `text`: lines arrive here a little later.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_for_log(&self, text: &str) {
        let logged = || Some(()).filter(|()| self.log().contains(text));
        process::wait_until(LOG_DEADLINE, logged)
            .unwrap_or_else(|| panic!("no {text:?} in the log:\n{}", self.log()));
    }

    /// Stops reading its log, until this is dropped.
    pub fn leave_log_unread(&self) -> Unread<'_> {
        Unread { _held: self.reading.lock().unwrap() }
    }

    /// Pauses it with open connections, until [`Tidegate::resume`].
    pub fn pause(&self) {
        process::signal(&self.child, "STOP");
    }

    /// Resumes after [`Tidegate::pause`].
    pub fn resume(&self) {
        process::signal(&self.child, "CONT");
    }

    /// Kills it, as a crash would. Its connections break.
    pub fn kill(&mut self) {
        process::kill(&mut self.child);
    }

    /// Sends SIGHUP.
    pub fn ask_to_reload(&self) {
        process::signal(&self.child, "HUP");
    }

    /// Its resident memory in KiB, as Linux counts it, without the program itself, which is larger
    /// in a test build.
    ///
    /// # Panics
    /// On other systems.
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("it runs, on Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.expect("Linux tells it in kB")
    }

    /// Sends SIGTERM.
    pub fn ask_to_end(&self) {
        process::signal(&self.child, "TERM");
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn terminate(&mut self) -> ExitStatus {
        self.ask_to_end();
        self.wait_for_end()
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        process::wait_for_exit(&mut self.child, EXIT_DEADLINE)
            .unwrap_or_else(|| panic!("tidegate ignores SIGTERM; its log:\n{}", self.log()))
    }
}

impl Drop for Tidegate {
    fn drop(&mut self) {
        process::kill(&mut self.child);
        if thread::panicking() {
            // The test runner shows it with the failed test.
            eprintln!("the log of tidegate on {}:\n{}", self.grpc, self.log());
        }
    }
}

/// A command for the program, without the settings of this environment.
pub(super) fn program() -> Command {
    let mut command = process::bound_to_this_process(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("TIDEGATE_") || text.starts_with("OTEL_") || text == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    // Helps people to see why a test failed; a flag overrides it.
    command.env("TIDEGATE_LOG_FORMAT", "text");
    command
}

/// Reads the log to its end, so that the service never waits for a reader; passes its lines on.
fn follow(
    stderr: impl Read + Send + 'static,
    log: &Arc<Mutex<String>>,
    reading: &Arc<Mutex<()>>,
) -> Receiver<String> {
    let (log, reading) = (Arc::clone(log), Arc::clone(reading));
    let (sender, lines): (Sender<String>, _) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            // A test that failed while it held this is over.
            let _reading = reading.lock();
            *log.lock().unwrap() += &format!("{line}\n");
            // The channel has no receiver once the addresses are known.
            let _ = sender.send(line);
        }
    });
    lines
}

fn read_addresses(lines: &Receiver<String>) -> Result<(SocketAddr, SocketAddr), &'static str> {
    let (mut grpc, mut http) = (None, None);
    let start = Instant::now();
    loop {
        let left = START_DEADLINE.saturating_sub(start.elapsed());
        let line = lines.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => "did not name its addresses in time",
            RecvTimeoutError::Disconnected => "ended at its start",
        })?;
        grpc = grpc.or_else(|| address_after(&line, "grpc on "));
        http = http.or_else(|| address_after(&line, "http on "));
        if let (Some(grpc), Some(http)) = (grpc, http) {
            return Ok((grpc, http));
        }
    }
}

fn address_after(line: &str, phrase: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(phrase)?;
    if rest.starts_with("unix:") {
        return Some((Ipv4Addr::UNSPECIFIED, 0).into());
    }
    let len = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':');
    rest[..len.unwrap_or(rest.len())].parse().ok()
}

fn read_all(mut stream: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output before an error is still worth showing.
        let _ = stream.read_to_end(&mut bytes);
        bytes
    })
}
