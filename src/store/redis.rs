//! Counters in Redis: every decision is one run of `lua/`, on Redis's own clock.
//!
//! The client is told to send a script once only: a second sending after a lost connection would
//! count hits twice. A server that has forgotten the script (a restart, SCRIPT FLUSH) says so
//! before it runs anything; then it is loaded, once for all who wait, and run again.

pub mod deny;
mod link;
mod queue;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::{Decision, StoreError};
use crate::clock::{Stopwatch, uptime_us};
use crate::decide::{Ask, Mode};
use crate::key::{Counter, Head, Key, Tail};
use crate::limit::{Limit, LimitSpec};
use crate::metrics::Metrics;
use deny::DenyCache;
use link::Link;
use queue::{Queue, Waiting};

/// The parts of `lua/`, joined by the build.
pub const SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/decide.lua"));

/// How to reach Redis and what may be asked of it at once.
#[derive(Clone)]
pub struct Options {
    /// `redis://…`; never printed, for its password.
    pub url: String,
    /// What one decision may take, from when it was asked for.
    pub timeout: Duration,
    /// The most requests that one script run decides.
    pub batch_max: usize,
}

/// What the stores of all threads share.
pub struct Shared {
    deny: DenyCache,
    /// Whether the last decision was refused.
    refused: AtomicBool,
    metrics: Metrics,
}

/// The store in a Redis server that replicas share. Each thread that serves has its own, with a
/// connection of its own.
pub struct RedisStore {
    runs: Arc<Runs>,
    /// What readiness is tested with once a decision was refused.
    probe: Ask,
    timeout_us: u64,
}

/// The way from requests to script runs.
struct Runs {
    queue: Queue,
    link: Link,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl Shared {
    /// For stores that reject by one deny cache.
    pub fn new(deny: deny::Bounds, metrics: Metrics) -> Self {
        Self { deny: DenyCache::new(deny), refused: AtomicBool::new(false), metrics }
    }
}

impl RedisStore {
    /// Prepares a client and connects in the background: decisions fail with
    /// [`StoreError::Unavailable`] until it is connected.
    ///
    /// # Errors
    /// The URL is not one of a Redis server; the message does not repeat it, for its password.
    pub fn connect(options: &Options, shared: Arc<Shared>) -> Result<Self, String> {
        let link = Link::connect(&options.url, options.timeout)?;
        let queue = Queue::new(options.batch_max);
        let runs = Arc::new(Runs { queue, link, shared });
        let timeout_us = u64::try_from(options.timeout.as_micros()).unwrap_or(u64::MAX);
        Ok(Self { runs, probe: probe()?, timeout_us })
    }

    /// Decides over `asks`: here, if one is known to be denied, else in the next script run.
    ///
    /// # Errors
    /// Redis could not be asked, refused, did not answer in time, or its answer could not be read.
    pub async fn decide(&self, asks: Vec<Ask>, at_ms: Option<u64>) -> Result<Decision, StoreError> {
        let denied = || self.runs.shared.deny.decide(&asks, uptime_us());
        if let Some(denied) = at_ms.map_or_else(denied, |_| None) {
            return Ok(denied);
        }
        let deadline_us = uptime_us() + self.timeout_us;
        let todo = self.runs.queue.push(asks, at_ms, deadline_us);
        if todo.run {
            tokio::spawn(Arc::clone(&self.runs).run_all());
        }
        if let Some(alarm_us) = todo.alarm_us {
            tokio::spawn(Arc::clone(&self.runs).watch(alarm_us));
        }
        let given_up = |_gone| Err(StoreError::Unavailable("the run was given up".to_owned()));
        todo.answer.await.unwrap_or_else(given_up)
    }

    /// Decides requests one after the other in one script run, at one moment.
    ///
    /// # Errors
    /// As [`RedisStore::decide`], for all of them.
    pub async fn decide_all(
        &self,
        requests: &[&[Ask]],
        at_ms: Option<u64>,
    ) -> Result<Vec<Decision>, StoreError> {
        self.runs.decide(requests.iter().copied(), at_ms).await
    }

    /// Whether Redis decides: it answers and has not refused the last decision. One that has
    /// (no memory left, a replica, no permission) is asked for a decision that writes.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        if self.runs.shared.refused.load(Ordering::Relaxed) {
            return self.decide(vec![self.probe.clone()], None).await.map(drop);
        }
        let pong = self.runs.link.ping().await;
        self.runs.shared.metrics.store_up.set(if pong.is_ok() { 1.0 } else { 0.0 });
        pong
    }

    /// Removes counters, for a replay that cleans up after itself.
    ///
    /// # Errors
    /// Redis could not be asked or refused.
    pub async fn remove(&self, keys: &[Vec<u8>]) -> Result<(), StoreError> {
        self.runs.link.remove(keys).await
    }

    /// Waits until the client is connected.
    ///
    /// # Errors
    /// It could not connect within `deadline`.
    pub async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        self.runs.link.connected(deadline).await
    }
}

impl Runs {
    /// Run after run, until nobody waits.
    async fn run_all(self: Arc<Self>) {
        // Those who wait meanwhile may be over: they are asked for once there is a connection.
        loop {
            self.link.ready().await;
            let Some(run) = self.queue.next_run() else { return };
            self.run(run).await;
        }
    }

    /// Ends what is over, until nobody waits.
    async fn watch(self: Arc<Self>, mut alarm_us: u64) {
        loop {
            let left_us = alarm_us.saturating_sub(uptime_us());
            sleep(Duration::from_micros(left_us)).await;
            match self.queue.expire(uptime_us(), || Err(self.link.no_answer())) {
                Some(next_us) => alarm_us = next_us,
                None => return,
            }
        }
    }

    async fn run(&self, run: Vec<Waiting>) {
        let sent_us = uptime_us();
        let at_ms = run.first().and_then(|first| first.at_ms);
        let decided = self.decide(run.iter().map(|waiting| &waiting.asks[..]), at_ms).await;
        match decided {
            Ok(decisions) => {
                let now_us = uptime_us();
                let both = run.iter().zip(decisions);
                self.queue.answer(both.map(|(waiting, decision)| {
                    if at_ms.is_none() {
                        self.shared.deny.learn(&waiting.asks, &decision, sent_us, now_us);
                    }
                    (waiting.id, Ok(decision))
                }));
            }
            // A key that holds something else breaks the run before anything is written: only
            // those who ask for it shall suffer.
            Err(StoreError::Broken(_)) if run.len() > 1 => {
                for waiting in run {
                    let decided = self.decide(std::iter::once(&waiting.asks[..]), at_ms).await;
                    let garbled = || Err(StoreError::Garbled("no decision".to_owned()));
                    let answer = decided.and_then(|mut one| one.pop().map_or_else(garbled, Ok));
                    self.queue.answer(std::iter::once((waiting.id, answer)));
                }
            }
            Err(error) => {
                self.queue.answer(run.iter().map(|waiting| (waiting.id, Err(error.clone()))));
            }
        }
    }

    async fn decide<'a, R>(
        &self,
        requests: R,
        at_ms: Option<u64>,
    ) -> Result<Vec<Decision>, StoreError>
    where
        R: Iterator<Item = &'a [Ask]> + Clone,
    {
        let call = wire::Call::of(requests.clone(), at_ms);
        let watch = Stopwatch::start();
        let reply = self.link.run(call).await;
        let Shared { metrics, refused, .. } = &*self.shared;
        metrics.evalsha_seconds.record(watch.elapsed());
        metrics.store_up.set(if reply.is_ok() { 1.0 } else { 0.0 });
        let is_refused = matches!(reply, Err(StoreError::Refused(_)));
        if is_refused != refused.load(Ordering::Relaxed) {
            refused.store(is_refused, Ordering::Relaxed);
        }
        Ok(wire::decisions(requests, &reply?)?.collect())
    }
}

/// A counter of our own, in debt or not: overdraft always writes.
fn probe() -> Result<Ask, String> {
    let spec = LimitSpec { hits: 1, period_ms: 1_000, overdraft: true, ..LimitSpec::default() };
    let limit = Limit::new(&spec).map_err(|error| error.to_string())?;
    let counter = Counter {
        // No limits file has a domain without a name.
        head: &Head::of("tg", ""),
        slot_by: &[],
        entries: std::iter::once(("probe", "")),
        tail: &Tail::of(&limit, 0),
    };
    Ok(Ask { key: Key::of(&counter), limit, hits: 1, mode: Mode::Take, shadow: true })
}
