//! From a request and the rules in force to what the store is asked: a [`Matched`] for each limit
//! that a descriptor meets, and one [`Ask`] for each counter.
//!
//! Where several descriptors name the same counter their hits add up and are tested as one, so
//! that no request passes by splitting itself.

use crate::decide::{Ask, Mode};
use crate::key::{Counter, Head, Key, Tail};
use crate::limit::{HITS_MAX, Limit};
use crate::request::{Descriptor, Entries, Request, RequestError};
use crate::rules::{Domain, Rule, RuleLimit};

/// The most limits that one request may meet: what one script run and one scan bear.
const LIMITS_MAX: usize = 1_024;

/// A limit that a descriptor met.
#[derive(Clone, Copy, Debug)]
pub struct Matched<'r> {
    /// Index into the request's descriptors.
    pub descriptor: usize,
    /// Where the limit comes from.
    pub origin: Origin<'r>,
    /// Whether the rule only reports.
    pub shadow: bool,
    /// Index into the plan's asks; none for an unlimited rule.
    pub ask: Option<usize>,
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

impl Origin<'_> {
    /// The limit; none where the rule is unlimited.
    pub fn limit(&self) -> Option<&Limit> {
        match self {
            Self::Rule(_, limit) => Some(limit.limit()),
            Self::Override(_, limit) => Some(limit),
            Self::Unlimited(_) => None,
        }
    }
}

/// What a request asks of the store.
#[derive(Debug)]
pub struct Plan<'r> {
    /// The limits met, in the descriptors' order.
    pub matched: Vec<Matched<'r>>,
    /// The counters, each once.
    pub asks: Vec<Ask>,
}

impl<'r> Plan<'r> {
    /// Matches a request against the rules of its domain, whose keys begin with `head`.
    ///
    /// # Errors
    /// Two descriptors bring different limits for one counter, or too many limits are met.
    pub fn of(request: &Request, domain: &'r Domain, head: &Head) -> Result<Self, RequestError> {
        let descriptors = request.descriptors();
        // Mostly one limit each.
        let count = descriptors.len();
        let mut plan = Self { matched: Vec::with_capacity(count), asks: Vec::with_capacity(count) };
        for (at, descriptor) in descriptors.enumerate() {
            let rule = domain.find(descriptor.entries);
            let counter = |tail| Counter {
                head,
                slot_by: domain.slot_by(),
                entries: descriptor.entries,
                tail,
            };
            if let Some(limit) = descriptor.limit {
                let tail = Tail::of(limit, 0);
                plan.push(at, &descriptor, &counter(&tail), Origin::Override(rule, *limit))?;
                continue;
            }
            let Some(rule) = rule else { continue };
            if rule.unlimited().is_some() {
                let origin = Origin::Unlimited(rule);
                plan.matched.push(Matched { descriptor: at, origin, shadow: false, ask: None });
            }
            for limit in rule.limits() {
                let counter = counter(limit.key_tail());
                plan.push(at, &descriptor, &counter, Origin::Rule(rule, limit))?;
            }
        }
        Ok(plan)
    }

    fn push(
        &mut self,
        at: usize,
        descriptor: &Descriptor<'_>,
        counter: &Counter<'_, Entries<'_>>,
        origin: Origin<'r>,
    ) -> Result<(), RequestError> {
        if self.matched.len() >= LIMITS_MAX {
            let message = format!("meet more than {LIMITS_MAX} limits; ask in several requests");
            return Err(RequestError { field: "descriptors".to_owned(), message });
        }
        let Some(limit) = origin.limit() else { return Ok(()) };
        let shadow = match origin {
            Origin::Rule(rule, _) => rule.shadow(),
            // As in envoyproxy/ratelimit, a limit that the request brings is meant to hold.
            Origin::Override(..) | Origin::Unlimited(_) => false,
        };
        let ask = Ask {
            key: Key::of(counter),
            limit: *limit,
            hits: descriptor.hits,
            mode: descriptor.mode,
            shadow,
        };
        // Mostly a handful: a scan beats a table.
        let same = self.asks.iter().position(|other| other.key == ask.key);
        let index = if let Some(index) = same {
            add(&mut self.asks[index], &ask, at)?;
            index
        } else {
            self.asks.push(ask);
            self.asks.len() - 1
        };
        self.matched.push(Matched { descriptor: at, origin, shadow, ask: Some(index) });
        Ok(())
    }
}

/// Adds up the hits of two asks of one counter; given back counts against taken.
fn add(ask: &mut Ask, other: &Ask, at: usize) -> Result<(), RequestError> {
    if ask.limit != other.limit || ask.shadow != other.shadow {
        let message = "an earlier descriptor brings another limit for the same counter";
        let field = format!("descriptors[{at}].limit");
        return Err(RequestError { field, message: message.to_owned() });
    }
    let signed = |ask: &Ask| {
        let hits = i64::try_from(ask.hits).unwrap_or(i64::MAX);
        if ask.mode == Mode::Refund { -hits } else { hits }
    };
    let sum = signed(ask) + signed(other);
    ask.mode = match (ask.mode, other.mode) {
        (Mode::Peek, _) => Mode::Peek,
        _ if sum < 0 => Mode::Refund,
        // Both give back nothing: still a refund, which always fits.
        (Mode::Refund, Mode::Refund) => Mode::Refund,
        _ => Mode::Take,
    };
    ask.hits = sum.unsigned_abs().min(HITS_MAX);
    Ok(())
}
