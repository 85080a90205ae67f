//! `make counts`: the number of instructions of each step of a request.
//!
//! Each step runs in a process of its own under callgrind, which only counts inside `measured`:
//! neither the setup nor the warm-up. A count does not depend on the machine's load, so a change of
//! a few per cent is visible, unlike in `make bench`. The baseline is `counts.txt`, and a step that
//! takes over 3 % more fails the run. `make counts-write` records a new baseline: a commit that
//! needs more instructions states so by changing that file.
//!
//! Only Tidegate itself is optimized (`profile.toml`): its dependencies are those that `make test`
//! has built, so this takes a minute and not the time of a release build. The counts are therefore
//! not those of the release build, but they grow for the same reasons.
//!
//! gungraun was rejected: it keeps its baseline in `target/`, needs a runner program of exactly its
//! own version, and would only replace the 60 lines of `callgrind`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what cannot be measured ends the run")]
#![allow(clippy::print_stdout, reason = "the table is the output")]

mod baseline;
mod callgrind;
mod steps;

use std::process::ExitCode;
use std::{env, fs};

use baseline::{Counts, TOLERANCE_PERCENT};
use steps::{STEPS, Step};

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/counts/counts.txt");

/// Calls before the measured ones, which create the counters.
const WARM_UP_CALLS: usize = 1_000;

/// Measured calls per step. Their counters' places in memory are random, which evens out.
pub(crate) const MEASURED_CALLS: u32 = 1_000;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // `cargo test --all-targets` runs this too.
        [] | ["--bench"] => {
            println!("nothing is counted: this is for `make counts`");
            ExitCode::SUCCESS
        }
        [callgrind::RUN, name] => run(name),
        _ if cfg!(debug_assertions) => panic!("not optimized: build it as `make counts` does"),
        ["compare"] => compare(),
        ["write"] => write(),
        _ => panic!("{args:?}: give compare or write"),
    }
}

/// Compares with the baseline; fails on a step that takes over 3 % more.
fn compare() -> ExitCode {
    if let Err(why) = callgrind::is_usable() {
        return skip(&why);
    }
    let text = fs::read_to_string(BASELINE).unwrap_or_else(|error| panic!("{BASELINE}: {error}"));
    let (before, now) = (Counts::parse(&text).unwrap(), counted());
    if before.host() != now.host() {
        return skip(&format!("{BASELINE} is of {}, this is {}", before.host(), now.host()));
    }
    let comparison = now.compared_with(&before);
    print!("{comparison}");
    if comparison.has_regression() {
        println!("a step takes over {TOLERANCE_PERCENT} % more instructions than in counts.txt:");
        println!("if that is meant, record it with `make counts-write` and say why in the commit");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn write() -> ExitCode {
    callgrind::is_usable().unwrap_or_else(|why| panic!("{why}"));
    let now = counted();
    fs::write(BASELINE, now.to_string()).unwrap();
    print!("{now}");
    ExitCode::SUCCESS
}

/// In CI nothing is skipped.
fn skip(why: &str) -> ExitCode {
    let in_ci = env::var_os("CI").is_some();
    println!("{}: {why}", if in_ci { "instructions cannot be counted" } else { "skipped" });
    if in_ci { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn counted() -> Counts {
    let names = STEPS.iter().map(|step| step.name);
    Counts { toolchain: callgrind::toolchain(), steps: callgrind::count(names) }
}

/// The part that callgrind counts: one step, in this process.
fn run(name: &str) -> ExitCode {
    let step = STEPS.iter().find(|step| step.name == name).expect("a step of this name");
    let Step { prepare, .. } = step;
    let mut call = prepare();
    (0..WARM_UP_CALLS).for_each(&mut call);
    measured(&mut *call);
    ExitCode::SUCCESS
}

/// Counted by name, see [`callgrind`]: neither inlined nor generic.
#[inline(never)]
fn measured(call: &mut dyn FnMut(usize)) {
    for round in 0..MEASURED_CALLS as usize {
        call(round);
    }
}
