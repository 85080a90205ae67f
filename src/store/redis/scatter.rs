//! Scatters a request whose counters are on several servers, and gathers the answers.
//!
//! No script can use all its counters, so each server decides over its own, all of them
//! concurrently. If one rejects, the hits that the others took are refunded exactly: an undo.
//! Refunds in the request itself are sent last, once it is known whether the request passes.
//!
//! The guarantee is weaker than that of one script. Until the undo, other requests can see the hits
//! of a rejected request, and may be rejected because of them. Hits are neither lost nor invented
//! unless a server fails in between. Then hits of a rejected request may stay taken; hits of an
//! allowed request are never missing.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::topology::Target;
use crate::clock::uptime_us;
use crate::decide::{CounterRequest, Mode, Outcome};
use crate::decision::{Decision, Source};
use crate::decision::{Enforcement, Status};
use crate::store::context::DecideContext;
use crate::store_error::StoreError;

/// The counter requests of a request that one server decides together.
pub(super) struct ShardRequest {
    pub(super) target: Target,
    pub(super) counters: Arc<Vec<CounterRequest>>,
    /// The index of each counter request in the whole request.
    pub(super) positions: Vec<usize>,
}

/// Decides over all shards, and undoes the hits of a rejected request. The future must not be
/// dropped before it completes, even if the caller gives up.
pub(super) async fn scatter(
    shards: Vec<ShardRequest>,
    context: DecideContext,
) -> Result<Decision, StoreError> {
    let start_us = uptime_us();
    let (shards, refunds) = split_refunds(shards);
    let decided = dispatch_all(shards.iter().map(ShardRequest::request), &context).await;
    let outcome = outcome(&shards, &decided, &refunds);
    // The clock of a replay does not advance.
    let undo_after_us = |shard: &ShardRequest| match context.at_ms {
        Some(_) => 0,
        None => uptime_us() - start_us + shard.target.timeout_us(),
    };
    let undos: Vec<ShardRequest> = shards
        .iter()
        .zip(&decided)
        .filter_map(|(shard, decision)| {
            undo(shard, &decision.as_ref().ok()?.statuses, outcome, undo_after_us(shard))
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
    // If an undo fails, its hits stay taken, and the request is rejected nevertheless.
    merge(&mut statuses, corrections.iter().zip(corrected), |before, after| {
        let Status { remaining, reset_after_ms, .. } = after;
        Status { remaining, reset_after_ms, ..before }
    });
    // A wait that was reported before its debt was undone is too long, so it is read again.
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

/// The outcome of the request over all shards.
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
    // Refunds always fit. They are counted, because they can be in quota groups.
    refunds
        .iter()
        .flat_map(|shard| &*shard.counters)
        .for_each(|counter| outcome.count(counter, true));
    outcome
}

/// Writes `join(old, new)` to each status that a shard's decision answers.
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

/// Splits shard requests into those to test first, and the refunds to send after them.
fn split_refunds(shards: Vec<ShardRequest>) -> (Vec<ShardRequest>, Vec<ShardRequest>) {
    let is_refund = |counter: &CounterRequest| counter.mode == Mode::Refund;
    if !shards.iter().any(|shard| shard.counters.iter().any(is_refund)) {
        return (shards, Vec::new());
    }
    let filter = |refunds: bool| {
        let filtered =
            shards.iter().filter_map(|shard| shard.filter(|counter| is_refund(counter) == refunds));
        filtered.collect()
    };
    (filter(false), filter(true))
}

/// The error of the request, if a shard could not decide. If hits may have been taken or refunded,
/// the error says so.
fn failure(
    decided: &[Result<Decision, StoreError>],
    undone: &[Result<Decision, StoreError>],
    refunded: &[Result<Decision, StoreError>],
    outcome: Outcome,
) -> Option<StoreError> {
    let errors_of = |all: &[Result<Decision, StoreError>]| {
        all.iter().filter_map(|decision| decision.clone().err()).collect::<Vec<_>>()
    };
    let (errors, not_undone, not_refunded) =
        (errors_of(decided), errors_of(undone), errors_of(refunded));
    let lost = |why: &StoreError| {
        StoreError::Lost(format!("{why}; hits stay taken or refunded on other servers"))
    };
    if let Some(first) = errors.first() {
        let uncertain = errors.iter().find(|error| error.may_have_taken());
        return Some(match uncertain {
            Some(error) => error.clone(),
            None if not_undone.is_empty() => first.clone(),
            None => lost(first),
        });
    }
    // The refunds of a rejected request are not part of the decision.
    let first = not_refunded.first().filter(|_| outcome.allowed())?;
    let is_all = decided.is_empty() && not_refunded.len() == refunded.len();
    Some(if is_all { first.clone() } else { lost(first) })
}

impl ShardRequest {
    /// The counter requests for which `wanted` holds; `None` if there are none.
    fn filter(&self, wanted: impl Fn(&CounterRequest) -> bool) -> Option<Self> {
        let pairs =
            self.counters.iter().zip(&self.positions).filter(|(counter, _)| wanted(counter));
        self.with_counters(pairs.map(|(counter, at)| (counter.clone(), *at)))
    }

    /// These counter requests to the same server; `None` if there are none.
    fn with_counters(
        &self,
        counters: impl Iterator<Item = (CounterRequest, usize)>,
    ) -> Option<Self> {
        let (counters, positions): (Vec<CounterRequest>, Vec<usize>) = counters.unzip();
        let target = self.target.clone();
        (!counters.is_empty()).then(|| Self { target, counters: Arc::new(counters), positions })
    }

    /// The refunds by the request's outcome: those that it does not make become peeks.
    fn into_decided(self, outcome: Outcome) -> Self {
        let is_void = |counter: &CounterRequest| counter.hits > 0 && !outcome.moves(counter, true);
        // A refund of 0 hits stays a refund: a peek of a full counter would reject the others here.
        let mode =
            |counter: &CounterRequest| if is_void(counter) { Mode::Peek } else { Mode::Refund };
        let counters = self
            .counters
            .iter()
            .map(|counter| CounterRequest { mode: mode(counter), ..counter.clone() });
        Self { counters: Arc::new(counters.collect()), ..self }
    }

    /// Peeks of the counters at the positions for which `wanted` holds; `None` if there are none.
    fn peeks_at(&self, wanted: impl Fn(usize) -> bool) -> Option<Self> {
        let pairs = self.counters.iter().zip(&self.positions).filter(|(_, at)| wanted(**at));
        let peek =
            |counter: &CounterRequest| CounterRequest { mode: Mode::Peek, ..counter.clone() };
        self.with_counters(pairs.map(|(counter, at)| (peek(counter), *at)))
    }

    fn request(&self) -> (Target, Arc<Vec<CounterRequest>>) {
        (self.target.clone(), self.counters_to_send())
    }

    /// The counter requests as they are sent to the server. Quotas are sent as shadow limits,
    /// because they reject only together with those of the other shards.
    fn counters_to_send(&self) -> Arc<Vec<CounterRequest>> {
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
                .map(|own| CounterRequest { enforcement: enforcement(own), ..own.clone() })
                .collect(),
        )
    }
}

/// The refunds of hits that a shard took and that the whole request does not take. They are made at
/// most `after_us` after the hits were taken.
fn undo(
    shard: &ShardRequest,
    statuses: &[Status],
    whole: Outcome,
    after_us: u64,
) -> Option<ShardRequest> {
    let own = Outcome::of(&shard.counters_to_send(), statuses);
    let triples = shard.counters.iter().zip(statuses).zip(&shard.positions);
    let undone = triples
        .filter(|((counter, status), _)| {
            own.moves(counter, status.within_limit) && !whole.moves(counter, status.within_limit)
        })
        // In the next window it would refund hits of other requests.
        .filter(|((counter, status), _)| {
            let ends_us = status.reset_after_ms.saturating_mul(1_000);
            !counter.limit.ends_with_window() || ends_us > after_us
        })
        .map(|((counter, _), at)| (CounterRequest { mode: Mode::Refund, ..counter.clone() }, *at));
    shard.with_counters(undone)
}

/// Sends requests concurrently. The decisions are in the order of the requests.
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
        .map(|_| Err(StoreError::Lost("the script run was abandoned".to_owned())))
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
    fn an_error_says_whether_hits_may_be_taken() {
        let took = || Ok(Decision::without_limits());
        let down = || Err(StoreError::Unavailable("down".to_owned()));
        let late = || Err(StoreError::Timeout);
        let mut rejected = Outcome::default();
        rejected.fail();
        let of = |decided: &[_], undone: &[_]| {
            failure(decided, undone, &[], rejected).map(|error| error.kind())
        };
        assert_eq!(of(&[took(), took()], &[]), None);
        // A rejected request whose undo failed.
        assert_eq!(of(&[took(), took()], &[down()]), None);
        assert_eq!(of(&[took(), down()], &[took()]), Some("unavailable"));
        assert_eq!(of(&[took(), down()], &[down()]), Some("lost"));
        assert_eq!(of(&[took(), down()], &[late()]), Some("lost"));
        assert_eq!(of(&[down(), late()], &[]), Some("timeout"));
        assert_eq!(of(&[down(), down()], &[]), Some("unavailable"));
    }

    #[test]
    fn a_failed_refund_fails_a_request_that_passes() {
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
