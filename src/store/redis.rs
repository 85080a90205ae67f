//! Counters in Redis: every decision is one run of `lua/`, on Redis's own clock.
//!
//! The client is told to send a script once only: a second sending after a lost connection would
//! count hits twice. A server that has forgotten the script (a restart, SCRIPT FLUSH) says so
//! before it runs anything; then it is loaded, once for all who wait, and run again.

pub mod deny;
mod link;
mod node;
mod outage;
mod queue;
mod wire;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::fallback::Fallback;
use super::{Decision, StoreError};
use crate::clock::uptime_us;
use crate::decide::{Ask, Mode};
use crate::key::{Counter, Head, Key, Tail};
use crate::limit::{Limit, LimitSpec};
use crate::metrics::Metrics;
use crate::rules::OnStoreFailure;
use deny::DenyCache;
use link::Link;
use node::Node;
use outage::Outages;
use queue::Queue;

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
    fallback: Fallback,
    outages: Outages,
    /// Whether the last decision was refused.
    refused: AtomicBool,
    metrics: Metrics,
}

/// The store in a Redis server that replicas share. Each thread that serves has its own, with a
/// connection of its own.
pub struct RedisStore {
    node: Arc<Node>,
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
        let (outages, refused) = (Outages::default(), AtomicBool::new(false));
        Self { deny, fallback, outages, refused, metrics }
    }

    /// Whether a server is known to be down.
    pub fn is_falling_back(&self) -> bool {
        self.outages.any()
    }
}

impl RedisStore {
    /// Prepares a client and connects in the background.
    ///
    /// # Errors
    /// The URL is not one of a Redis server; the message does not repeat it, for its password.
    pub fn connect(options: &Options, shared: Arc<Shared>) -> Result<Self, String> {
        let link = Link::connect(&options.url, options.timeout)?;
        let queue = Queue::new(options.batch_max);
        let node = Node::new((link, queue), options.timeout, probe()?, Arc::clone(&shared));
        Ok(Self { node: Arc::new(node), shared })
    }

    /// Decides over `asks`: here, if one is known to be denied, else in the next script run, and
    /// where that fails by `policy`.
    ///
    /// # Errors
    /// Redis could not be asked, refused, did not answer in time, or its answer could not be read,
    /// and the policy is to say so.
    pub async fn decide(
        &self,
        asks: Vec<Ask>,
        policy: OnStoreFailure,
        at_ms: Option<u64>,
    ) -> Result<Decision, StoreError> {
        let denied = || self.shared.deny.decide(&asks, uptime_us());
        if let Some(denied) = at_ms.map_or_else(denied, |_| None) {
            return Ok(denied);
        }
        let asks = Arc::new(asks);
        match self.node.decide(Arc::clone(&asks), at_ms).await {
            Ok(decision) => Ok(decision),
            Err(error) => {
                self.shared.metrics.count_store_error(&error);
                self.shared.fallback.decide(&asks, policy, error)
            }
        }
    }

    /// Decides requests one after the other in one script run, at one moment.
    ///
    /// # Errors
    /// As [`RedisStore::decide`] by [`OnStoreFailure::Error`], for all of them.
    pub async fn decide_all(
        &self,
        requests: &[&[Ask]],
        at_ms: Option<u64>,
    ) -> Result<Vec<Decision>, StoreError> {
        self.node.decide_all(requests.iter().copied(), at_ms).await
    }

    /// Whether Redis decides: it answers and has not refused the last decision. One that has
    /// (no memory left, a replica, no permission) is asked for a decision that writes. Where it
    /// does, it is charged what was admitted without it.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn ready(&self) -> Result<(), StoreError> {
        let ready = self.node.ready().await;
        let decides = ready.is_ok() && !self.shared.outages.any();
        self.shared.metrics.store_up.set(if decides { 1.0 } else { 0.0 });
        ready?;
        if self.shared.fallback.has_charges() && !self.shared.outages.any() {
            self.charge().await;
        }
        Ok(())
    }

    /// Charges what was admitted without Redis; what cannot be charged now never is.
    async fn charge(&self) {
        /// Charges in one run.
        const CHARGES_MAX: usize = 100;
        let charges = self.shared.fallback.take_charges();
        let hits: u64 = charges.iter().map(|charge| charge.hits).sum();
        let mut lost = 0;
        for some in charges.chunks(CHARGES_MAX) {
            let requests = some.iter().map(std::slice::from_ref);
            if let Err(error) = self.node.charge(requests).await {
                lost += some.iter().map(|charge| charge.hits).sum::<u64>();
                tracing::debug!(%error, "a charge failed");
            }
        }
        tracing::info!(hits, lost, "charged the store what was admitted without it");
    }

    /// Removes counters, for a replay that cleans up after itself.
    ///
    /// # Errors
    /// Redis could not be asked or refused.
    pub async fn remove(&self, keys: &[Vec<u8>]) -> Result<(), StoreError> {
        self.node.link().remove(keys).await
    }

    /// Waits until the client is connected.
    ///
    /// # Errors
    /// It could not connect within `deadline`.
    pub async fn connected(&self, deadline: Duration) -> Result<(), StoreError> {
        self.node.link().connected(deadline).await
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
