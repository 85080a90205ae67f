//! Outages of the store, over all servers and threads: the log tells their story.
//!
//! One line when a server stops answering, one when it answers again, however many threads and requests
//! found out. The line at the end of the last one says how long the store was away, and what was decided
//! without it. `/readyz` shows the same while it lasts.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::{Clock, Stopwatch, SystemClock, moment};
use crate::metrics::Metrics;
use crate::on_store_failure::OnStoreFailure;
use crate::period;
use crate::store_error::StoreError;

/// The outages of a store. All threads share them.
#[derive(Debug)]
pub struct Outages {
    policy: Policy,
    servers: Mutex<Servers>,
    /// Decisions made without the store since the first of the current outages began, and the hits
    /// that they admitted.
    decisions: AtomicU64,
    hits: AtomicU64,
}

/// How requests are decided meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The policy of domains that have none of their own.
    pub default: OnStoreFailure,
    /// Replicas that share each limit.
    pub replicas: u32,
}

#[derive(Debug, Default)]
struct Servers {
    down: BTreeMap<Arc<str>, Down>,
    /// When the first of them went down.
    since: Option<(Stopwatch, u64)>,
}

/// A server that is down.
#[derive(Debug)]
struct Down {
    /// Threads that know.
    threads: usize,
    since: Stopwatch,
    why: StoreError,
}

impl Default for Outages {
    fn default() -> Self {
        Self::new(Policy { default: OnStoreFailure::Error, replicas: 1 })
    }
}

impl Outages {
    /// No outages, and what to say of the decisions made during one.
    pub fn new(policy: Policy) -> Self {
        let (decisions, hits) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { policy, servers: Mutex::default(), decisions, hits }
    }

    /// A thread found that a server is down.
    pub(super) fn begin(&self, server: &Arc<str>, why: &StoreError, metrics: &Metrics) {
        let mut servers = self.servers.lock();
        if let Some(down) = servers.down.get_mut(server) {
            down.threads += 1;
            return;
        }
        let is_first = servers.down.is_empty();
        if is_first {
            servers.since = Some((Stopwatch::start(), SystemClock.now_ms()));
            self.decisions.store(0, Ordering::Relaxed);
            self.hits.store(0, Ordering::Relaxed);
            metrics.store_up.set(0.0);
        }
        let down = Down { threads: 1, since: Stopwatch::start(), why: why.clone() };
        servers.down.insert(Arc::clone(server), down);
        if is_first {
            let policy = self.policy;
            tracing::warn!(%server, %why, %policy, "the store does not answer: deciding by --on-store-failure");
        } else {
            tracing::warn!(%server, %why, "a further server of the store is down");
        }
    }

    /// A thread found that a server decides again.
    pub(super) fn end(&self, server: &Arc<str>, metrics: &Metrics) {
        let mut servers = self.servers.lock();
        let Some(down) = servers.left_by_one_thread(server) else { return };
        if !servers.down.is_empty() {
            let (after, still_down) = (time(down.since), servers.names());
            tracing::info!(%server, after, still_down, "a server of the store decides again");
            return;
        }
        metrics.store_up.set(1.0);
        let (after, since) = servers
            .since
            .take()
            .map(|(watch, at_ms)| (time(watch), moment(at_ms)))
            .unwrap_or_default();
        let (decisions, hits) = self.counts();
        tracing::info!(%server, since, after, decisions, hits, "the store decides again");
    }

    /// Nothing more will be known of a server: the thread no longer asks it.
    pub(super) fn forget(&self, server: &Arc<str>) {
        self.servers.lock().left_by_one_thread(server);
    }

    /// Whether any server is down.
    pub(super) fn any(&self) -> bool {
        !self.servers.lock().down.is_empty()
    }

    /// Counts a decision made without the store, and the hits that it admitted.
    pub(super) fn count(&self, hits: u64) {
        self.decisions.fetch_add(1, Ordering::Relaxed);
        self.hits.fetch_add(hits, Ordering::Relaxed);
    }

    /// What is down, since when, and what was decided meanwhile, one line each; `None`: nothing is.
    pub fn describe(&self) -> Option<String> {
        let servers = self.servers.lock();
        let (watch, since_ms) = servers.since.filter(|_| !servers.down.is_empty())?;
        let (since, time_so_far, policy) = (moment(since_ms), time(watch), self.policy);
        let mut text = format!("outage: since {since}, for {time_so_far}; policy: {policy}");
        if policy.default != OnStoreFailure::Error {
            let (decisions, hits) = self.counts();
            text += &format!("; {decisions} decisions admitted {hits} hits");
        }
        text.push('\n');
        for (server, down) in &servers.down {
            // Writing to a string does not fail.
            let _ = writeln!(text, "outage: {server} for {}: {}", time(down.since), down.why);
        }
        Some(text)
    }

    fn counts(&self) -> (u64, u64) {
        (self.decisions.load(Ordering::Relaxed), self.hits.load(Ordering::Relaxed))
    }
}

impl Servers {
    /// Removes a server when the last thread that knows of its outage has left it.
    fn left_by_one_thread(&mut self, server: &Arc<str>) -> Option<Down> {
        let down = self.down.get_mut(server)?;
        down.threads -= 1;
        if down.threads > 0 { None } else { self.down.remove(server) }
    }

    fn names(&self) -> String {
        self.down.keys().map(|server| &**server).collect::<Vec<_>>().join(", ")
    }
}

fn time(watch: Stopwatch) -> String {
    period::format(u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX))
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.default.name())?;
        match (self.default, self.replicas) {
            (OnStoreFailure::Local, 1) => f.write_str(", with all of each limit"),
            (OnStoreFailure::Local, replicas) => write!(f, ", with 1/{replicas} of each limit"),
            (OnStoreFailure::Allow | OnStoreFailure::Deny | OnStoreFailure::Error, _) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_until_every_thread_reaches_every_server_again() {
        let metrics = Metrics::new(0, &StoreError::KINDS).unwrap();
        let outages = Outages::new(Policy { default: OnStoreFailure::Local, replicas: 3 });
        let [a, b] = ["a:1", "b:2"].map(Arc::<str>::from);
        assert_eq!(outages.describe(), None);
        for server in [&a, &a, &b] {
            outages.begin(server, &StoreError::Timeout, &metrics);
        }
        outages.count(2);
        outages.count(0);
        let text = outages.describe().unwrap();
        let first = text.lines().next().unwrap();
        assert!(
            first.ends_with("; policy: local, with 1/3 of each limit; 2 decisions admitted 2 hits"),
            "{text}"
        );
        assert!(text.contains("outage: a:1 for ") && text.contains("outage: b:2 for "), "{text}");
        outages.end(&a, &metrics);
        outages.forget(&b);
        assert!(outages.any(), "one thread does not reach a");
        outages.end(&a, &metrics);
        assert!(!outages.any() && outages.describe().is_none());
        outages.begin(&b, &StoreError::Timeout, &metrics);
        assert!(outages.describe().unwrap().contains("0 decisions admitted 0 hits"));
    }
}
