//! Layers around any [`Store`] that keep answering while it fails.
//!
//! A request passes the deny cache, then the store. If the store fails, the fallback answers by the
//! domain's policy and records the hits. Reconciling moves the recorded hits to the store once it
//! decides again. The store below does not know of the layers: it decides, or returns an error that
//! says whether hits may have been taken.
//!
//! Hits are moved to the store at most once. A reconciliation that was certainly not sent is put
//! back and sent another time; one that may have arrived is counted as lost, because sending it
//! again could count its hits twice.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::backend::Store;
use super::context::DecideContext;
use super::deny_cache::{self, DenyCache, Seen};
use super::fallback::{Fallback, Reconciliation};
use super::memory::MemoryStore;
use super::outage::Outages;
use crate::clock::{Stopwatch, uptime_us};
use crate::decide::{CounterRequest, Mode};
use crate::decision::Decision;
use crate::metrics::Metrics;
use crate::on_store_failure::OnStoreFailure;
use crate::store_error::StoreError;

/// Counters reconciled at a time. The store can decide so many within the timeout of one decision,
/// in addition to the requests of callers.
const RECONCILED_MAX: usize = 64;

/// Time limit of the last reconciliation, when the service ends.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// The state of the layers, shared by the stores of all threads.
pub struct Resilience {
    deny: DenyCache,
    fallback: Fallback,
    /// Locked while hits are reconciled, so that one thread at a time does so.
    reconciling: Mutex<()>,
    metrics: Metrics,
    outages: Arc<Outages>,
}

impl Resilience {
    /// State for stores that share a deny cache and a fallback.
    pub fn new(deny: deny_cache::Bounds, fallback: Fallback, metrics: Metrics) -> Self {
        let (deny, reconciling) = (DenyCache::new(deny), Mutex::default());
        Self { deny, fallback, reconciling, metrics, outages: Arc::default() }
    }

    /// The same, with what the fallback decides counted for the story of an outage.
    #[must_use]
    pub fn counting_in(self, outages: Arc<Outages>) -> Self {
        Self { outages, ..self }
    }
}

/// A store with a deny cache in front of it and a fallback behind it.
pub struct Resilient<S> {
    store: Arc<S>,
    shared: Arc<Resilience>,
}

impl<S> fmt::Debug for Resilient<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resilient").finish_non_exhaustive()
    }
}

/// The hits that a decision took of all counters together.
fn admitted(counters: &[CounterRequest], decision: &Decision) -> u64 {
    let takes = |counter: &&CounterRequest| decision.allowed && counter.mode == Mode::Take;
    counters.iter().filter(takes).map(|counter| counter.hits).sum()
}

impl<S: Store> Resilient<S> {
    /// Puts the layers around `store`.
    pub fn new(store: S, shared: Arc<Resilience>) -> Self {
        Self { store: Arc::new(store), shared }
    }

    /// The store below the layers.
    pub fn inner(&self) -> &S {
        &self.store
    }

    /// The memory store of the fallback.
    pub fn fallback_memory(&self) -> &MemoryStore {
        self.shared.fallback.memory()
    }

    /// Whether the store would decide now.
    ///
    /// # Errors
    /// The reason why it would not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.store.ready().await
    }

    /// Decides a request: by the deny cache, else by the store, and by `policy` if the store fails.
    ///
    /// # Errors
    /// The store failed, and `policy` is [`OnStoreFailure::Error`].
    pub async fn transact(
        &self,
        counters: Vec<CounterRequest>,
        policy: OnStoreFailure,
        context: DecideContext,
    ) -> Result<Decision, StoreError> {
        let sent_us = uptime_us();
        let is_replay = context.at_ms.is_some();
        if !is_replay && let Some(denied) = self.shared.deny.find_denial(&counters, sent_us) {
            return Ok(denied);
        }
        let is_revocable = context.spreads && self.store.is_sharded();
        let counters = Arc::new(counters);
        match self.store.transact(Arc::clone(&counters), context).await {
            Ok(decision) => {
                if !is_replay {
                    let seen = Seen { sent_us, answered_us: uptime_us(), is_revocable };
                    self.shared.deny.learn(&counters, &decision, seen);
                }
                Ok(decision)
            }
            Err(error) => {
                self.shared.metrics.count_store_error(error.kind());
                let decision = self.shared.fallback.fall_back(&counters, policy, error)?;
                self.shared.outages.count(admitted(&counters, &decision));
                Ok(decision)
            }
        }
    }

    /// Reconciles the store with the hits that the fallback admitted and refunded, for at most
    /// `within`. The future must not be dropped before it completes. Hits that were certainly not
    /// moved are moved another time. Hits that may have been moved are not moved again, because
    /// they could count twice.
    pub async fn reconcile(&self, within: Duration) {
        let fallback = &self.shared.fallback;
        if !fallback.needs_reconciling() || self.store.has_outage() {
            return;
        }
        let _turn = self.shared.reconciling.lock().await;
        let watch = Stopwatch::start();
        let mut counts = Counts { lost: fallback.take_lost(), ..Counts::default() };
        while watch.elapsed() < within
            && let Some(reconciliations) =
                fallback.take_reconciliations(RECONCILED_MAX, self.store.timeout())
        {
            let not_taken = self.send_all(reconciliations, &mut counts).await;
            if !not_taken.is_empty() {
                fallback.put_back(not_taken);
                break;
            }
        }
        counts.report(&self.shared.metrics);
    }

    /// Reconciles for the last time. Hits that the store does not accept now are lost.
    pub async fn flush(&self) {
        let fallback = &self.shared.fallback;
        let ready = if fallback.needs_reconciling() { self.ready().await } else { Ok(()) };
        if ready.is_ok() {
            self.reconcile(FLUSH_MAX).await;
        }
        // Another thread may still be reconciling.
        let _turn = self.shared.reconciling.lock().await;
        let kept = fallback.take_reconciliations(usize::MAX, Duration::ZERO).unwrap_or_default();
        let lost = kept.iter().map(Reconciliation::hits).sum::<u64>() + fallback.take_lost();
        if lost > 0 {
            self.shared.metrics.reconciled.lost.increment(lost);
            let why = ready.err().map_or_else(String::new, |error| error.to_string());
            tracing::warn!(
                hits = lost,
                why,
                "could not charge the store for hits admitted without it"
            );
        }
    }

    /// Sends these reconciliations concurrently and counts the results. Returns those not taken.
    async fn send_all(
        &self,
        reconciliations: Vec<Reconciliation>,
        counts: &mut Counts,
    ) -> Vec<Reconciliation> {
        let mut running = JoinSet::new();
        for reconciliation in reconciliations {
            let (store, counters) =
                (Arc::clone(&self.store), Arc::new(vec![reconciliation.counter()]));
            let sent_us = uptime_us();
            running.spawn(async move {
                let answer = store.transact(Arc::clone(&counters), DecideContext::now()).await;
                (reconciliation, counters, sent_us, answer)
            });
        }
        let mut not_taken = vec![];
        while let Some(joined) = running.join_next().await {
            let Ok((reconciliation, counters, sent_us, answer)) = joined else { continue };
            match answer {
                Ok(decision) => {
                    let seen = Seen { sent_us, answered_us: uptime_us(), is_revocable: false };
                    self.shared.deny.learn(&counters, &decision, seen);
                    counts.add(&reconciliation);
                }
                Err(error) if error.may_have_taken() => counts.lost += reconciliation.hits(),
                Err(_not_sent) => not_taken.push(reconciliation),
            }
        }
        not_taken
    }
}

/// Hits that were moved to the store, and hits that never will be.
#[derive(Default)]
struct Counts {
    charged: u64,
    refunded: u64,
    lost: u64,
}

impl Counts {
    fn add(&mut self, reconciliation: &Reconciliation) {
        let sum = if reconciliation.is_refund() { &mut self.refunded } else { &mut self.charged };
        *sum += reconciliation.hits();
    }

    fn report(self, metrics: &Metrics) {
        let Self { charged, refunded, lost } = self;
        metrics.reconciled.taken.increment(charged);
        metrics.reconciled.refunded.increment(refunded);
        metrics.reconciled.lost.increment(lost);
        if charged + refunded + lost > 0 {
            let hits = charged;
            tracing::info!(hits, refunded, lost, "charged the store for hits admitted without it");
        }
    }
}
