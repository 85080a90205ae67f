//! From a request and the rules in force to what the store is asked: a [`MatchedLimit`] for each limit
//! that a descriptor meets, and one [`CounterRequest`] for each counter.
//!
//! Where several descriptors name the same counter their hits add up and are tested as one, so
//! that no request passes by splitting itself. A limit that another one of the request replaces
//! is not met.

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

/// The most limits that one request may meet, those of one counter each for itself: what one scan
/// bears. What the store bears is bounded by [`RUN_COST_MAX`].
const LIMITS_MAX: usize = 1_024;

/// A limit that a descriptor met.
#[derive(Clone, Copy, Debug)]
pub struct MatchedLimit<'r> {
    /// Index into the request's descriptors.
    pub descriptor: usize,
    /// Where the limit comes from.
    pub origin: Origin<'r>,
    /// What the limit does to the request where the hits do not fit.
    pub enforcement: Enforcement,
    /// The group of a quota.
    pub quota_group: QuotaGroup,
    /// Index into the plan's asks; none for an unlimited rule.
    pub counter: Option<usize>,
}

/// Where a limit comes from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'r> {
    /// A rule of the limits file.
    Rule(&'r Rule, &'r RuleLimit),
    /// A rule without a limit that says so.
    Unlimited(&'r Rule),
    /// The request itself, and the rule that its path matches, if there is one.
    Override(Option<&'r Rule>, Limit),
}

impl<'r> Origin<'r> {
    /// The limit; none where the rule is unlimited.
    pub fn limit(&self) -> Option<&Limit> {
        match self {
            Self::Rule(_, limit) => Some(limit.limit()),
            Self::Override(_, limit) => Some(limit),
            Self::Unlimited(_) => None,
        }
    }

    /// The rule that matches, where there is one.
    pub const fn rule(&self) -> Option<&'r Rule> {
        match self {
            Self::Rule(rule, _) | Self::Unlimited(rule) => Some(rule),
            Self::Override(rule, _) => *rule,
        }
    }
}

/// What a request asks of the store.
#[derive(Debug)]
pub struct Plan<'r> {
    /// The limits met, in the descriptors' order.
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
    /// Names of limits that are not met, for others stand in for them.
    replaced: SmallVec<[&'r str; 8]>,
    /// What deciding all asks costs at most, as [`Limit::run_cost`] has it.
    cost: usize,
}

impl<'r> Plan<'r> {
    /// Matches a request against the rules of its domain, whose keys begin with `head`.
    ///
    /// # Errors
    /// Two descriptors bring different limits for one counter, or the limits met are too many or cost
    /// too much.
    pub fn of(
        request: &Request,
        domain: &'r Domain,
        head: &KeyPrefix,
    ) -> Result<Self, RequestError> {
        let descriptors = request.descriptors();
        // Mostly one limit each.
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

/// The names of all limits that those met stand in for.
fn replaced<'r>(request: &Request, domain: &'r Domain) -> SmallVec<[&'r str; 8]> {
    if !domain.replaces() {
        return SmallVec::new();
    }
    // A limit that a descriptor brings replaces none.
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
            let message = format!("meet more than {LIMITS_MAX} limits; ask in several requests");
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
        // Mostly a handful: a scan beats a table.
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

    /// A limit that a request brings counts as the first configured one that it stands in for, so
    /// that no request makes a group.
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
        "meet limits that cost more than {RUN_COST_MAX} together (a window or bucket costs 4, a log \
         12 to 75, a sliding_window_counter 4 and 1 for every 4 sub_windows); ask in several requests"
    );
    refuse("descriptors", message)
}

fn contradicts<T>(at: usize) -> Result<T, RequestError> {
    let message = "an earlier descriptor brings another limit for the same counter";
    refuse(format!("descriptors[{at}].limit"), message)
}

/// Adds up the hits of two asks of one counter; given back counts against taken.
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
        // What is taken and given back at once needs no room.
        _ if sum < 0 || sum == 0 && gives_back => Mode::Refund,
        Mode::Take | Mode::Refund => Mode::Take,
    };
    counter.hits = sum.unsigned_abs().min(HITS_MAX);
    Ok(())
}
