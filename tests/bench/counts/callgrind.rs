//! Runs each step of this program under callgrind.

use std::env;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use super::MEASURED_CALLS;

/// The argument that makes this program run one step.
pub(crate) const RUN: &str = "run";

/// Processes per step, of which the lowest count is used: the seeds of hash maps are random, and a
/// collision among the few names of the rules adds up to 1 % in a process.
const RUNS: usize = 3;

/// Counting starts at the entry of this function and stops at its exit.
const TOGGLE: &str = "--toggle-collect=counts::measured*";

/// # Errors
/// The reason why callgrind cannot count here.
pub(crate) fn is_usable() -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Err("valgrind counts instructions on Linux only".to_owned());
    }
    let found = Command::new("valgrind").arg("--version").output();
    found
        .map(drop)
        .map_err(|error| format!("valgrind: {error}; tests/tools/install-servers valgrind"))
}

/// The compiler's version and the machine that it compiles for: counts of others differ.
pub(crate) fn toolchain() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc is on PATH");
    let text = String::from_utf8(output.stdout).unwrap();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("rustc -vV has no {name}")).to_owned()
    };
    format!("{} {}", field("release: "), field("host: "))
}

/// The instructions per call of each step, in the order of `names`.
pub(crate) fn count(names: impl Iterator<Item = &'static str>) -> Vec<(String, u64)> {
    let names: Vec<_> = names.enumerate().collect();
    let left = Mutex::new(names.iter());
    let counts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some((at, name)) = left.lock().unwrap().next() else { return };
                    let count = (0..RUNS).map(|_| count_of(name)).min().unwrap_or(0);
                    counts.lock().unwrap().push((*at, (*name).to_owned(), count));
                }
            });
        }
    });
    let mut counts = counts.into_inner().unwrap();
    counts.sort();
    counts.into_iter().map(|(_, name, count)| (name, count)).collect()
}

/// Without the environment, whose size moves the stack, and without malloc's fast bins: whether
/// they are merged during the measured calls depends on the heap after the setup.
fn count_of(name: &str) -> u64 {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", TOGGLE]);
    valgrind.arg(env::current_exe().unwrap()).args([RUN, name]).env_clear();
    valgrind.env("GLIBC_TUNABLES", "glibc.malloc.mxfast=0");
    if let Some(path) = env::var_os("PATH") {
        valgrind.env("PATH", path);
    }
    let output = valgrind.output().expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let total: u64 = collected.and_then(|(_, total)| total.trim().parse().ok()).unwrap_or(0);
    let calls = u64::from(MEASURED_CALLS);
    assert!(total > calls, "{name}: callgrind found no function to count:\n{said}");
    total / calls
}
