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

use super::topology::Target;
use crate::clock::uptime_us;
use crate::decide::{CounterRequest, Mode, Outcome};
use crate::decision::{Decision, Source};
use crate::decision::{Enforcement, Status};
use crate::store::context::DecideContext;
use crate::store_error::StoreError;

/// The asks of a request that one server decides together.
pub(super) struct ShardRequest {
    pub(super) target: Target,
    pub(super) counters: Arc<Vec<CounterRequest>>,
    /// Where in the request each stands.
    pub(super) positions: Vec<usize>,
}

/// Decides all parts, and gives back what a rejected request took. To be run to its end, whoever
/// waits for it.
pub(super) async fn scatter(
    shards: Vec<ShardRequest>,
    context: DecideContext,
) -> Result<Decision, StoreError> {
    let start_us = uptime_us();
    let (shards, refunds) = split_refunds(shards);
    let decided = dispatch_all(shards.iter().map(ShardRequest::request), &context).await;
    let outcome = outcome(&shards, &decided, &refunds);
    // A replay's clock stands still.
    let late_us = |shard: &ShardRequest| match context.at_ms {
        Some(_) => 0,
        None => uptime_us() - start_us + shard.target.timeout_us(),
    };
    let undos: Vec<ShardRequest> = shards
        .iter()
        .zip(&decided)
        .filter_map(|(shard, decision)| {
            undo(shard, &decision.as_ref().ok()?.statuses, outcome, late_us(shard))
        })
        .collect();
    let undos_count = undos.len();
    let is_decided = decided.iter().all(Result::is_ok);
    let refunds =
        refunds.into_iter().filter(|_| is_decided).map(|shard| shard.into_decided(outcome));
    let corrections: Vec<ShardRequest> = undos.into_iter().chain(refunds).collect();
    let corrected = dispatch_all(corrections.iter().map(ShardRequest::request), &context).await;
    let (undone, refunded) = corrected.split_at(undos_count);
    if let Some(error) = failure(&decided, undone, refunded, outcome) {
        return Err(error);
    }

    let count =
        shards.iter().chain(&corrections[undos_count..]).map(|shard| shard.counters.len()).sum();
    let mut statuses = vec![Status::UNKNOWN; count];
    merge(&mut statuses, shards.iter().zip(decided), |_, status| status);
    // An undo that fails leaves hits taken: the rejection stands all the same.
    merge(&mut statuses, corrections.iter().zip(corrected), |before, after| {
        let Status { remaining, reset_after_ms, .. } = after;
        Status { remaining, reset_after_ms, ..before }
    });
    // The wait that was told of debt is too long where the debt was given back.
    let is_rejected = |at: usize| !statuses[at].within_limit;
    let peeks = corrections[..undos_count].iter().filter_map(|undo| undo.peeks_at(is_rejected));
    let peeks: Vec<ShardRequest> = peeks.collect();
    let peeked = dispatch_all(peeks.iter().map(ShardRequest::request), &context).await;
    merge(&mut statuses, peeks.iter().zip(peeked), |before, now| Status {
        retry_after_ms: now.retry_after_ms,
        ..before
    });
    if !outcome.allowed() {
        statuses.iter_mut().for_each(|status| status.delay_ms = 0);
    }
    Ok(Decision { allowed: outcome.allowed(), source: Source::Store, statuses })
}

/// What comes of all parts together.
fn outcome(
    shards: &[ShardRequest],
    decided: &[Result<Decision, StoreError>],
    refunds: &[ShardRequest],
) -> Outcome {
    let mut outcome = Outcome::default();
    for (shard, decision) in shards.iter().zip(decided) {
        match decision {
            Ok(decision) => outcome.count_all(&shard.counters, &decision.statuses),
            Err(_) => outcome.fail(),
        }
    }
    // They always fit, and count among the quotas.
    refunds
        .iter()
        .flat_map(|shard| &*shard.counters)
        .for_each(|counter| outcome.count(counter, true));
    outcome
}

/// Puts what parts were answered in its place: of the status there, and the one that came.
fn merge<'a>(
    statuses: &mut [Status],
    answers: impl Iterator<Item = (&'a ShardRequest, Result<Decision, StoreError>)>,
    join: impl Fn(Status, Status) -> Status,
) {
    for (shard, decision) in answers {
        let answered = decision.into_iter().flat_map(|decision| decision.statuses);
        for (at, status) in shard.positions.iter().zip(answered) {
            statuses[*at] = join(statuses[*at], status);
        }
    }
}

/// What is tested first, and what is given back after it.
fn split_refunds(shards: Vec<ShardRequest>) -> (Vec<ShardRequest>, Vec<ShardRequest>) {
    let is_refund = |counter: &CounterRequest| counter.mode == Mode::Refund;
    if !shards.iter().any(|shard| shard.counters.iter().any(is_refund)) {
        return (shards, Vec::new());
    }
    let only = |refunds: bool| {
        let some =
            shards.iter().filter_map(|shard| shard.only(|counter| is_refund(counter) == refunds));
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

impl ShardRequest {
    /// Some of the asks, if there are any.
    fn only(&self, wanted: impl Fn(&CounterRequest) -> bool) -> Option<Self> {
        let both = self.counters.iter().zip(&self.positions).filter(|(counter, _)| wanted(counter));
        self.further(both.map(|(counter, at)| (counter.clone(), *at)))
    }

    /// What else its server is asked, if that is anything.
    fn further(&self, counters: impl Iterator<Item = (CounterRequest, usize)>) -> Option<Self> {
        let (counters, positions): (Vec<CounterRequest>, Vec<usize>) = counters.unzip();
        let target = self.target.clone();
        (!counters.is_empty()).then(|| Self { target, counters: Arc::new(counters), positions })
    }

    /// Refunds as the request's outcome has them: what is not given back is only looked at.
    fn into_decided(self, outcome: Outcome) -> Self {
        let is_kept = |counter: &CounterRequest| counter.hits > 0 && !outcome.moves(counter, true);
        // One of 0 hits stays a refund: a read of a full counter would reject the others here.
        let mode =
            |counter: &CounterRequest| if is_kept(counter) { Mode::Peek } else { Mode::Refund };
        let counters = self
            .counters
            .iter()
            .map(|counter| CounterRequest { mode: mode(counter), ..counter.clone() });
        Self { counters: Arc::new(counters.collect()), ..self }
    }

    /// Reads of the asks at some positions, if there are any.
    fn peeks_at(&self, wanted: impl Fn(usize) -> bool) -> Option<Self> {
        let both = self.counters.iter().zip(&self.positions).filter(|(_, at)| wanted(**at));
        self.further(
            both.map(|(counter, at)| (CounterRequest { mode: Mode::Peek, ..counter.clone() }, *at)),
        )
    }

    fn request(&self) -> (Target, Arc<Vec<CounterRequest>>) {
        (self.target.clone(), self.sent())
    }

    /// What its server is asked: quotas reject together with those of other parts, so that none
    /// does there.
    fn sent(&self) -> Arc<Vec<CounterRequest>> {
        let is_quota = |counter: &CounterRequest| counter.enforcement == Enforcement::Quota;
        if !self.counters.iter().any(is_quota) {
            return Arc::clone(&self.counters);
        }
        let enforcement = |counter: &CounterRequest| match counter.enforcement {
            Enforcement::Quota => Enforcement::Shadow,
            own @ (Enforcement::Enforced | Enforcement::Shadow) => own,
        };
        Arc::new(
            self.counters
                .iter()
                .map(|a| CounterRequest { enforcement: enforcement(a), ..a.clone() })
                .collect(),
        )
    }
}

/// What gives back what a part took and the whole request does not, at most `late_us` after it.
fn undo(
    shard: &ShardRequest,
    statuses: &[Status],
    whole: Outcome,
    late_us: u64,
) -> Option<ShardRequest> {
    let own = Outcome::of(&shard.sent(), statuses);
    let both = shard.counters.iter().zip(statuses).zip(&shard.positions);
    let undone = both
        .filter(|((counter, status), _)| {
            own.moves(counter, status.within_limit) && !whole.moves(counter, status.within_limit)
        })
        // In the next window it would give back what others took there.
        .filter(|((counter, status), _)| {
            let ends_us = status.reset_after_ms.saturating_mul(1_000);
            !counter.limit.ends_with_window() || ends_us > late_us
        })
        .map(|((counter, _), at)| (CounterRequest { mode: Mode::Refund, ..counter.clone() }, *at));
    shard.further(undone)
}

/// Asks servers at once; the decisions are in the requests' order.
pub(super) async fn dispatch_all(
    requests: impl Iterator<Item = (Target, Arc<Vec<CounterRequest>>)>,
    context: &DecideContext,
) -> Vec<Result<Decision, StoreError>> {
    let mut running = JoinSet::new();
    for (at, (target, counters)) in requests.enumerate() {
        let context = context.clone();
        running.spawn(async move { (at, target.dispatch(counters, context).await) });
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
