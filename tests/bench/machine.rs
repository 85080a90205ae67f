//! The machine of the bench, and the figures of a process from /proc.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::servers::{REDIS, TIDEGATE};

/// CPU time of all threads of a process, in nanoseconds.
pub fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_task = |task: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    // A kernel without scheduler statistics has no such file, or zeros in it.
    let ns = tasks.filter_map(of_task).sum();
    if ns == 0 { cpu_ticks_ns(pid) } else { ns }
}

/// The same with a resolution of a hundredth of a second.
fn cpu_ticks_ns(pid: u32) -> u64 {
    const TICK_NS: u64 = 10_000_000;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in brackets may contain spaces; user and system time are fields 14 and 15.
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    let ticks = after_name.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap());
    ticks.sum::<u64>() * TICK_NS
}

/// Resident memory of a process.
pub fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1_024
}

/// The machine as the items of a list.
pub fn describe() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().unwrap();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let redis = Path::new(env!("CARGO_MANIFEST_DIR")).join(REDIS);
    let redis = said(redis.to_str().unwrap(), &["--version"]);
    let redis = redis.split(' ').find_map(|word| word.strip_prefix("v="));
    format!(
        "- CPU: {model}, {cores} cores, shared by the services, Redis and the load generator\n\
         - Linux {}, {}\n- {}, commit {}; Redis {}\n- {}\n",
        kernel.trim(),
        said("rustc", &["--version"]),
        said(TIDEGATE, &["--version"]),
        said("git", &["describe", "--always", "--dirty"]),
        redis.unwrap_or("unknown"),
        said("date", &["-u", "+%Y-%m-%d"]),
    )
}

fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

/// A figure as an integer.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a cast to an integer saturates
pub fn whole(number: f64) -> u32 {
    number.round() as u32
}
