//! The steps of one request: rules in force → limits met → counters asked → decision → metrics.

use std::sync::Arc;

use arc_swap::Guard;
use tokio::sync::Semaphore;

use crate::clock::Stopwatch;
use crate::decision::{Decision, LimitResult, Source};
use crate::limit::Limit;
use crate::metrics::top;
use crate::metrics::{Metrics, Shed};
use crate::on_store_failure::OnStoreFailure;
use crate::plan::{MatchedLimit, Origin, Plan};
use crate::request::{Request, RequestError};
use crate::rules::Domain;
use crate::store::{AnyStore, DecideContext};
use crate::store_error::StoreError;
use crate::trace::Tracing;

mod answer;
mod decision_log;
mod dimension;
mod error;
mod explain;
mod in_force;
mod offender;
mod snapshot;
mod traced;

pub use answer::{Answer, LimitAnswer};
use decision_log::Decided;
pub use decision_log::DecisionLog;
pub use error::DecideError;
pub use explain::{Explanation, Match};
pub use in_force::{Refusal, Rules};
pub use snapshot::{Load, Snapshot};

/// Decides requests by the rules in force, on a store. Each thread that serves has its own.
pub struct Service {
    rules: Arc<Rules>,
    store: AnyStore,
    on_store_failure: FailurePolicy,
    metrics: Metrics,
    /// A permit for each call decided at once.
    in_flight: Arc<Semaphore>,
    top: top::Writer,
    log: Option<Arc<DecisionLog>>,
    tracing: Option<Arc<Tracing>>,
}

/// What requests get while the store cannot decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// What their domain says, else this.
    ByDomain(OnStoreFailure),
    /// This, whatever their domain says.
    Always(OnStoreFailure),
}

impl FailurePolicy {
    /// For requests of a domain.
    fn of(self, domain: &Domain) -> OnStoreFailure {
        match self {
            Self::ByDomain(default) => domain.on_store_failure().unwrap_or(default),
            Self::Always(policy) => policy,
        }
    }

    /// For requests of a domain that says nothing.
    const fn default(self) -> OnStoreFailure {
        let (Self::ByDomain(policy) | Self::Always(policy)) = self;
        policy
    }
}

/// Who decides now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The store.
    Store,
    /// `--on-store-failure`, and why the store does not.
    Fallback(StoreError),
}

impl Service {
    /// A service that decides by `rules` on `store`.
    pub fn new(
        rules: Arc<Rules>,
        store: AnyStore,
        on_store_failure: FailurePolicy,
        metrics: Metrics,
    ) -> Self {
        let top = metrics.top.writer();
        let in_flight = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self { rules, store, on_store_failure, metrics, in_flight, top, log: None, tracing: None }
    }

    /// The same, with a permit of these for each call that it answers.
    #[must_use]
    pub fn bounded_by(self, in_flight: Arc<Semaphore>) -> Self {
        Self { in_flight, ..self }
    }

    /// The same, with a share of its decisions logged and of its calls traced.
    #[must_use]
    pub fn seen_by(self, log: Option<Arc<DecisionLog>>, tracing: Option<Arc<Tracing>>) -> Self {
        Self { log, tracing, ..self }
    }

    /// What makes spans of calls, where they are traced.
    pub fn tracing(&self) -> Option<&Tracing> {
        self.tracing.as_deref()
    }

    /// The rules in force.
    pub fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.rules.snapshot()
    }

    /// What became of the limits files.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The store that decides.
    pub const fn store(&self) -> &AnyStore {
        &self.store
    }

    /// Where everything is counted.
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether decisions can be made: by the store, or by what is to be done while it cannot.
    ///
    /// # Errors
    /// Why none can.
    pub async fn ready(&self) -> Result<Readiness, StoreError> {
        match self.store.ready().await {
            Ok(()) => Ok(Readiness::Store),
            Err(error) if self.on_store_failure.default() == OnStoreFailure::Error => Err(error),
            Err(error) => Ok(Readiness::Fallback(error)),
        }
    }

    /// Processes a call within the bound on calls in flight: decides its request by the rules in
    /// force and returns what `write` makes of the answer. Failures are counted.
    ///
    /// # Errors
    /// The request is invalid, too many calls are in flight, or the store could not decide.
    pub async fn process<T>(
        &self,
        request: Result<Request, RequestError>,
        context: DecideContext,
        write: impl FnOnce(&Request, &Answer<'_>) -> T,
    ) -> Result<T, DecideError> {
        let answer = async {
            let request = request.map_err(DecideError::Request)?;
            let _permit =
                self.in_flight.try_acquire().map_err(|_none_left| DecideError::Overloaded)?;
            let snapshot = self.snapshot();
            let answer = self.decide(&snapshot, &request, context).await?;
            Ok(write(&request, &answer))
        };
        answer.await.inspect_err(|error| self.count_failure(error))
    }

    fn count_failure(&self, error: &DecideError) {
        match error {
            DecideError::Request(_) => self.metrics.failures.request.increment(1),
            DecideError::Store(error) => {
                tracing::debug!(%error, "no decision");
                self.metrics.failures.store.increment(1);
            }
            DecideError::Overloaded => self.metrics.shed(Shed::InFlight).increment(1),
        }
    }

    /// Decides a request by the rules of `snapshot`, and logs the decision if it is sampled.
    ///
    /// # Errors
    /// Two descriptors contradict each other, or the store could not decide.
    pub async fn decide<'s>(
        &self,
        snapshot: &'s Snapshot,
        request: &Request,
        context: DecideContext,
    ) -> Result<Answer<'s>, DecideError> {
        let watch = Stopwatch::start();
        let Some(log) = &self.log else {
            return self.evaluate(watch, snapshot, request, context).await;
        };
        let span = context.span.clone();
        let answer = self.evaluate(watch, snapshot, request, context).await;
        if !request.only_reads() {
            let (answer, elapsed) = (answer.as_ref(), watch.elapsed());
            log.log(&Decided { request, answer, elapsed, span: span.as_deref() });
        }
        answer
    }

    /// Matches the request against the rules, has the store decide and counts the outcome.
    async fn evaluate<'s>(
        &self,
        watch: Stopwatch,
        snapshot: &'s Snapshot,
        request: &Request,
        context: DecideContext,
    ) -> Result<Answer<'s>, DecideError> {
        let Some(domain) = snapshot.rules.domain(request.domain()) else {
            if !request.only_reads() {
                snapshot.metrics.count_decision(None, true, Source::NoLimit);
            }
            self.metrics.decision_seconds.record(watch.elapsed());
            let mut answer = Answer::without_limits();
            if request.explains() {
                answer.explanations = explain::unknown_domain(&snapshot.rules, request);
            }
            return Ok(answer);
        };
        let Plan { matched, counters } =
            snapshot.plan(domain, request).map_err(DecideError::Request)?;
        let decision = if counters.is_empty() {
            Decision::without_limits()
        } else {
            let policy = self.on_store_failure.of(domain);
            let context = context.spreading(!domain.slot_by().is_empty());
            self.store.transact(counters, policy, context).await.map_err(DecideError::Store)?
        };
        if !request.only_reads() {
            self.count(snapshot, request, domain, &matched, &decision);
        }
        self.metrics.decision_seconds.record(watch.elapsed());
        let mut answer = Answer::of(domain, &matched, &decision);
        if request.explains() {
            answer.explanations = explain::of_domain(domain, request, &matched);
        }
        Ok(answer)
    }

    /// Gives back what a request of hits given back says, by the store and no other: a counter
    /// that is cleared elsewhere is not cleared. Counts as no decision.
    ///
    /// # Errors
    /// The store could not.
    pub async fn reset<'s>(
        &self,
        snapshot: &'s Snapshot,
        request: &Request,
    ) -> Result<Answer<'s>, DecideError> {
        let Some(domain) = snapshot.rules.domain(request.domain()) else {
            return Ok(Answer::without_limits());
        };
        let Plan { matched, counters } =
            snapshot.plan(domain, request).map_err(DecideError::Request)?;
        if counters.is_empty() {
            return Ok(Answer::without_limits());
        }
        let decision =
            self.store.transact(counters, OnStoreFailure::Error, DecideContext::now()).await;
        Ok(Answer::of(domain, &matched, &decision.map_err(DecideError::Store)?))
    }

    fn count(
        &self,
        snapshot: &Snapshot,
        request: &Request,
        domain: &Domain,
        matched: &[MatchedLimit<'_>],
        decision: &Decision,
    ) {
        snapshot.metrics.count_decision(Some(domain.id()), decision.allowed, decision.source);
        for matched in matched {
            let (result, near) = result(matched, decision);
            if result == LimitResult::Rejected {
                offender::count(&self.top, domain, matched, request);
            }
            let (rule, name, id) = match matched.origin {
                Origin::Override(..) => {
                    snapshot.metrics.overrides(domain.id()).count(result, near);
                    continue;
                }
                Origin::Rule(rule, limit) => (rule, limit.given_name(), limit.id()),
                Origin::Unlimited(rule) => {
                    let Some(unlimited) = rule.unlimited() else { continue };
                    (rule, unlimited.given_name(), unlimited.id())
                }
            };
            if rule.exposes_values() {
                let dimension = dimension::spell(rule, name, request, matched.descriptor);
                self.metrics.checks.count_value(domain.name(), dimension, result, near);
            } else {
                snapshot.metrics.limit(id).count(result, near);
            }
        }
    }
}

/// What came of one limit's test, and whether the limit is then nearly used up.
fn result(matched: &MatchedLimit<'_>, decision: &Decision) -> (LimitResult, bool) {
    let Some(status) = matched.counter.map(|counter| &decision.statuses[counter]) else {
        return (LimitResult::Allowed, false);
    };
    let capacity = matched.origin.limit().map_or(0, Limit::capacity);
    let near = status.within_limit && status.remaining.saturating_mul(5) <= capacity;
    (LimitResult::of(status, matched.enforcement, decision.allowed), near)
}
