//! Requests whose counters are on several servers.
//!
//! No script sees them all, so each server decides over its own, at once, and what some took is
//! given back where others reject: exactly that. What a request gives back itself waits until it is
//! known to pass. The promise is weaker than that of one script: until hits are given back, others
//! can see those of a request that is rejected, and may be rejected for them. Nothing is lost or
//! invented unless a server fails in between; then hits may stay taken of a request that was
//! rejected, never the other way round.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::route::Target;
use crate::clock::uptime_us;
use crate::decide::{Ask, Mode, Outcome};
use crate::decision::{Decision, Source};
use crate::decision::{Enforcement, Status};
use crate::limit::Shape;
use crate::store::{Occasion, StoreError};

/// The asks of a request that one server decides together.
pub(super) struct Part {
    pub(super) target: Target,
    pub(super) asks: Arc<Vec<Ask>>,
    /// Where in the request each stands.
    pub(super) positions: Vec<usize>,
}

/// Decides all parts, and gives back what a rejected request took. To be run to its end, whoever
/// waits for it.
pub(super) async fn decide(parts: Vec<Part>, occasion: Occasion) -> Result<Decision, StoreError> {
    let start_us = uptime_us();
    let (parts, refunds) = apart(parts);
    let decided = on_all(parts.iter().map(Part::request), &occasion).await;
    let outcome = outcome(&parts, &decided, &refunds);
    // A replay's clock stands still.
    let late_us = |part: &Part| match occasion.at_ms {
        Some(_) => 0,
        None => uptime_us() - start_us + part.target.timeout_us(),
    };
    let undos: Vec<Part> = parts
        .iter()
        .zip(&decided)
        .filter_map(|(part, decision)| {
            undo(part, &decision.as_ref().ok()?.statuses, outcome, late_us(part))
        })
        .collect();
    let undos_count = undos.len();
    let is_decided = decided.iter().all(Result::is_ok);
    let refunds = refunds.into_iter().filter(|_| is_decided).map(|part| part.settled(outcome));
    let settling: Vec<Part> = undos.into_iter().chain(refunds).collect();
    let settled = on_all(settling.iter().map(Part::request), &occasion).await;
    let (undone, refunded) = settled.split_at(undos_count);
    if let Some(error) = failure(&decided, undone, refunded, outcome) {
        return Err(error);
    }

    let count = parts.iter().chain(&settling[undos_count..]).map(|part| part.asks.len()).sum();
    let mut statuses = vec![Status::UNKNOWN; count];
    tell(&mut statuses, parts.iter().zip(decided), |_, status| status);
    // An undo that fails leaves hits taken: the rejection stands all the same.
    tell(&mut statuses, settling.iter().zip(settled), |before, settled| {
        let Status { remaining, reset_after_ms, .. } = settled;
        Status { remaining, reset_after_ms, ..before }
    });
    // The wait that was told of debt is too long where the debt was given back.
    let is_rejected = |at: usize| !statuses[at].within_limit;
    let looks = settling[..undos_count].iter().filter_map(|undo| undo.looked_at(is_rejected));
    let looks: Vec<Part> = looks.collect();
    let looked = on_all(looks.iter().map(Part::request), &occasion).await;
    tell(&mut statuses, looks.iter().zip(looked), |before, now| Status {
        retry_after_ms: now.retry_after_ms,
        ..before
    });
    if !outcome.allowed() {
        statuses.iter_mut().for_each(|status| status.delay_ms = 0);
    }
    Ok(Decision { allowed: outcome.allowed(), source: Source::Store, statuses })
}

/// What comes of all parts together.
fn outcome(parts: &[Part], decided: &[Result<Decision, StoreError>], refunds: &[Part]) -> Outcome {
    let mut outcome = Outcome::default();
    for (part, decision) in parts.iter().zip(decided) {
        match decision {
            Ok(decision) => outcome.count_all(&part.asks, &decision.statuses),
            Err(_) => outcome.fail(),
        }
    }
    // They always fit, and count among the quotas.
    refunds.iter().flat_map(|part| &*part.asks).for_each(|ask| outcome.count(ask, true));
    outcome
}

/// Puts what parts were answered in its place: of the status there, and the one that came.
fn tell<'a>(
    statuses: &mut [Status],
    answers: impl Iterator<Item = (&'a Part, Result<Decision, StoreError>)>,
    join: impl Fn(Status, Status) -> Status,
) {
    for (part, decision) in answers {
        let answered = decision.into_iter().flat_map(|decision| decision.statuses);
        for (at, status) in part.positions.iter().zip(answered) {
            statuses[*at] = join(statuses[*at], status);
        }
    }
}

/// What is tested first, and what is given back after it.
fn apart(parts: Vec<Part>) -> (Vec<Part>, Vec<Part>) {
    let is_refund = |ask: &Ask| ask.mode == Mode::Refund;
    if !parts.iter().any(|part| part.asks.iter().any(is_refund)) {
        return (parts, Vec::new());
    }
    let only = |refunds: bool| {
        let some = parts.iter().filter_map(|part| part.only(|ask| is_refund(ask) == refunds));
        some.collect()
    };
    (only(false), only(true))
}

/// Why there is no decision, if a part has none: where hits may be moved, an error that says so.
fn failure(
    decided: &[Result<Decision, StoreError>],
    undone: &[Result<Decision, StoreError>],
    refunded: &[Result<Decision, StoreError>],
    outcome: Outcome,
) -> Option<StoreError> {
    let errors_of = |all: &[Result<Decision, StoreError>]| {
        all.iter().filter_map(|decision| decision.clone().err()).collect::<Vec<_>>()
    };
    let (errors, kept, not_refunded) = (errors_of(decided), errors_of(undone), errors_of(refunded));
    let lost = |why: &StoreError| StoreError::Lost(format!("{why}; hits stay moved elsewhere"));
    if let Some(first) = errors.first() {
        let uncertain = errors.iter().find(|error| error.may_have_taken());
        return Some(match uncertain {
            Some(error) => error.clone(),
            None if kept.is_empty() => first.clone(),
            None => lost(first),
        });
    }
    // How a rejected request's refunds would stand is no part of the decision.
    let first = not_refunded.first().filter(|_| outcome.allowed())?;
    let is_all = decided.is_empty() && not_refunded.len() == refunded.len();
    Some(if is_all { first.clone() } else { lost(first) })
}

impl Part {
    /// Some of the asks, if there are any.
    fn only(&self, wanted: impl Fn(&Ask) -> bool) -> Option<Self> {
        let both = self.asks.iter().zip(&self.positions).filter(|(ask, _)| wanted(ask));
        self.further(both.map(|(ask, at)| (ask.clone(), *at)))
    }

    /// What else its server is asked, if that is anything.
    fn further(&self, asks: impl Iterator<Item = (Ask, usize)>) -> Option<Self> {
        let (asks, positions): (Vec<Ask>, Vec<usize>) = asks.unzip();
        let target = self.target.clone();
        (!asks.is_empty()).then(|| Self { target, asks: Arc::new(asks), positions })
    }

    /// Refunds as the request's outcome has them: what is not given back is only looked at.
    fn settled(self, outcome: Outcome) -> Self {
        let is_kept = |ask: &Ask| ask.hits > 0 && !outcome.moves(ask, true);
        // One of 0 hits stays a refund: a read of a full counter would reject the others here.
        let mode = |ask: &Ask| if is_kept(ask) { Mode::Peek } else { Mode::Refund };
        let asks = self.asks.iter().map(|ask| Ask { mode: mode(ask), ..ask.clone() });
        Self { asks: Arc::new(asks.collect()), ..self }
    }

    /// Reads of the asks at some positions, if there are any.
    fn looked_at(&self, wanted: impl Fn(usize) -> bool) -> Option<Self> {
        let both = self.asks.iter().zip(&self.positions).filter(|(_, at)| wanted(**at));
        self.further(both.map(|(ask, at)| (Ask { mode: Mode::Peek, ..ask.clone() }, *at)))
    }

    fn request(&self) -> (Target, Arc<Vec<Ask>>) {
        (self.target.clone(), self.sent())
    }

    /// What its server is asked: quotas reject together with those of other parts, so that none
    /// does there.
    fn sent(&self) -> Arc<Vec<Ask>> {
        let is_quota = |ask: &Ask| matches!(ask.enforcement, Enforcement::Quota(_));
        if !self.asks.iter().any(is_quota) {
            return Arc::clone(&self.asks);
        }
        let enforcement = |ask: &Ask| match ask.enforcement {
            Enforcement::Quota(_) => Enforcement::Shadow,
            own @ (Enforcement::Enforced | Enforcement::Shadow) => own,
        };
        Arc::new(
            self.asks.iter().map(|a| Ask { enforcement: enforcement(a), ..a.clone() }).collect(),
        )
    }
}

/// What gives back what a part took and the whole request does not, at most `late_us` after it.
fn undo(part: &Part, statuses: &[Status], whole: Outcome, late_us: u64) -> Option<Part> {
    let own = Outcome::of(&part.sent(), statuses);
    let both = part.asks.iter().zip(statuses).zip(&part.positions);
    let undone = both
        .filter(|((ask, status), _)| {
            own.moves(ask, status.within_limit) && !whole.moves(ask, status.within_limit)
        })
        // In the next window it would give back what others took there.
        .filter(|((ask, status), _)| {
            let ends_us = status.reset_after_ms.saturating_mul(1_000);
            !matches!(ask.limit.shape(), Shape::FixedWindow) || ends_us > late_us
        })
        .map(|((ask, _), at)| (Ask { mode: Mode::Refund, ..ask.clone() }, *at));
    part.further(undone)
}

/// Asks servers at once; the decisions are in the requests' order.
pub(super) async fn on_all(
    requests: impl Iterator<Item = (Target, Arc<Vec<Ask>>)>,
    occasion: &Occasion,
) -> Vec<Result<Decision, StoreError>> {
    let mut running = JoinSet::new();
    for (at, (target, asks)) in requests.enumerate() {
        let occasion = occasion.clone();
        running.spawn(async move { (at, target.decide(asks, occasion).await) });
    }
    let mut decisions: Vec<_> = (0..running.len())
        .map(|_| Err(StoreError::Lost("the run was given up".to_owned())))
        .collect();
    while let Some(joined) = running.join_next().await {
        if let Ok((at, decision)) = joined {
            decisions[at] = decision;
        }
    }
    decisions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_so_where_any_hits_may_be_taken() {
        let took = || Ok(Decision::without_limits());
        let down = || Err(StoreError::Unavailable("down".to_owned()));
        let late = || Err(StoreError::Timeout);
        let mut rejected = Outcome::default();
        rejected.fail();
        let of = |decided: &[_], undone: &[_]| {
            failure(decided, undone, &[], rejected).map(|error| error.kind())
        };
        assert_eq!(of(&[took(), took()], &[]), None);
        // A rejected request, whose undo failed.
        assert_eq!(of(&[took(), took()], &[down()]), None);
        assert_eq!(of(&[took(), down()], &[took()]), Some("unavailable"));
        assert_eq!(of(&[took(), down()], &[down()]), Some("lost"));
        assert_eq!(of(&[took(), down()], &[late()]), Some("lost"));
        assert_eq!(of(&[down(), late()], &[]), Some("timeout"));
        assert_eq!(of(&[down(), down()], &[]), Some("unavailable"));
    }

    #[test]
    fn a_refund_that_fails_is_an_error_of_a_request_that_passes() {
        let done = || Ok(Decision::without_limits());
        let down = || Err(StoreError::Unavailable("down".to_owned()));
        let of = |decided: &[_], refunded: &[_], outcome| {
            failure(decided, &[], refunded, outcome).map(|error| error.kind())
        };
        let (passes, mut rejected) = (Outcome::default(), Outcome::default());
        rejected.fail();
        assert_eq!(of(&[done()], &[done()], passes), None);
        assert_eq!(of(&[done()], &[down()], rejected), None);
        assert_eq!(of(&[], &[down(), down()], passes), Some("unavailable"));
        assert_eq!(of(&[], &[done(), down()], passes), Some("lost"));
        assert_eq!(of(&[done()], &[down()], passes), Some("lost"));
    }
}
