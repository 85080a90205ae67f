//! The steps of one request: rules in force → limits met → counters asked → decision → metrics.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::clock::Stopwatch;
use crate::decide::{Mode, Status};
use crate::limit::Limit;
use crate::metrics::{CheckResult, Metrics, RuleMetrics};
use crate::plan::{Matched, Origin, Plan};
use crate::request::{Request, RequestError};
use crate::rules::{Domain, RuleSet};
use crate::store::{Decision, Store, StoreError};

/// Decides requests by the rules in force, on a store.
pub struct Service {
    snapshot: ArcSwap<Snapshot>,
    store: Store,
    metrics: Metrics,
    key_prefix: String,
}

/// What one request sees, whole, however often rules are swapped meanwhile.
pub struct Snapshot {
    /// The rules.
    pub rules: RuleSet,
    metrics: RuleMetrics,
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether the request passes.
    pub allowed: bool,
    /// Milliseconds to hold an allowed request.
    pub delay_ms: u64,
    /// Rejected: when the same request would pass; `None` if allowed, and if never.
    pub retry_after_ms: Option<u64>,
    /// A status for each limit met, in the descriptors' order.
    pub statuses: Vec<LimitStatus>,
}

/// The answer for one limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitStatus {
    /// Index into the request's descriptors.
    pub descriptor: usize,
    /// The rule's name, or its path.
    pub rule: String,
    /// Whether `rule` is a name that the limits file gives.
    pub named: bool,
    /// None for an unlimited rule.
    pub limit: Option<Limit>,
    /// Whether the rule only reports.
    pub shadow: bool,
    /// The store's answer; an unlimited rule has room for any hits.
    pub status: Status,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecideError {
    /// The caller's fault.
    Request(RequestError),
    /// The store's.
    Store(StoreError),
}

const UNLIMITED: Status = Status {
    within_limit: true,
    remaining: u64::MAX,
    reset_after_ms: 0,
    retry_after_ms: None,
    delay_ms: 0,
};

impl Service {
    /// A service that spells its keys with `key_prefix`.
    pub fn new(rules: RuleSet, store: Store, metrics: Metrics, key_prefix: &str) -> Self {
        let rule_metrics = metrics.of_rules(&rules);
        let snapshot = Snapshot { rules, metrics: rule_metrics };
        let key_prefix = key_prefix.to_owned();
        Self { snapshot: ArcSwap::from_pointee(snapshot), store, metrics, key_prefix }
    }

    /// The rules in force.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The store that decides.
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// Where everything is counted.
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Decides a request at the store's time, or at `at_ms` in a replay.
    ///
    /// # Errors
    /// Two descriptors contradict each other, or the store could not decide.
    pub async fn decide(
        &self,
        request: &Request,
        at_ms: Option<u64>,
    ) -> Result<Answer, DecideError> {
        let watch = Stopwatch::start();
        let snapshot = self.snapshot.load_full();
        let Some(domain) = snapshot.rules.domain(&request.domain) else {
            snapshot.metrics.count_decision(None, true);
            self.metrics.decision_seconds.record(watch.elapsed());
            return Ok(Answer::without_limits());
        };
        let plan = Plan::of(request, domain, &self.key_prefix).map_err(DecideError::Request)?;
        let decision = if plan.asks.is_empty() {
            Decision { allowed: true, statuses: Vec::new() }
        } else {
            self.ask_store(&plan, at_ms).await?
        };
        // A read of quotas decides nothing.
        if request.descriptors.iter().any(|descriptor| descriptor.mode != Mode::Peek) {
            snapshot.count(domain, &plan, &decision);
        }
        self.metrics.decision_seconds.record(watch.elapsed());
        Ok(Answer::of(&plan, &decision))
    }

    async fn ask_store(
        &self,
        plan: &Plan<'_>,
        at_ms: Option<u64>,
    ) -> Result<Decision, DecideError> {
        self.store.decide(&plan.asks, at_ms).await.map_err(|error| {
            self.metrics.count_store_error(&error);
            DecideError::Store(error)
        })
    }
}

impl Snapshot {
    fn count(&self, domain: &Domain, plan: &Plan<'_>, decision: &Decision) {
        self.metrics.count_decision(Some(domain), decision.allowed);
        for matched in &plan.matched {
            let within = matched.ask.is_none_or(|ask| decision.statuses[ask].within_limit);
            let result = match (within, matched.shadow) {
                (true, _) => CheckResult::Allowed,
                (false, false) => CheckResult::Rejected,
                (false, true) => CheckResult::ShadowRejected,
            };
            match matched.origin {
                Origin::Rule(_, limit) => self.metrics.count_check(limit.id(), result),
                Origin::Override(_) => self.metrics.count_override(domain, result),
                Origin::Unlimited(rule) => {
                    if let Some(unlimited) = rule.unlimited() {
                        self.metrics.count_check(unlimited.id(), result);
                    }
                }
            }
        }
    }
}

impl Answer {
    const fn without_limits() -> Self {
        Self { allowed: true, delay_ms: 0, retry_after_ms: None, statuses: Vec::new() }
    }

    fn of(plan: &Plan<'_>, decision: &Decision) -> Self {
        let status = |matched: &Matched<'_>| LimitStatus::of(matched, plan, decision);
        let statuses: Vec<_> = plan.matched.iter().map(status).collect();
        let delays = statuses.iter().filter(|status| !status.shadow);
        let delay_ms = delays.map(|status| status.status.delay_ms).max().unwrap_or(0);
        let rejecting = statuses
            .iter()
            .filter(|status| !status.shadow && !status.status.within_limit)
            .map(|status| status.status.retry_after_ms);
        // One limit that never admits the request decides; else the last one to admit it.
        let retry_after_ms = rejecting
            .reduce(|one, other| one.zip(other).map(|(one, other)| one.max(other)))
            .flatten();
        Self { allowed: decision.allowed, delay_ms, retry_after_ms, statuses }
    }
}

impl LimitStatus {
    fn of(matched: &Matched<'_>, plan: &Plan<'_>, decision: &Decision) -> Self {
        let (rule, named) = match matched.origin {
            Origin::Rule(rule, limit) => (limit.name(), limit.name() != rule.path()),
            Origin::Unlimited(rule) => {
                (rule.unlimited().map_or(rule.path(), |unlimited| unlimited.name()), false)
            }
            Origin::Override(rule) => (rule.map_or("override", |rule| rule.path()), false),
        };
        Self {
            descriptor: matched.descriptor,
            rule: rule.to_owned(),
            named,
            limit: matched.ask.map(|ask| plan.asks[ask].limit),
            shadow: matched.shadow,
            status: matched.ask.map_or(UNLIMITED, |ask| decision.statuses[ask]),
        }
    }
}
