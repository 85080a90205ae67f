//! The fallback: decides requests while the store cannot.
//!
//! The policy of the domain says how. `error` returns the store's error, `allow` and `deny` decide
//! all requests alike, and `local` decides in this process.
//!
//! With `local`, each replica decides alone, on a memory store, with limits divided by the number
//! of replicas. Admitted hits are recorded and charged to the store once it is back, if they still
//! count then. They are charged at most once: a charge whose answer is lost is not sent again,
//! because the hits could count twice.
//!
//! Refunds are recorded too. A refund first lowers the recorded hits of its counter. The rest of it
//! is for hits taken before the outage, so the store is to refund it.

mod pending;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::memory::MemoryStore;
use crate::decide::{CounterRequest, Mode, Outcome};
use crate::decision::{Decision, Source, Status};
use crate::on_store_failure::OnStoreFailure;
use crate::store_error::StoreError;
use pending::PendingHits;
pub use pending::Reconciliation;

/// Counters with recorded hits, at most. Hits of further counters are never charged or refunded.
const PENDING_MAX: usize = 100_000;

/// Decides instead of the store. All threads share it.
pub struct Fallback {
    memory: Arc<MemoryStore>,
    /// The number of replicas that share the limits.
    replicas: u32,
    /// Recorded hits, by the hash of their counter's key.
    pending: Mutex<HashMap<u128, PendingHits>>,
    /// Hits that were not recorded, because [`PENDING_MAX`] was reached.
    lost: AtomicU64,
}

impl Fallback {
    /// A fallback that decides on `memory`, with limits divided by `replicas`.
    pub fn new(memory: Arc<MemoryStore>, replicas: u32) -> Self {
        Self {
            memory,
            replicas: replicas.max(1),
            pending: Mutex::default(),
            lost: AtomicU64::new(0),
        }
    }

    /// Decides by `policy` over counter requests that failed with `error`.
    ///
    /// # Errors
    /// `error`, if the policy is [`OnStoreFailure::Error`].
    pub fn fall_back(
        &self,
        counters: &[CounterRequest],
        policy: OnStoreFailure,
        error: StoreError,
    ) -> Result<Decision, StoreError> {
        match policy {
            OnStoreFailure::Error => Err(error),
            OnStoreFailure::Allow => Ok(same_for_all(counters, true)),
            OnStoreFailure::Deny => Ok(same_for_all(counters, false)),
            OnStoreFailure::Local => Ok(self.decide_locally(counters, &error)),
        }
    }

    fn decide_locally(&self, counters: &[CounterRequest], error: &StoreError) -> Decision {
        let share = |counter: &CounterRequest| CounterRequest {
            limit: counter.limit.share_of(self.replicas),
            ..counter.clone()
        };
        let shares: Vec<CounterRequest> = counters.iter().map(share).collect();
        let used = |counter: &CounterRequest| match counter.mode {
            Mode::Refund => self.memory.used(&counter.key, &counter.limit),
            Mode::Take | Mode::Peek => 0,
        };
        let counting: Vec<u64> = shares.iter().map(used).collect();
        let decision = self.memory.transact(&shares, None);
        // Hits that the store may have taken are not charged again.
        if !error.may_have_taken() {
            self.record(counters, &decision.statuses, &counting);
        }
        Decision { source: Source::Fallback, ..decision }
    }

    /// Records the hits that a decision took or refunded. `counting` has for each counter to refund
    /// the hits that counted here before.
    fn record(&self, counters: &[CounterRequest], statuses: &[Status], counting: &[u64]) {
        let outcome = Outcome::of(counters, statuses);
        let mut pending = self.pending.lock();
        for ((counter, status), counting) in counters.iter().zip(statuses).zip(counting) {
            if !outcome.moves(counter, status.within_limit) {
                continue;
            }
            let is_full = pending.len() >= PENDING_MAX;
            let entry = match pending.entry(counter.key.hash()) {
                Entry::Vacant(_) if is_full => {
                    self.lost.fetch_add(counter.hits, Ordering::Relaxed);
                    continue;
                }
                entry @ (Entry::Occupied(_) | Entry::Vacant(_)) => {
                    entry.or_insert_with(|| PendingHits::of(counter))
                }
            };
            match counter.mode {
                Mode::Take => entry.take(counter.hits),
                Mode::Refund => entry.refund(counter.hits, *counting, self.memory.now_ms()),
                Mode::Peek => {}
            }
        }
    }

    /// Removes and returns the recorded hits of up to `counters_max` counters, which the store is
    /// to charge or refund within `soon`. A counter's amount is the hits that still count here, at
    /// most those recorded as taken, less those refunded. The caller must send the reconciliations
    /// to the store or [put them back](Self::put_back). `None` if nothing is recorded.
    pub fn take_reconciliations(
        &self,
        counters_max: usize,
        soon: Duration,
    ) -> Option<Vec<Reconciliation>> {
        let taken: Vec<PendingHits> = {
            let mut pending = self.pending.lock();
            pending.extract_if(|_, _| true).take(counters_max).map(|(_, hits)| hits).collect()
        };
        let soon_ms = u64::try_from(soon.as_millis()).unwrap_or(u64::MAX);
        let at_ms = self.memory.now_ms().saturating_add(soon_ms);
        let reconciliation = |hits: PendingHits| {
            let share = hits.counter.limit.share_of(self.replicas);
            let counting = self.memory.used(&hits.counter.key, &share);
            hits.into_reconciliation(counting, at_ms)
        };
        (!taken.is_empty()).then(|| taken.into_iter().filter_map(reconciliation).collect())
    }

    /// Records reconciliations again that could not be sent to the store.
    pub fn put_back(&self, reconciliations: Vec<Reconciliation>) {
        let now_ms = self.memory.now_ms();
        let mut pending = self.pending.lock();
        for reconciliation in reconciliations {
            let entry = pending.entry(reconciliation.key().hash());
            entry
                .or_insert_with(|| PendingHits::of_reconciliation(&reconciliation))
                .put_back(&reconciliation, now_ms);
        }
    }

    /// Hits that were taken or refunded here and can never be reconciled, since the last call.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// The memory store that it decides on.
    pub fn memory(&self) -> &MemoryStore {
        &self.memory
    }

    /// Whether any hits are recorded.
    pub fn needs_reconciling(&self) -> bool {
        !self.pending.lock().is_empty()
    }
}

/// The same for all counters, except that hits given back are never rejected.
fn same_for_all(counters: &[CounterRequest], allowed: bool) -> Decision {
    let status = |counter: &CounterRequest| {
        let within_limit = allowed || counter.mode == Mode::Refund;
        Status { within_limit, ..Status::UNKNOWN }
    };
    let statuses: Vec<_> = counters.iter().map(status).collect();
    let allowed = statuses.iter().all(|status| status.within_limit);
    Decision { allowed, source: Source::Fallback, statuses }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;
    use crate::decision::{Enforcement, QuotaGroup};
    use crate::key::Key;
    use crate::limit::{Algorithm, Limit, LimitSpec};

    const NOW_MS: u64 = 1_700_000_000_000;

    fn down() -> StoreError {
        StoreError::Unavailable("not connected".into())
    }

    fn fallback(replicas: u32) -> (Fallback, FakeClock) {
        let clock = FakeClock::at(NOW_MS);
        let memory = MemoryStore::new(1_000, Arc::new(clock.clone()));
        (Fallback::new(Arc::new(memory), replicas), clock)
    }

    fn counter(algorithm: Algorithm, hits: u64, mode: Mode) -> CounterRequest {
        let spec = LimitSpec { algorithm, hits: 10, period_ms: 60_000, ..LimitSpec::default() };
        let limit = Limit::new(&spec).unwrap();
        CounterRequest {
            key: Key::of_bytes(&b"user"[..]),
            limit,
            hits,
            mode,
            enforcement: Enforcement::Enforced,
            quota_group: QuotaGroup::default(),
        }
    }

    fn take(hits: u64) -> CounterRequest {
        counter(Algorithm::SlidingWindowLog, hits, Mode::Take)
    }

    fn admits(fallback: &Fallback, counter: CounterRequest, error: StoreError) -> bool {
        let decision = fallback.fall_back(&[counter], OnStoreFailure::Local, error).unwrap();
        assert_eq!(decision.source, Source::Fallback);
        decision.allowed
    }

    fn to_reconcile(fallback: &Fallback) -> Vec<u64> {
        let reconciliations =
            fallback.take_reconciliations(usize::MAX, Duration::ZERO).unwrap_or_default();
        reconciliations.iter().map(Reconciliation::hits).collect()
    }

    #[test]
    fn each_replica_admits_its_share_rounded_up() {
        for (replicas, share) in [(1, 10), (2, 5), (3, 4), (10, 1), (100, 1)] {
            for algorithm in Algorithm::ALL.into_iter().filter(|other| *other != Algorithm::Gcra) {
                let (fallback, _) = fallback(replicas);
                let admit = |_: &u64| admits(&fallback, counter(algorithm, 1, Mode::Take), down());
                assert_eq!((0..20).take_while(admit).count(), share, "{algorithm:?}, {replicas}");
            }
        }
    }

    #[test]
    fn the_other_policies_decide_all_requests_alike() {
        let (fallback, _) = fallback(1);
        let decide = |policy| fallback.fall_back(&[take(1)], policy, down());
        assert!(decide(OnStoreFailure::Allow).unwrap().allowed);
        assert!(!decide(OnStoreFailure::Deny).unwrap().allowed);
        let refund = [counter(Algorithm::FixedWindow, 1, Mode::Refund)];
        let refunded = fallback.fall_back(&refund, OnStoreFailure::Deny, down()).unwrap();
        assert!(refunded.allowed && refunded.statuses[0].within_limit, "a refund is no request");
        assert_eq!(decide(OnStoreFailure::Error), Err(down()));
        assert!(!fallback.needs_reconciling());
    }

    #[test]
    fn admitted_hits_are_charged_once() {
        let (fallback, _) = fallback(1);
        assert!(admits(&fallback, take(3), down()));
        assert!(admits(&fallback, take(4), down()));
        assert!(!admits(&fallback, take(4), down()), "rejected, and not charged");
        assert!(admits(&fallback, counter(Algorithm::SlidingWindowLog, 2, Mode::Refund), down()));
        assert_eq!(to_reconcile(&fallback), [5]);
        assert_eq!(to_reconcile(&fallback), [0; 0]);
    }

    fn refund(algorithm: Algorithm, hits: u64) -> CounterRequest {
        counter(algorithm, hits, Mode::Refund)
    }

    /// The modes and hits that the store is sent once it is back.
    fn sent(fallback: &Fallback) -> Vec<(Mode, u64)> {
        let reconciliations =
            fallback.take_reconciliations(usize::MAX, Duration::ZERO).unwrap_or_default();
        let sent = |reconciliation: &Reconciliation| {
            (reconciliation.counter().mode, reconciliation.counter().hits)
        };
        reconciliations.iter().map(sent).collect()
    }

    #[test]
    fn hits_from_before_the_outage_are_refunded_in_the_store() {
        for algorithm in Algorithm::ALL {
            let (fallback, _) = fallback(1);
            assert!(admits(&fallback, refund(algorithm, 4), down()));
            assert_eq!(sent(&fallback), [(Mode::Refund, 4)], "{algorithm:?}");
            assert_eq!(sent(&fallback), [], "{algorithm:?}: once");
        }
    }

    #[test]
    fn hits_taken_and_refunded_are_sent_as_one_amount() {
        let log = Algorithm::SlidingWindowLog;
        for (hits, expected) in [
            (&[3, -5][..], (Mode::Refund, 2)),
            (&[5, -3], (Mode::Take, 2)),
            (&[-5, 3], (Mode::Refund, 2)),
            (&[-2, 5], (Mode::Take, 3)),
            (&[3, -5, 1, -1], (Mode::Refund, 2)),
            (&[-2, 4, -1], (Mode::Take, 1)),
        ] {
            let (fallback, _) = fallback(1);
            for amount in hits {
                let mode = if *amount < 0 { Mode::Refund } else { Mode::Take };
                assert!(admits(
                    &fallback,
                    counter(log, u64::from(i32::unsigned_abs(*amount)), mode),
                    down()
                ));
            }
            assert_eq!(sent(&fallback), [expected], "{hits:?}");
        }
    }

    #[test]
    fn a_refund_is_void_once_no_earlier_hit_can_count() {
        for (algorithm, counts_for_ms) in [
            // The window ends 40 seconds after the refund.
            (Algorithm::FixedWindow, 40_000),
            (Algorithm::SlidingWindowLog, 60_000),
            // The refund is in a sub-window of six seconds, which must leave the period first.
            (Algorithm::SlidingWindowCounter, 64_000),
            (Algorithm::TokenBucket, 60_000),
            (Algorithm::LeakyBucket, 60_000),
        ] {
            for (after_ms, expected) in
                [(counts_for_ms - 1, &[(Mode::Refund, 4)][..]), (counts_for_ms, &[])]
            {
                let (fallback, clock) = fallback(1);
                assert!(admits(&fallback, refund(algorithm, 4), down()));
                clock.set(NOW_MS + after_ms);
                assert_eq!(sent(&fallback), expected, "{algorithm:?} after {after_ms} ms");
            }
        }
    }

    #[test]
    fn a_refund_of_an_ended_window_takes_nothing_from_the_next() {
        let window = Algorithm::FixedWindow;
        let (fallback, clock) = fallback(1);
        assert!(admits(&fallback, refund(window, 4), down()));
        clock.set(NOW_MS + 40_000);
        assert!(admits(&fallback, counter(window, 3, Mode::Take), down()));
        assert!(admits(&fallback, refund(window, 1), down()));
        assert_eq!(sent(&fallback), [(Mode::Take, 2)]);
        // A refund in the next window cannot refund hits of a window that ended.
        assert!(admits(&fallback, counter(window, 5, Mode::Take), down()));
        clock.set(NOW_MS + 100_000);
        assert!(admits(&fallback, refund(window, 2), down()));
        assert_eq!(sent(&fallback), [(Mode::Refund, 2)]);
    }

    #[test]
    fn putting_a_refund_back_does_not_extend_it() {
        let window = Algorithm::FixedWindow;
        let (fallback, clock) = fallback(1);
        assert!(admits(&fallback, refund(window, 4), down()));
        let reconciliations = fallback.take_reconciliations(1, Duration::ZERO).unwrap();
        assert!(admits(&fallback, refund(window, 1), down()));
        fallback.put_back(reconciliations);
        let reconciliations = fallback.take_reconciliations(1, Duration::ZERO).unwrap();
        assert_eq!(reconciliations.iter().map(Reconciliation::hits).collect::<Vec<_>>(), [5]);
        clock.set(NOW_MS + 40_000);
        fallback.put_back(reconciliations);
        assert_eq!(sent(&fallback), []);
    }

    #[test]
    fn a_refund_that_the_store_may_have_made_is_not_sent_again() {
        let (fallback, _) = fallback(1);
        let log = Algorithm::SlidingWindowLog;
        assert!(admits(&fallback, refund(log, 3), StoreError::Timeout));
        assert!(admits(&fallback, refund(log, 2), down()));
        assert_eq!(sent(&fallback), [(Mode::Refund, 2)]);
    }

    #[test]
    fn the_refund_of_a_rejected_request_is_recorded_if_rejected_hits_count() {
        let counted = |mode, hits| {
            let counter = counter(Algorithm::FixedWindow, hits, mode);
            CounterRequest { limit: counter.limit.into_counted(), ..counter }
        };
        let (fallback, _) = fallback(1);
        assert!(!admits(&fallback, counted(Mode::Take, 12), down()));
        assert!(admits(&fallback, counted(Mode::Refund, 15), down()));
        assert_eq!(sent(&fallback), [(Mode::Refund, 3)]);
    }

    #[test]
    fn hits_that_are_put_back_are_charged_together_with_later_ones() {
        let (fallback, _) = fallback(1);
        assert!(admits(&fallback, take(3), down()));
        let reconciliations = fallback.take_reconciliations(1, Duration::ZERO).unwrap();
        assert!(fallback.take_reconciliations(1, Duration::ZERO).is_none());
        assert!(admits(&fallback, take(2), down()));
        fallback.put_back(reconciliations);
        assert_eq!(to_reconcile(&fallback), [5]);
    }

    #[test]
    fn hits_that_the_store_may_have_taken_are_not_charged() {
        let (fallback, _) = fallback(1);
        assert!(admits(&fallback, take(3), StoreError::Timeout));
        assert!(admits(&fallback, take(1), StoreError::Lost("connection closed".into())));
        assert!(admits(&fallback, take(2), down()));
        assert_eq!(to_reconcile(&fallback), [2]);
    }

    #[test]
    fn hits_that_no_longer_count_are_not_charged() {
        let (fallback, clock) = fallback(1);
        assert!(admits(&fallback, take(3), down()));
        clock.set(NOW_MS + 30_000);
        assert!(admits(&fallback, take(4), down()));
        clock.set(NOW_MS + 60_000);
        assert_eq!(to_reconcile(&fallback), [4]);
        let drained = counter(Algorithm::TokenBucket, 4, Mode::Take);
        assert!(admits(
            &fallback,
            CounterRequest { key: Key::of_bytes(&b"b"[..]), ..drained },
            down()
        ));
        clock.set(NOW_MS + 60_000 + 13_000);
        // One hit drains in 6 seconds, and a partly drained hit counts as one.
        assert_eq!(to_reconcile(&fallback), [2]);
    }
}
