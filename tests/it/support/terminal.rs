//! A command that runs while the test looks: at a terminal, or with its output in pipes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use super::process;
use super::tidegate::program;

/// The deadline for output, and for the end after a signal.
const DEADLINE: Duration = Duration::from_secs(30);

/// A running command, killed on drop.
pub struct Running {
    child: Child,
    /// What it printed to standard output and to standard error so far.
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
    readers: Vec<thread::JoinHandle<()>>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Running {
    /// Starts `tidegate` with all output in pipes.
    pub fn piped(args: &[&str]) -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        Self::start(args, writer.into(), reader)
    }

    /// Starts `tidegate` with a terminal as standard error.
    pub fn at_terminal(args: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let terminal = openpt(flags).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("it can be opened");
        let end: OwnedFd = ioctl_tiocgptpeer(&terminal, flags).expect("it has another end");
        Self::start(args, end, File::from(terminal))
    }

    fn start(args: &[&str], err: OwnedFd, err_reader: impl Read + Send + 'static) -> Self {
        let mut command = program();
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(err);
        let mut child = process::spawn(command).expect("tidegate starts");
        let (out, err) = (Arc::default(), Arc::default());
        let stdout = child.stdout.take().expect("its output is piped");
        let readers = vec![collect(stdout, &out), collect(err_reader, &err)];
        Self { child, out, err, readers }
    }

    /// Its standard input.
    pub fn stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("its input is piped and was not taken")
    }

    /// Waits until standard output or standard error satisfies a condition.
    ///
    /// # Panics
    /// When it does not in time.
    pub fn wait_for(&self, condition: impl Fn(&str, &str) -> bool) {
        let met = || condition(&self.out.lock().unwrap(), &self.err.lock().unwrap()).then_some(());
        process::wait_until(DEADLINE, met).unwrap_or_else(|| {
            panic!("it printed:\n{}\n{}", self.out.lock().unwrap(), self.err.lock().unwrap())
        });
    }

    /// Sends a signal, as `INT`.
    pub fn signal(&self, name: &str) {
        process::signal(&self.child, name);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn end(mut self) -> Ended {
        let status = process::wait_for_exit(&mut self.child, DEADLINE);
        process::kill(&mut self.child);
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader does not panic");
        }
        let (out, err) = (self.out.lock().unwrap().clone(), self.err.lock().unwrap().clone());
        let status = status.unwrap_or_else(|| panic!("it still runs; it printed:\n{out}\n{err}"));
        Ended { code: status.code(), out, err }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        process::kill(&mut self.child);
    }
}

/// Runs `tidegate` with a standard output that nobody reads, and `input` as its input.
///
/// # Panics
/// When it does not end in time.
pub fn run_unread(args: &[&str], input: &str) -> Ended {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = program();
    command.args(args).stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped());
    let mut child = process::spawn(command).expect("tidegate starts");
    let err = Arc::default();
    let reader = collect(child.stderr.take().expect("its error output is piped"), &err);
    let mut stdin = child.stdin.take().expect("its input is piped");
    let input = input.to_owned();
    // It may end without reading all of it.
    thread::spawn(move || stdin.write_all(input.as_bytes()));
    let status = process::wait_for_exit(&mut child, DEADLINE);
    process::kill(&mut child);
    reader.join().expect("a reader does not panic");
    let err = err.lock().unwrap().clone();
    let status = status.unwrap_or_else(|| panic!("{args:?} still runs: {err}"));
    Ended { code: status.code(), out: String::new(), err }
}

/// Collects a stream to its end, which for a terminal is an error.
fn collect(
    mut stream: impl Read + Send + 'static,
    text: &Arc<Mutex<String>>,
) -> thread::JoinHandle<()> {
    let text = Arc::clone(text);
    thread::spawn(move || {
        let mut buffer = [0; 4_096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            *text.lock().unwrap() += &String::from_utf8_lossy(&buffer[..length]);
        }
    })
}
