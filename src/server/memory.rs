//! Keeps the process within `--memory-limit`, or within the limit of its cgroup.
//!
//! The budgets and the numbers of connections and counters are chosen at the start so that together they
//! stay below the limit. They are estimates, so the process also watches the memory it really uses:
//!
//! | used | step |
//! | --- | --- |
//! | 80 % | budgets shrink to a quarter: those that hold most get no more |
//! | 90 % | the connections that hold most are cut |
//! | 95 % | no connection is accepted |

use std::fs;
use std::path::Path;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::lifecycle::{Phase, PhaseWatch};
use super::places::Places;
use crate::memory_budget::MemoryBudget;
use crate::settings::Serve;

/// How often the used memory is read, which takes 20 us.
const TICK: Duration = Duration::from_millis(100);

/// Ticks between two lines in the log.
const LOG_TICKS: u32 = 100;

/// Parts of the limit, in percent.
const SHRINK_FROM: u64 = 80;
const CUT_FROM: u64 = 90;
const CLOSE_FROM: u64 = 95;

/// What budgets shrink to: one part of so many.
const SHRUNK_PART: usize = 4;

/// Bytes of an idle connection, with TLS.
const CONNECTION_BYTES: u64 = 24 << 10;

/// Bytes of a counter in memory.
const KEY_BYTES: u64 = 100;

/// The memory that the process may use, in bytes; `None`: as much as there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryLimit(Option<u64>);

impl MemoryLimit {
    /// `set` is the flag, where 0 stands for no limit. Without it, that of the cgroup holds.
    pub(super) fn of(set: Option<u64>) -> Self {
        match set {
            Some(0) => Self(None),
            Some(bytes) => Self(Some(bytes)),
            None => Self(cgroup_limit(Path::new("/sys/fs/cgroup"), &own_cgroup())),
        }
    }

    /// Lowers the numbers of connections and counters to what the limit has room for.
    pub(super) fn apply(self, settings: &mut Serve) {
        let connections = self.connections(settings.connections.max_connections);
        let keys = self.keys(settings.memory_max_keys);
        if let Self(Some(limit)) = self
            && (connections, keys)
                != (settings.connections.max_connections, settings.memory_max_keys)
        {
            let limit_mib = limit >> 20;
            tracing::info!(limit_mib, connections, keys, "lower bounds, to stay within the memory");
        }
        settings.connections.max_connections = connections;
        settings.memory_max_keys = keys;
    }

    /// A budget of `bytes`, or of less: four budgets use a quarter of the limit.
    pub(super) fn budget(self, bytes: usize) -> usize {
        self.part(bytes, 16)
    }

    /// So many connections, or fewer: they use a quarter of the limit.
    pub(super) fn connections(self, max: usize) -> usize {
        self.part(max, 4 * CONNECTION_BYTES)
    }

    /// So many counters, or fewer: they use a quarter of the limit.
    pub(super) fn keys(self, max: usize) -> usize {
        self.part(max, 4 * KEY_BYTES)
    }

    fn part(self, max: usize, divisor: u64) -> usize {
        let Self(Some(limit)) = self else { return max };
        let part = usize::try_from(limit / divisor).unwrap_or(usize::MAX);
        max.min(part).max(1)
    }
}

/// What is watched, and what is done about it.
pub(super) struct Watch {
    pub(super) limit: MemoryLimit,
    pub(super) budgets: Vec<MemoryBudget>,
    pub(super) ports: [Places; 2],
}

impl Watch {
    /// Runs until the service stops.
    pub(super) async fn run(self, mut follow: PhaseWatch) {
        let MemoryLimit(Some(limit)) = self.limit else { return };
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut quiet_ticks = LOG_TICKS;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = follow.reached(Phase::Stopping) => return,
            }
            let Some(used) = used_bytes() else { return };
            let percent = used * 100 / limit.max(1);
            quiet_ticks += 1;
            if percent >= SHRINK_FROM && quiet_ticks >= LOG_TICKS {
                quiet_ticks = 0;
                let (used_mib, limit_mib) = (used >> 20, limit >> 20);
                tracing::warn!(used_mib, limit_mib, "memory is nearly used up; work is refused");
            }
            self.act(percent);
        }
    }

    fn act(&self, percent: u64) {
        let shrunk = percent >= SHRINK_FROM;
        self.budgets.iter().for_each(|budget| budget.shrink(if shrunk { SHRUNK_PART } else { 1 }));
        for port in &self.ports {
            port.close(percent >= CLOSE_FROM);
            if percent >= CUT_FROM {
                port.cut_costliest();
            }
        }
    }
}

/// The resident memory of this process.
fn used_bytes() -> Option<u64> {
    resident_bytes(&fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn own_cgroup() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// The lowest limit on the way from the root of the hierarchy to the cgroup of the process.
fn cgroup_limit(root: &Path, own: &str) -> Option<u64> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let read = |file: &Path| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let folders = Path::new(path.trim_start_matches('/')).ancestors();
    let lowest = folders.filter_map(|folder| read(&root.join(folder).join("memory.max"))).min();
    // Version 1, whose largest number stands for no limit.
    let of_version_1 = || read(&root.join("memory/memory.limit_in_bytes"));
    lowest.or_else(|| of_version_1().filter(|bytes| *bytes < 1 << 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_limit_add_up_to_less_than_it() {
        let limit = MemoryLimit(Some(256 << 20));
        let budgets = 4 * limit.budget(64 << 20) as u64;
        let connections = limit.connections(16_384) as u64 * CONNECTION_BYTES;
        let keys = limit.keys(1_000_000) as u64 * KEY_BYTES;
        assert_eq!(budgets, 64 << 20);
        assert!(budgets + connections + keys <= 192 << 20);
        let large = MemoryLimit(Some(8 << 30));
        assert_eq!((large.budget(64 << 20), large.connections(16_384)), (64 << 20, 16_384));
        let none = MemoryLimit::of(Some(0));
        assert_eq!((none.budget(64 << 20), none.keys(1_000_000)), (64 << 20, 1_000_000));
    }

    #[test]
    fn the_lowest_limit_of_the_cgroup_and_those_above_it_holds() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("system.slice/tidegate.service");
        fs::create_dir_all(&inner).unwrap();
        let of = |own: &str| cgroup_limit(root.path(), own);
        assert_eq!(of("0::/system.slice/tidegate.service\n"), None);
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("system.slice/memory.max"), "1073741824\n").unwrap();
        assert_eq!(of("0::/system.slice/tidegate.service\n"), Some(1 << 30));
        fs::write(inner.join("memory.max"), "268435456\n").unwrap();
        assert_eq!(of("0::/system.slice/tidegate.service\n"), Some(256 << 20));
        assert_eq!(of("0::/\n"), None);
        fs::create_dir_all(root.path().join("memory")).unwrap();
        let version_1 = root.path().join("memory/memory.limit_in_bytes");
        fs::write(&version_1, "9223372036854771712\n").unwrap();
        assert_eq!(of("4:memory:/\n"), None);
        fs::write(&version_1, "536870912\n").unwrap();
        assert_eq!(of("4:memory:/\n"), Some(512 << 20));
    }

    #[test]
    fn the_resident_memory_is_read() {
        assert_eq!(resident_bytes("VmPeak: 9 kB\nVmRSS:\t   1024 kB\n"), Some(1 << 20));
        assert_eq!(resident_bytes(""), None);
    }
}
