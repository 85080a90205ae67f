//! Counters in Redis: every decision is one run of `lua/`, on Redis's own clock.
//!
//! The client is told to send a script once only: a second sending after a lost connection would
//! count hits twice. A server that has forgotten the script (a restart, SCRIPT FLUSH) says so
//! before it runs anything; then it is loaded, once for all who wait, and run again.

pub mod access;
mod backoff;
mod cluster;
mod connection;
pub mod credentials;
pub mod deny;
mod node;
mod outage;
mod queue;
pub mod ring;
mod scatter;
pub mod slot;
pub mod tls;
mod topology;
pub mod url;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::fallback::{Fallback, Reconciliation};
use super::memory::MemoryStore;
use crate::clock::{Stopwatch, uptime_us};
use crate::decide::{CounterRequest, Mode};
use crate::decision::Decision;
use crate::decision::{Enforcement, QuotaGroup};
use crate::key::{Key, KeyFormat, KeyParts, KeyPrefix, KeySuffix};
use crate::limit::{Limit, LimitSpec};
use crate::metrics::Metrics;
use crate::rules::OnStoreFailure;
use crate::store::{DecideContext, StoreError};
use access::Access;
use deny::DenyCache;
use outage::{Outages, Servers};
use scatter::ShardRequest;
use topology::Topology;

/// Charges under way at once: no more than decide in the time of one decision, beside those of callers.
const RECONCILIATIONS_MAX: usize = 64;

/// How long the end waits for charges.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// The parts of `lua/`, joined by the build.
pub const SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/decide.lua"));

/// How to reach Redis and what may be asked of it at once.
#[derive(Clone)]
pub struct Options {
    /// The servers, and how to reach them.
    pub access: Access,
    /// What one decision may take, from when it was asked for.
    pub timeout: Duration,
    /// The most requests that one script run decides.
    pub batch_max: usize,
}

/// What the stores of all threads share.
pub struct Shared {
    deny: DenyCache,
    fallback: Fallback,
    outages: Outages,
    servers: Servers,
    /// Held by the one who charges.
    reconciling: tokio::sync::Mutex<()>,
    metrics: Metrics,
}

/// The store in Redis, which replicas share. Each thread that serves has its own, with connections
/// of its own.
pub struct RedisStore {
    topology: Topology,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl Shared {
    /// For stores that reject by one deny cache and fall back to the same.
    pub fn new(deny: deny::Bounds, fallback: Fallback, metrics: Metrics) -> Self {
        let deny = DenyCache::new(deny);
        let (outages, servers) = (Outages::default(), Servers::default());
        Self {
            deny,
            fallback,
            outages,
            servers,
            reconciling: tokio::sync::Mutex::default(),
            metrics,
        }
    }
}

impl RedisStore {
    /// Prepares a client and connects in the background.
    ///
    /// # Errors
    /// The URL is not one of a Redis server; the message does not repeat it, for its password.
    pub fn connect(options: &Options, shared: Arc<Shared>) -> Result<Self, String> {
        Ok(Self { topology: Topology::connect(options, &shared)?, shared })
    }

    /// Decides over `counters`: here, if one is known to be denied, else in the next script run, and
    /// where that fails by `policy`.
    ///
    /// # Errors
    /// Redis could not be asked, refused, did not answer in time, or its answer could not be read,
    /// and the policy is to say so.
    pub async fn transact(
        &self,
        counters: Vec<CounterRequest>,
        policy: OnStoreFailure,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        let denied = || self.shared.deny.find_denial(&counters, uptime_us());
        if let Some(denied) = context.at_ms.map_or_else(denied, |_| None) {
            return Ok(denied);
        }
        let spreads = context.spreads && self.topology.is_several();
        let counters = Arc::new(counters);
        match self.distribute(&counters, context.spreading(spreads)).await {
            Ok(decision) => Ok(decision),
            Err(error) => {
                self.shared.metrics.count_store_error(&error);
                self.shared.fallback.fall_back(&counters, policy, error)
            }
        }
    }

    async fn distribute(
        &self,
        counters: &Arc<Vec<CounterRequest>>,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        let partition = |counter: &CounterRequest| self.topology.partition(counter.key.as_bytes());
        let first = counters.first().map_or(0, partition);
        if counters.iter().skip(1).all(|counter| partition(counter) == first) {
            return self.topology.target(first).dispatch(Arc::clone(counters), context).await;
        }
        let shard = |(partition, positions): (usize, Vec<usize>)| ShardRequest {
            target: self.topology.target(partition),
            counters: Arc::new(positions.iter().map(|at| counters[*at].clone()).collect()),
            positions,
        };
        let shards = self.shards(counters).into_iter().map(shard).collect();
        // A task of its own: what was taken is given back though the caller may be gone.
        let decided = tokio::spawn(scatter::scatter(shards, context)).await;
        decided.unwrap_or_else(|_| Err(StoreError::Unavailable("the service is ending".into())))
    }

    /// Which asks each partition has.
    fn shards(&self, counters: &[CounterRequest]) -> Vec<(usize, Vec<usize>)> {
        let mut shards: Vec<(usize, Vec<usize>)> = Vec::new();
        for (at, counter) in counters.iter().enumerate() {
            let partition = self.topology.partition(counter.key.as_bytes());
            match shards.iter_mut().find(|(other, _)| *other == partition) {
                Some((_, positions)) => positions.push(at),
                None => shards.push((partition, vec![at])),
            }
        }
        shards
    }

    /// Decides requests one after the other in one script run of the first server, at one moment.
    ///
    /// # Errors
    /// As [`RedisStore::transact`] by [`OnStoreFailure::Error`], for all of them.
    pub async fn transact_batch(
        &self,
        requests: &[&[CounterRequest]],
        at_ms: Option<u64>,
    ) -> Result<Vec<Decision>, StoreError> {
        let first = self.topology.nodes().into_iter().next();
        let first = first.ok_or_else(|| StoreError::Unavailable("no server".to_owned()))?;
        first.run_now(requests.iter().copied(), at_ms).await
    }

    /// Where requests are counted that Redis does not decide.
    pub(super) fn fallback_memory(&self) -> &MemoryStore {
        self.shared.fallback.memory()
    }

    /// Whether Redis decides: it answers and has not refused the last decision. One that has
    /// (no memory left, a replica, no permission) is asked for a decision that writes.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        let mut ready = self.topology.is_known();
        for node in self.topology.nodes() {
            ready = ready.and(node.ready().await);
        }
        let decides = ready.is_ok() && !self.shared.outages.any();
        self.shared.metrics.store_up.set(if decides { 1.0 } else { 0.0 });
        ready
    }

    /// Charges what was admitted without Redis, for the last time: what it does not take is lost.
    pub async fn flush(&self) {
        let fallback = &self.shared.fallback;
        let ready = if fallback.needs_reconciling() { self.ready().await } else { Ok(()) };
        if ready.is_ok() {
            self.reconcile(FLUSH_MAX).await;
        }
        // Another may be charging still.
        let _turn = self.shared.reconciling.lock().await;
        let kept = fallback.take_reconciliations(usize::MAX, Duration::ZERO).unwrap_or_default();
        let lost = kept.iter().map(Reconciliation::hits).sum::<u64>() + fallback.take_lost();
        if lost > 0 {
            self.shared.metrics.reconciled.lost.increment(lost);
            let why = ready.err().map_or_else(String::new, |error| error.to_string());
            tracing::warn!(
                hits = lost,
                why,
                "the store is never charged what was admitted without it"
            );
        }
    }

    /// What is wrong with how the servers are set up, for people.
    pub async fn warning(&self) -> Option<String> {
        for node in self.topology.nodes() {
            if let Ok(Some(policy)) = node.connection().eviction_policy().await
                && policy != "noeviction"
            {
                return Some(format!(
                    "maxmemory-policy of Redis is {policy}: counters in force may be dropped; set \
                     noeviction"
                ));
            }
        }
        None
    }

    /// Charges what was admitted without Redis, and gives back what was given back without it, for so
    /// long; to be run to its end. What surely was not done is done another time, and what may have
    /// been is not, for it could count twice.
    pub async fn reconcile(&self, within: Duration) {
        let fallback = &self.shared.fallback;
        if !fallback.needs_reconciling() || self.shared.outages.any() {
            return;
        }
        let _turn = self.shared.reconciling.lock().await;
        let watch = Stopwatch::start();
        // All servers have the same time for a decision.
        let soon = Duration::from_micros(self.topology.target(0).timeout_us());
        let (mut taken, mut refunded, mut lost) = (0, 0, fallback.take_lost());
        while watch.elapsed() < within
            && let Some(reconciliations) = fallback.take_reconciliations(RECONCILIATIONS_MAX, soon)
        {
            let request = |reconciliation: &Reconciliation| {
                let counter = reconciliation.counter();
                let partition = self.topology.partition(counter.key.as_bytes());
                (self.topology.target(partition), Arc::new(vec![counter]))
            };
            let answers =
                scatter::dispatch_all(reconciliations.iter().map(request), &DecideContext::now())
                    .await;
            let mut not_taken = vec![];
            for (reconciliation, answer) in reconciliations.into_iter().zip(answers) {
                match answer {
                    Ok(_decision) if reconciliation.is_refund() => {
                        refunded += reconciliation.hits()
                    }
                    Ok(_decision) => taken += reconciliation.hits(),
                    Err(error) if error.may_have_taken() => lost += reconciliation.hits(),
                    Err(_not_sent) => not_taken.push(reconciliation),
                }
            }
            if !not_taken.is_empty() {
                fallback.put_back(not_taken);
                break;
            }
        }
        let counts = &self.shared.metrics.reconciled;
        counts.taken.increment(taken);
        counts.refunded.increment(refunded);
        counts.lost.increment(lost);
        if taken + refunded + lost > 0 {
            let hits = taken;
            tracing::info!(hits, refunded, lost, "charged the store what was admitted without it");
        }
    }

    /// Removes counters, for a replay that cleans up after itself.
    ///
    /// # Errors
    /// Redis could not be asked or refused.
    pub async fn remove(&self, keys: &[Vec<u8>]) -> Result<(), StoreError> {
        let mut by_partition: BTreeMap<usize, Vec<&Vec<u8>>> = BTreeMap::new();
        for key in keys {
            by_partition.entry(self.topology.partition(key)).or_default().push(key);
        }
        for (partition, keys) in by_partition {
            self.topology.remove(partition, &keys).await?;
        }
        Ok(())
    }

    /// Waits until the client is connected.
    ///
    /// # Errors
    /// It could not connect within `deadline`, or to a node of a cluster that is asked by itself.
    pub async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        self.topology.connected(deadline).await
    }
}

/// One of our own counters, in debt or not: overdraft always writes. Each number is another key.
fn probe(number: u32) -> Result<CounterRequest, String> {
    let spec = LimitSpec { hits: 1, period_ms: 1_000, overdraft: true, ..LimitSpec::default() };
    let limit = Limit::new(&spec).map_err(|error| error.to_string())?;
    let value = if number == 0 { String::new() } else { number.to_string() };
    let key_parts = KeyParts {
        // No limits file has a domain without a name.
        head: &KeyPrefix::of(&KeyFormat::readable("tg"), ""),
        slot_by: &[],
        entries: std::iter::once(("probe", &*value)),
        shared: &[],
        tail: &KeySuffix::of(&limit, 0),
    };
    let (key, enforcement) = (Key::of(&key_parts), Enforcement::Shadow);
    let quota_group = QuotaGroup::default();
    Ok(CounterRequest { key, limit, hits: 1, mode: Mode::Take, enforcement, quota_group })
}
