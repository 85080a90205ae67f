//! The answer to a request: the decision, and an answer for each limit that it matched.

use smallvec::SmallVec;

use super::explain::Explanation;
use crate::decision::{Decision, Enforcement, LimitResult, QuotaGroup, Source, Status};
use crate::limit::Limit;
use crate::plan::{MatchedLimit, Origin};
use crate::proto::DURATION_MAX_MS;
use crate::rules::{Domain, Rule};

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
    /// The answer for each matched limit, in the descriptors' order.
    pub limits: Vec<LimitAnswer<'s>>,
    /// One for each descriptor, if the request asks for them.
    pub explanations: Vec<Explanation>,
}

/// The answer for one limit.
#[derive(Clone, Debug)]
pub struct LimitAnswer<'s> {
    /// Index into the request's descriptors.
    pub descriptor: usize,
    /// The rule's name, or its path.
    pub rule: &'s str,
    /// Whether `rule` is a name from the limits file.
    pub named: bool,
    /// Its hits, period and algorithm; `None` for an unlimited rule.
    pub definition: Option<Limit>,
    /// What the limit does to requests that do not fit it.
    pub enforcement: Enforcement,
    quota_group: QuotaGroup,
    /// The rule that was matched.
    pub matched: Option<&'s Rule>,
    /// The store's answer; an unlimited rule has room for any hits. No wait is longer than
    /// `DURATION_MAX_MS`, which every protocol can express.
    pub status: Status,
}

const UNLIMITED: Status = Status {
    within_limit: true,
    remaining: u64::MAX,
    reset_after_ms: 0,
    retry_after_ms: None,
    delay_ms: 0,
};

impl<'s> Answer<'s> {
    pub(super) const fn without_limits() -> Self {
        Self {
            domain: None,
            allowed: true,
            source: Source::NoLimit,
            delay_ms: 0,
            retry_after_ms: None,
            limits: Vec::new(),
            explanations: Vec::new(),
        }
    }

    /// The rules of the first limits that reject the request, without adjacent duplicates.
    pub(super) fn rejected_by(&self, rules_max: usize) -> impl Iterator<Item = &'s str> {
        let rejects =
            |limit: &&LimitAnswer<'_>| limit.result(self.allowed) == LimitResult::Rejected;
        let mut rules: Vec<_> =
            self.limits.iter().filter(rejects).map(|limit| limit.rule).collect();
        rules.dedup();
        rules.into_iter().take(rules_max)
    }

    pub(super) fn of(
        domain: &'s Domain,
        matched: &[MatchedLimit<'s>],
        decision: &Decision,
    ) -> Self {
        let limits: Vec<_> =
            matched.iter().map(|matched| LimitAnswer::of(matched, decision)).collect();
        let delays = limits.iter().filter(|limit| limit.enforcement != Enforcement::Shadow);
        let delay_ms = delays.map(|limit| limit.status.delay_ms).max().unwrap_or(0);
        let (allowed, source) = (decision.allowed, decision.source);
        let retry_after_ms = if allowed { None } else { retry_after_ms(&limits) };
        Self {
            domain: Some(domain),
            allowed,
            source,
            delay_ms,
            retry_after_ms,
            limits,
            explanations: Vec::new(),
        }
    }
}

/// When a rejected request would pass: one limit that never admits it decides, else the last one to
/// admit it. Of quotas one group is enough.
fn retry_after_ms(limits: &[LimitAnswer<'_>]) -> Option<u64> {
    // Never is after everything.
    let wait = |limit: &LimitAnswer<'_>| limit.status.retry_after_ms.unwrap_or(u64::MAX);
    let mut enforced = 0;
    let mut quotas: SmallVec<[(QuotaGroup, u64); 8]> = SmallVec::new();
    for limit in limits {
        let wait_ms = if limit.status.within_limit { 0 } else { wait(limit) };
        match limit.enforcement {
            Enforcement::Shadow => {}
            Enforcement::Enforced => enforced = wait_ms.max(enforced),
            Enforcement::Quota => {
                match quotas.iter_mut().find(|(group, _)| *group == limit.quota_group) {
                    Some((_, longest_ms)) => *longest_ms = wait_ms.max(*longest_ms),
                    None => quotas.push((limit.quota_group, wait_ms)),
                }
            }
        }
    }
    let quota = quotas.iter().map(|(_, wait_ms)| *wait_ms).min().unwrap_or(0);
    Some(enforced.max(quota)).filter(|wait_ms| (1..u64::MAX).contains(wait_ms))
}

impl<'s> LimitAnswer<'s> {
    /// The result of checking the limit, for a request that is `allowed` or not.
    pub const fn result(&self, allowed: bool) -> LimitResult {
        LimitResult::of(&self.status, self.enforcement, allowed)
    }

    fn of(matched: &MatchedLimit<'s>, decision: &Decision) -> Self {
        let (rule, named) = match matched.origin {
            Origin::Rule(_, limit) => (limit.name(), limit.given_name().is_some()),
            Origin::Unlimited(rule) => {
                (rule.unlimited().map_or(rule.path(), |unlimited| unlimited.name()), false)
            }
            Origin::Override(rule, _) => (rule.map_or("override", |rule| rule.path()), false),
        };
        Self {
            descriptor: matched.descriptor,
            rule,
            named,
            definition: matched.origin.limit().copied(),
            enforcement: matched.enforcement,
            quota_group: matched.quota_group,
            matched: matched.origin.rule(),
            status: matched
                .counter
                .map_or(UNLIMITED, |counter| clamped(&decision.statuses[counter])),
        }
    }
}

fn clamped(status: &Status) -> Status {
    let clamp = |wait_ms: u64| wait_ms.min(DURATION_MAX_MS);
    Status {
        reset_after_ms: clamp(status.reset_after_ms),
        retry_after_ms: status.retry_after_ms.map(clamp),
        delay_ms: clamp(status.delay_ms),
        ..*status
    }
}
