//! The steps of one request: rules in force → limits met → counters asked → decision → metrics.

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;
use tokio::sync::Semaphore;

use crate::clock::Stopwatch;
use crate::decide::{Enforcement, Status};
use crate::key::{Head, Spelling};
use crate::limit::Limit;
use crate::metrics::top;
use crate::metrics::{CheckResult, Metrics, RuleMetrics, Shed};
use crate::plan::{Matched, Origin, Plan};
use crate::request::{Request, RequestError};
use crate::rules::{Domain, OnStoreFailure, Rule, RuleSet};
use crate::store::{Decision, Occasion, Source, Store, StoreError};
use crate::trace::Tracing;

mod decision_log;
mod dimension;
mod in_force;
mod offender;
mod traced;

pub use decision_log::DecisionLog;
pub use in_force::{Load, Refusal, Rules};

/// Decides requests by the rules in force, on a store. Each thread that serves has its own.
pub struct Service {
    rules: Arc<Rules>,
    store: Store,
    /// What a domain's requests get while the store cannot decide, where the domain says nothing.
    on_store_failure: OnStoreFailure,
    metrics: Metrics,
    /// A permit for each call decided at once.
    in_flight: Arc<Semaphore>,
    top: top::Writer,
    log: Option<Arc<DecisionLog>>,
    tracing: Option<Arc<Tracing>>,
}

/// What one request sees, whole, however often rules are swapped meanwhile.
pub struct Snapshot {
    /// The rules.
    pub rules: RuleSet,
    /// Where they are from.
    pub load: Load,
    metrics: RuleMetrics,
    /// What begins the keys of each domain, by its id.
    key_heads: Vec<Head>,
}

/// The answer to one request, by the rules of one snapshot.
#[derive(Clone, Debug)]
pub struct Answer<'s> {
    /// The request's domain, where limits files have it.
    pub domain: Option<&'s Domain>,
    /// Whether the request passes.
    pub allowed: bool,
    /// How the decision was reached.
    pub source: Source,
    /// Milliseconds to hold an allowed request.
    pub delay_ms: u64,
    /// Rejected: when the same request would pass; `None` if allowed, and if never.
    pub retry_after_ms: Option<u64>,
    /// A status for each limit met, in the descriptors' order.
    pub statuses: Vec<LimitStatus<'s>>,
}

/// The answer for one limit.
#[derive(Clone, Debug)]
pub struct LimitStatus<'s> {
    /// Index into the request's descriptors.
    pub descriptor: usize,
    /// The rule's name, or its path.
    pub rule: &'s str,
    /// Whether `rule` is a name that the limits file gives.
    pub named: bool,
    /// None for an unlimited rule.
    pub limit: Option<Limit>,
    /// What the limit does to requests that do not fit it.
    pub enforcement: Enforcement,
    /// The rule that was matched.
    pub matched: Option<&'s Rule>,
    /// The store's answer; an unlimited rule has room for any hits.
    pub status: Status,
}

/// Who decides now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The store.
    Store,
    /// `--on-store-failure`, and why the store does not.
    Fallback(StoreError),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecideError {
    /// The caller's fault.
    Request(RequestError),
    /// The store's.
    Store(StoreError),
    /// As many calls are being decided as may be at once.
    Overloaded,
}

impl DecideError {
    /// One word of few: `request`, `overloaded`, or the kind of the store's error.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Store(error) => error.kind(),
            Self::Overloaded => "overloaded",
        }
    }
}

impl fmt::Display for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Overloaded => f.write_str("more calls than --max-in-flight; call again later"),
        }
    }
}

const UNLIMITED: Status = Status {
    within_limit: true,
    remaining: u64::MAX,
    reset_after_ms: 0,
    retry_after_ms: None,
    delay_ms: 0,
};

impl Service {
    /// A service that decides by `rules` on `store`.
    pub fn new(
        rules: Arc<Rules>,
        store: Store,
        on_store_failure: OnStoreFailure,
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
    pub const fn store(&self) -> &Store {
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
            Err(error) if self.on_store_failure == OnStoreFailure::Error => Err(error),
            Err(error) => Ok(Readiness::Fallback(error)),
        }
    }

    /// Answers a call with what `write` makes of its decision, where there is room for one more
    /// call; counts those that get none.
    ///
    /// # Errors
    /// What a caller sent is no request, too many calls are in flight, or the store could not decide.
    pub async fn answer<T>(
        &self,
        request: Result<Request, RequestError>,
        occasion: Occasion,
        write: impl FnOnce(&Request, &Answer<'_>) -> T,
    ) -> Result<T, DecideError> {
        let answer = async {
            let request = request.map_err(DecideError::Request)?;
            let _permit =
                self.in_flight.try_acquire().map_err(|_none_left| DecideError::Overloaded)?;
            let snapshot = self.snapshot();
            let answer = self.decide(&snapshot, &request, occasion).await?;
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

    /// Decides a request by the rules of `snapshot`.
    ///
    /// # Errors
    /// Two descriptors contradict each other, or the store could not decide.
    pub async fn decide<'s>(
        &self,
        snapshot: &'s Snapshot,
        request: &Request,
        occasion: Occasion,
    ) -> Result<Answer<'s>, DecideError> {
        let watch = Stopwatch::start();
        let Some(log) = &self.log else {
            return self.decide_since(watch, snapshot, request, occasion).await;
        };
        let span = occasion.span.clone();
        let answer = self.decide_since(watch, snapshot, request, occasion).await;
        if !request.only_reads() {
            log.tell(request, answer.as_ref(), (watch.elapsed(), span.as_deref()));
        }
        answer
    }

    async fn decide_since<'s>(
        &self,
        watch: Stopwatch,
        snapshot: &'s Snapshot,
        request: &Request,
        occasion: Occasion,
    ) -> Result<Answer<'s>, DecideError> {
        let Some(domain) = snapshot.rules.domain(request.domain()) else {
            snapshot.metrics.count_decision(None, true, Source::Store);
            self.metrics.decision_seconds.record(watch.elapsed());
            return Ok(Answer::without_limits());
        };
        let Plan { matched, asks } =
            snapshot.plan(domain, request).map_err(DecideError::Request)?;
        let decision = if asks.is_empty() {
            Decision::without_limits()
        } else {
            let policy = domain.on_store_failure().unwrap_or(self.on_store_failure);
            self.store.decide(asks, policy, occasion).await.map_err(DecideError::Store)?
        };
        if !request.only_reads() {
            self.count(snapshot, request, domain, &matched, &decision);
        }
        self.metrics.decision_seconds.record(watch.elapsed());
        Ok(Answer::of(domain, &matched, &decision))
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
        let Plan { matched, asks } =
            snapshot.plan(domain, request).map_err(DecideError::Request)?;
        if asks.is_empty() {
            return Ok(Answer::without_limits());
        }
        let decision = self.store.decide(asks, OnStoreFailure::Error, Occasion::now()).await;
        Ok(Answer::of(domain, &matched, &decision.map_err(DecideError::Store)?))
    }

    fn count(
        &self,
        snapshot: &Snapshot,
        request: &Request,
        domain: &Domain,
        matched: &[Matched<'_>],
        decision: &Decision,
    ) {
        snapshot.metrics.count_decision(Some(domain), decision.allowed, decision.source);
        for matched in matched {
            let (result, near) = result(matched, decision);
            if result == CheckResult::Rejected {
                offender::count(&self.top, domain, matched, request);
            }
            let (rule, name, id) = match matched.origin {
                Origin::Override(..) => {
                    snapshot.metrics.overrides(domain).count(result, near);
                    continue;
                }
                Origin::Rule(rule, limit) => (rule, limit.name(), limit.id()),
                Origin::Unlimited(rule) => {
                    let Some(unlimited) = rule.unlimited() else { continue };
                    (rule, unlimited.name(), unlimited.id())
                }
            };
            if rule.tells_values() {
                let dimension = dimension::spell(rule, name, request, matched.descriptor);
                self.metrics.checks.count_value(domain, dimension, result, near);
            } else {
                snapshot.metrics.limit(id).count(result, near);
            }
        }
    }
}

/// What came of one limit's test, and whether the limit is then nearly used up.
fn result(matched: &Matched<'_>, decision: &Decision) -> (CheckResult, bool) {
    let Some(status) = matched.ask.map(|ask| &decision.statuses[ask]) else {
        return (CheckResult::Allowed, false);
    };
    let capacity = matched.origin.limit().map_or(0, Limit::capacity);
    let near = status.within_limit && status.remaining.saturating_mul(5) <= capacity;
    (CheckResult::of(status, matched.enforcement, decision.allowed), near)
}

impl Snapshot {
    fn new(rules: RuleSet, load: Load, metrics: &Metrics, spelling: &Spelling) -> Self {
        let head = |domain: &Domain| Head::of(spelling, domain.name());
        let key_heads = rules.domains().map(head).collect();
        Self { metrics: metrics.of_rules(&rules), key_heads, rules, load }
    }

    /// What a request of one of these domains asks of the store.
    ///
    /// # Errors
    /// Two descriptors contradict each other.
    pub fn plan<'s>(
        &self,
        domain: &'s Domain,
        request: &Request,
    ) -> Result<Plan<'s>, RequestError> {
        Plan::of(request, domain, &self.key_heads[domain.id()])
    }
}

impl<'s> Answer<'s> {
    const fn without_limits() -> Self {
        Self {
            domain: None,
            allowed: true,
            source: Source::Store,
            delay_ms: 0,
            retry_after_ms: None,
            statuses: Vec::new(),
        }
    }

    /// The first limits that reject the request, each once where its statuses stand together.
    fn rejected_by(&self, rules_max: usize) -> impl Iterator<Item = &'s str> {
        let rejects =
            |status: &&LimitStatus<'_>| status.result(self.allowed) == CheckResult::Rejected;
        let mut rules: Vec<_> = self.statuses.iter().filter(rejects).map(|own| own.rule).collect();
        rules.dedup();
        rules.into_iter().take(rules_max)
    }

    fn of(domain: &'s Domain, matched: &[Matched<'s>], decision: &Decision) -> Self {
        let statuses: Vec<_> =
            matched.iter().map(|matched| LimitStatus::of(matched, decision)).collect();
        let delays = statuses.iter().filter(|status| status.enforcement != Enforcement::Shadow);
        let delay_ms = delays.map(|status| status.status.delay_ms).max().unwrap_or(0);
        let (allowed, source) = (decision.allowed, decision.source);
        let retry_after_ms = if allowed { None } else { retry_after_ms(&statuses) };
        Self { domain: Some(domain), allowed, source, delay_ms, retry_after_ms, statuses }
    }
}

/// When a rejected request would pass: one limit that never admits it decides, else the last one to
/// admit it. Of quotas one group is enough.
fn retry_after_ms(statuses: &[LimitStatus<'_>]) -> Option<u64> {
    // Never is after everything.
    let wait = |status: &LimitStatus<'_>| status.status.retry_after_ms.unwrap_or(u64::MAX);
    let mut enforced = 0;
    let mut quotas: SmallVec<[(u8, u64); 8]> = SmallVec::new();
    for status in statuses {
        let wait_ms = if status.status.within_limit { 0 } else { wait(status) };
        match status.enforcement {
            Enforcement::Shadow => {}
            Enforcement::Enforced => enforced = wait_ms.max(enforced),
            Enforcement::Quota(group) => match quotas.iter_mut().find(|(own, _)| *own == group) {
                Some((_, own)) => *own = wait_ms.max(*own),
                None => quotas.push((group, wait_ms)),
            },
        }
    }
    let quota = quotas.iter().map(|(_, wait_ms)| *wait_ms).min().unwrap_or(0);
    Some(enforced.max(quota)).filter(|wait_ms| (1..u64::MAX).contains(wait_ms))
}

impl<'s> LimitStatus<'s> {
    /// What came of the limit's test, of a request that is `allowed` or not.
    pub const fn result(&self, allowed: bool) -> CheckResult {
        CheckResult::of(&self.status, self.enforcement, allowed)
    }

    fn of(matched: &Matched<'s>, decision: &Decision) -> Self {
        let (rule, named) = match matched.origin {
            Origin::Rule(rule, limit) => (limit.name(), limit.name() != rule.path()),
            Origin::Unlimited(rule) => {
                (rule.unlimited().map_or(rule.path(), |unlimited| unlimited.name()), false)
            }
            Origin::Override(rule, _) => (rule.map_or("override", |rule| rule.path()), false),
        };
        Self {
            descriptor: matched.descriptor,
            rule,
            named,
            limit: matched.origin.limit().copied(),
            enforcement: matched.enforcement,
            matched: matched.origin.rule(),
            status: matched.ask.map_or(UNLIMITED, |ask| decision.statuses[ask]),
        }
    }
}
