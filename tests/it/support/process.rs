//! Child processes that end with the tests.
//!
//! A value that owns a child kills it on drop, but a test process that is itself killed drops
//! nothing. On Linux `setpriv --pdeathsig` (util-linux) makes the kernel kill the child in that
//! case. The kernel watches the *thread* that started the child, and each test has a thread of its
//! own, so one thread that lives as long as the process starts all children: a server in a static
//! may outlive the test that started it. Without `setpriv` (macOS), children of a killed test
//! process remain, and must be ended by hand.

use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The poll interval of [`wait_until`] and [`eventually`].
const POLL: Duration = Duration::from_millis(5);

type Order = (Command, Sender<io::Result<Child>>);

/// Starts `command`, which ends with this process at the latest.
pub fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        });
        orders
    });
    let (reply, child) = channel();
    spawner.send((command, reply)).expect("the spawner lives as long as the process");
    child.recv().expect("the spawner answers every order")
}

/// A command for `program` that the kernel kills when the thread that starts it dies.
pub fn bound_to_this_process(program: &str) -> Command {
    static HAS_SETPRIV: OnceLock<bool> = OnceLock::new();
    let probe = || {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "true"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !*HAS_SETPRIV.get_or_init(probe) {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// Sends `name` (`TERM`, `STOP`, `CONT`, …) to a child that has not been waited for.
pub fn signal(child: &Child, name: &str) {
    // Uses the shell's own `kill`: small machines have no other.
    let script = format!("kill -{name} {}", child.id());
    let status = Command::new("sh").args(["-c", &script]).status().expect("sh runs");
    assert!(status.success(), "cannot send SIG{name} to process {}", child.id());
}

/// Kills a child, which may be gone already, and waits for its end.
pub fn kill(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The child's exit status, or `None` if it still runs after `deadline`.
pub fn wait_for_exit(child: &mut Child, deadline: Duration) -> Option<ExitStatus> {
    wait_until(deadline, || child.try_wait().expect("a child can be waited for"))
}

/// Polls `look` until it returns a value; `None` once `deadline` has passed.
pub fn wait_until<T>(deadline: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if start.elapsed() >= deadline {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// As [`wait_until`], for an async `look`.
pub async fn eventually<T>(
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return Some(found);
        }
        if start.elapsed() >= deadline {
            return None;
        }
        tokio::time::sleep(POLL).await;
    }
}
