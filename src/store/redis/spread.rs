//! Requests whose counters are on several servers.
//!
//! No script sees them all, so each server decides over its own, at once, and what some took is
//! given back where others reject: exactly that. The promise is weaker than that of one script:
//! until it is given back, others can see hits of a request that is rejected, and may be rejected
//! for them. Nothing is lost or invented unless a server fails in between; then hits may stay taken
//! of a request that was rejected, never the other way round.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::route::Target;
use crate::decide::{Ask, Enforcement, Mode, Outcome, Status};
use crate::store::{Decision, Occasion, Source, StoreError};

/// The asks of a request that one server decides together.
pub(super) struct Part {
    pub(super) target: Target,
    pub(super) asks: Arc<Vec<Ask>>,
    /// Where in the request each stands.
    pub(super) places: Vec<usize>,
}

/// Decides all parts, and gives back what a rejected request took. To be run to its end, whoever
/// waits for it.
pub(super) async fn decide(parts: Vec<Part>, occasion: Occasion) -> Result<Decision, StoreError> {
    let decided = on_all(parts.iter().map(Part::request), &occasion).await;
    let mut outcome = Outcome::default();
    for (part, decision) in parts.iter().zip(&decided) {
        match decision {
            Ok(decision) => outcome.count_all(&part.asks, &decision.statuses),
            Err(_) => outcome.fail(),
        }
    }
    let undos: Vec<Part> = parts
        .iter()
        .zip(&decided)
        .filter_map(|(part, decision)| undo(part, &decision.as_ref().ok()?.statuses, outcome))
        .collect();
    let undone = on_all(undos.iter().map(Part::request), &occasion).await;
    if let Some(error) = failure(&decided, &undone) {
        return Err(error);
    }

    let count = parts.iter().map(|part| part.asks.len()).sum();
    let mut statuses = vec![Status::UNKNOWN; count];
    for (part, decision) in parts.iter().zip(decided) {
        let statuses_of_part = decision.into_iter().flat_map(|decision| decision.statuses);
        for (at, status) in part.places.iter().zip(statuses_of_part) {
            statuses[*at] = status;
        }
    }
    // An undo that fails leaves hits taken: the rejection stands all the same.
    let undone =
        undos.iter().zip(undone).filter_map(|(undo, decision)| Some((undo, decision.ok()?)));
    for (undo, decision) in undone {
        for (at, Status { remaining, reset_after_ms, .. }) in
            undo.places.iter().zip(decision.statuses)
        {
            statuses[*at] = Status { remaining, reset_after_ms, delay_ms: 0, ..statuses[*at] };
        }
    }
    Ok(Decision { allowed: outcome.allowed(), source: Source::Store, statuses })
}

/// Why there is no decision, if a part has none: where hits may be taken, an error that says so.
fn failure(
    decided: &[Result<Decision, StoreError>],
    undone: &[Result<Decision, StoreError>],
) -> Option<StoreError> {
    let mut errors = decided.iter().filter_map(|decision| decision.as_ref().err());
    let first = errors.clone().next()?;
    if let Some(error) = errors.find(|error| error.may_have_taken()) {
        return Some(error.clone());
    }
    let kept = undone.iter().find_map(|undone| undone.as_ref().err());
    let lost = |error| StoreError::Lost(format!("{first}; hits stay taken elsewhere: {error}"));
    Some(kept.map_or_else(|| first.clone(), lost))
}

impl Part {
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

/// What takes back what a part moved and the whole request does not.
fn undo(part: &Part, statuses: &[Status], whole: Outcome) -> Option<Part> {
    let own = Outcome::of(&part.sent(), statuses);
    let both = part.asks.iter().zip(statuses).zip(&part.places);
    let (asks, places): (Vec<Ask>, Vec<usize>) = both
        .filter(|((ask, status), _)| {
            own.moves(ask, status.within_limit) && !whole.moves(ask, status.within_limit)
        })
        .map(|((ask, _), at)| (opposite(ask), *at))
        .unzip();
    let target = part.target.clone();
    (!asks.is_empty()).then(|| Part { target, asks: Arc::new(asks), places })
}

/// Gives back what was taken; takes what was given back, whether it fits or not.
fn opposite(ask: &Ask) -> Ask {
    match ask.mode {
        Mode::Take | Mode::Peek => Ask { mode: Mode::Refund, ..ask.clone() },
        Mode::Refund => {
            let limit = ask.limit.into_overdraft();
            Ask { mode: Mode::Take, limit, enforcement: Enforcement::Shadow, ..ask.clone() }
        }
    }
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
        let of = |decided: &[_], undone: &[_]| failure(decided, undone).map(|error| error.kind());
        assert_eq!(of(&[took(), took()], &[]), None);
        // A rejected request, whose undo failed.
        assert_eq!(of(&[took(), took()], &[down()]), None);
        assert_eq!(of(&[took(), down()], &[took()]), Some("unavailable"));
        assert_eq!(of(&[took(), down()], &[down()]), Some("lost"));
        assert_eq!(of(&[took(), down()], &[late()]), Some("lost"));
        assert_eq!(of(&[down(), late()], &[]), Some("timeout"));
        assert_eq!(of(&[down(), down()], &[]), Some("unavailable"));
    }
}
