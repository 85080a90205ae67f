//! Turns a request and the rules in force into counter requests for the store: a [`MatchedLimit`]
//! for each limit that a descriptor matches, and one [`CounterRequest`] for each counter.
//!
//! If several descriptors name the same counter, their hits are added and tested together, so that
//! a request cannot pass by being split. A limit that another limit of the request replaces is left
//! out.

use smallvec::SmallVec;

use crate::decide::{CounterRequest, Mode};
use crate::decision::{Enforcement, QuotaGroup};
use crate::key::{Group, Key, KeyParts, KeyPrefix, KeySuffix};
use crate::limit::RUN_COST_MAX;
use crate::limit::{HITS_MAX, Limit};
use crate::request::{Descriptor, Entries, Request, RequestError, refuse};
use crate::rules::{Domain, Rule, RuleLimit};

mod quotas;

use quotas::Groups;

/// The most limits that one request may match, which bounds the scans of its counters. The work in
/// the store is bounded by [`RUN_COST_MAX`].
const LIMITS_MAX: usize = 1_024;

/// A limit that a descriptor matches.
#[derive(Clone, Copy, Debug)]
pub struct MatchedLimit<'r> {
    /// Index into the request's descriptors.
    pub descriptor: usize,
    /// Where the limit comes from.
    pub origin: Origin<'r>,
    /// What the limit does to the request if the hits do not fit.
    pub enforcement: Enforcement,
    /// The group of a quota.
    pub quota_group: QuotaGroup,
    /// Index into the plan's counters; none for an unlimited rule.
    pub counter: Option<usize>,
}

/// Where a limit comes from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'r> {
    /// A rule of the limits file.
    Rule(&'r Rule, &'r RuleLimit),
    /// A rule that is declared unlimited.
    Unlimited(&'r Rule),
    /// The request itself, and the rule that its descriptor matches, if any.
    Override(Option<&'r Rule>, Limit),
}

impl<'r> Origin<'r> {
    /// The limit; `None` if the rule is unlimited.
    pub fn limit(&self) -> Option<&Limit> {
        match self {
            Self::Rule(_, limit) => Some(limit.limit()),
            Self::Override(_, limit) => Some(limit),
            Self::Unlimited(_) => None,
        }
    }

    /// The rule that matches, if any.
    pub const fn rule(&self) -> Option<&'r Rule> {
        match self {
            Self::Rule(rule, _) | Self::Unlimited(rule) => Some(rule),
            Self::Override(rule, _) => *rule,
        }
    }
}

/// What the store is to decide for a request.
#[derive(Debug)]
pub struct Plan<'r> {
    /// The limits matched, in the descriptors' order.
    pub matched: Vec<MatchedLimit<'r>>,
    /// The counters, each once.
    pub counters: Vec<CounterRequest>,
}

/// A plan while descriptors are added to it.
struct PlanBuilder<'a, 'r> {
    head: &'a KeyPrefix,
    domain: &'r Domain,
    plan: Plan<'r>,
    groups: Groups<'a>,
    /// Names of limits that other limits of the request replace.
    replaced: SmallVec<[&'r str; 8]>,
    /// The maximum cost of deciding all counters; see [`Limit::run_cost`].
    cost: usize,
}

impl<'r> Plan<'r> {
    /// Matches a request against the rules of its domain. Its keys begin with `head`.
    ///
    /// # Errors
    /// Two descriptors have different limits of their own for one counter, or the matched limits are
    /// too many or too costly.
    pub fn of(
        request: &Request,
        domain: &'r Domain,
        head: &KeyPrefix,
    ) -> Result<Self, RequestError> {
        let descriptors = request.descriptors();
        // Most descriptors match one limit.
        let count = descriptors.len();
        let plan = Self { matched: Vec::with_capacity(count), counters: Vec::with_capacity(count) };
        let replaced = replaced(request, domain);
        let mut builder =
            PlanBuilder { head, domain, plan, groups: Groups::default(), replaced, cost: 0 };
        for (at, descriptor) in descriptors.enumerate() {
            builder.add(at, &descriptor)?;
        }
        Ok(builder.plan)
    }
}

/// The names of all limits that the matched limits replace.
fn replaced<'r>(request: &Request, domain: &'r Domain) -> SmallVec<[&'r str; 8]> {
    if !domain.replaces() {
        return SmallVec::new();
    }
    // A descriptor's own limit does not replace others by name.
    let own = request.descriptors().filter(|descriptor| descriptor.limit.is_none());
    let rules = own.filter_map(|descriptor| domain.find(descriptor.entries));
    rules.flat_map(Rule::replaces).collect()
}

impl<'a, 'r> PlanBuilder<'a, 'r> {
    fn add(&mut self, at: usize, descriptor: &Descriptor<'a>) -> Result<(), RequestError> {
        let rule = self.domain.find(descriptor.entries);
        if let Some(limit) = descriptor.limit {
            let limit =
                if self.domain.switches().count_rejected { limit.into_counted() } else { *limit };
            let tail = KeySuffix::of(&limit, 0);
            let key_parts = self.key_parts(descriptor, &[], &tail);
            return self.push(at, descriptor, &key_parts, Origin::Override(rule, limit));
        }
        let Some(rule) = rule else { return Ok(()) };
        if rule.unlimited().is_some() {
            let (origin, enforcement) = (Origin::Unlimited(rule), Enforcement::Enforced);
            self.plan.matched.push(MatchedLimit {
                descriptor: at,
                origin,
                enforcement,
                quota_group: QuotaGroup::default(),
                counter: None,
            });
        }
        for limit in rule.limits() {
            if limit.given_name().is_some_and(|name| self.replaced.contains(&name)) {
                continue;
            }
            let key_parts = self.key_parts(descriptor, rule.shared(), limit.key_suffix());
            self.push(at, descriptor, &key_parts, Origin::Rule(rule, limit))?;
        }
        Ok(())
    }

    fn key_parts<'c>(
        &self,
        descriptor: &Descriptor<'c>,
        shared: &'c [Option<Box<str>>],
        tail: &'c KeySuffix,
    ) -> KeyParts<'c, Entries<'c>>
    where
        'a: 'c,
        'r: 'c,
    {
        let (head, slot_by) = (self.head, self.domain.slot_by());
        KeyParts { head, slot_by, entries: descriptor.entries, shared, tail }
    }

    fn push(
        &mut self,
        at: usize,
        descriptor: &Descriptor<'a>,
        key_parts: &KeyParts<'_, Entries<'_>>,
        origin: Origin<'r>,
    ) -> Result<(), RequestError> {
        if self.plan.matched.len() >= LIMITS_MAX {
            let message =
                format!("match more than {LIMITS_MAX} limits; split them into several requests");
            return refuse("descriptors", message);
        }
        let Some(&limit) = origin.limit() else { return Ok(()) };
        let key = Key::of(key_parts).in_group(self.group(&origin));
        let enforcement = self.enforcement(&origin);
        let mut counter = CounterRequest {
            key,
            limit,
            hits: descriptor.hits,
            mode: descriptor.mode,
            enforcement,
            quota_group: QuotaGroup::default(),
        };
        // Most requests have a handful: a scan is faster than a table.
        let same = self.plan.counters.iter().position(|other| other.key == counter.key);
        let index = if let Some(index) = same {
            let other = &mut self.plan.counters[index];
            if other.enforcement != enforcement {
                return contradicts(at);
            }
            add(other, &counter, at)?;
            index
        } else {
            if enforcement == Enforcement::Quota {
                counter.quota_group = self.groups.find_or_add(at, descriptor.entries)?;
            }
            self.cost += limit.run_cost();
            if self.cost > RUN_COST_MAX {
                return too_costly();
            }
            self.plan.counters.push(counter);
            self.plan.counters.len() - 1
        };
        self.plan.matched.push(MatchedLimit {
            descriptor: at,
            origin,
            enforcement,
            quota_group: self.plan.counters[index].quota_group,
            counter: Some(index),
        });
        Ok(())
    }

    /// A request's own limit is in the group of the first configured limit that it overrides, so that
    /// requests cannot create groups.
    fn group(&self, origin: &Origin<'r>) -> Group {
        let limit = match origin {
            Origin::Rule(_, limit) => Some(*limit),
            Origin::Unlimited(rule) | Origin::Override(Some(rule), _) => rule.limits().first(),
            Origin::Override(None, _) => None,
        };
        limit.map_or_else(|| self.domain.overrides(), RuleLimit::group)
    }

    fn enforcement(&self, origin: &Origin<'r>) -> Enforcement {
        match origin {
            Origin::Rule(rule, _) | Origin::Unlimited(rule) => rule.enforcement(),
            // As in envoyproxy/ratelimit, an override is enforced unless a switch of the domain
            // applies to all its limits.
            Origin::Override(..) => self.domain.switches().enforcement(Enforcement::Enforced),
        }
    }
}

fn too_costly<T>() -> Result<T, RequestError> {
    let message = format!(
        "match limits that cost more than {RUN_COST_MAX} together (a window or bucket costs 4, a log \
         12 to 75, a sliding_window_counter 4 and 1 for every 4 sub_windows); split them into \
         several requests"
    );
    refuse("descriptors", message)
}

fn contradicts<T>(at: usize) -> Result<T, RequestError> {
    let message = "differs from the limit of an earlier descriptor for the same counter";
    refuse(format!("descriptors[{at}].limit"), message)
}

/// Adds the hits of two requests for one counter; refunds count as negative.
fn add(
    counter: &mut CounterRequest,
    other: &CounterRequest,
    at: usize,
) -> Result<(), RequestError> {
    if counter.limit != other.limit {
        return contradicts(at);
    }
    let signed = |counter: &CounterRequest| {
        let hits = i64::try_from(counter.hits).unwrap_or(i64::MAX);
        if counter.mode == Mode::Refund { -hits } else { hits }
    };
    let sum = signed(counter) + signed(other);
    let gives_back = counter.mode == Mode::Refund || other.mode == Mode::Refund;
    counter.mode = match counter.mode {
        Mode::Peek => Mode::Peek,
        // Hits taken and refunded in one request need no capacity.
        _ if sum < 0 || sum == 0 && gives_back => Mode::Refund,
        Mode::Take | Mode::Refund => Mode::Take,
    };
    counter.hits = sum.unsigned_abs().min(HITS_MAX);
    Ok(())
}
