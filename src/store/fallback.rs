//! What a request gets while its store cannot decide.
//!
//! `local`: this replica decides by itself, on a memory store, with limits divided by the number
//! of replicas. What it admits so is noted, and charged to the store when that is back, where it
//! still counts; once at most, for a charge whose answer is lost is not sent again. Hits that are
//! given back are noted too: first they lower what was noted as taken here, and what is more than
//! that was taken before the outage, so that the store gives it back.

mod noted;

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
use noted::Noted;
pub use noted::Reconciliation;

/// Counters whose hits are noted; those of further ones are never charged or given back.
const NOTED_MAX: usize = 100_000;

/// Decides in the store's place. All threads share it.
pub struct Fallback {
    memory: Arc<MemoryStore>,
    /// How many replicas share the limits.
    replicas: u32,
    noted: Mutex<HashMap<u128, Noted>>,
    /// Hits that there was no room to note.
    lost: AtomicU64,
}

impl Fallback {
    /// Decides on `memory`, with limits divided by `replicas`.
    pub fn new(memory: Arc<MemoryStore>, replicas: u32) -> Self {
        Self { memory, replicas: replicas.max(1), noted: Mutex::default(), lost: AtomicU64::new(0) }
    }

    /// The decision by `policy` over asks that failed with `error`.
    ///
    /// # Errors
    /// The policy is to answer with it.
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
        // What the store may have done already is not done again.
        if !error.may_have_taken() {
            self.note(counters, &decision.statuses, &counting);
        }
        Decision { source: Source::Fallback, ..decision }
    }

    /// Notes what a decision moved. `counting` are the hits that counted here before, of each counter
    /// that is given some back.
    fn note(&self, counters: &[CounterRequest], statuses: &[Status], counting: &[u64]) {
        let outcome = Outcome::of(counters, statuses);
        let mut noted = self.noted.lock();
        for ((counter, status), counting) in counters.iter().zip(statuses).zip(counting) {
            if !outcome.moves(counter, status.within_limit) {
                continue;
            }
            let is_full = noted.len() >= NOTED_MAX;
            let entry = match noted.entry(counter.key.hash()) {
                Entry::Vacant(_) if is_full => {
                    self.lost.fetch_add(counter.hits, Ordering::Relaxed);
                    continue;
                }
                entry @ (Entry::Occupied(_) | Entry::Vacant(_)) => {
                    entry.or_insert_with(|| Noted::of(counter))
                }
            };
            match counter.mode {
                Mode::Take => entry.take(counter.hits),
                Mode::Refund => entry.give_back(counter.hits, *counting, self.memory.now_ms()),
                Mode::Peek => {}
            }
        }
    }

    /// What the store is to be charged, or to give back, within `soon`, of up to so many counters: of
    /// each the hits that still count here, at most those that were noted, less those given back. They
    /// are forgotten here: who takes them charges them, or puts them back. `None` where nothing
    /// is noted.
    pub fn take_reconciliations(
        &self,
        counters_max: usize,
        soon: Duration,
    ) -> Option<Vec<Reconciliation>> {
        let noted: Vec<Noted> = {
            let mut noted = self.noted.lock();
            noted.extract_if(|_, _| true).take(counters_max).map(|(_, noted)| noted).collect()
        };
        let soon_ms = u64::try_from(soon.as_millis()).unwrap_or(u64::MAX);
        let at_ms = self.memory.now_ms().saturating_add(soon_ms);
        let reconciliation = |noted: Noted| {
            let share = noted.counter.limit.share_of(self.replicas);
            let counting = self.memory.used(&noted.counter.key, &share);
            noted.into_reconciliation(counting, at_ms)
        };
        (!noted.is_empty()).then(|| noted.into_iter().filter_map(reconciliation).collect())
    }

    /// Notes again what the store could not be charged.
    pub fn put_back(&self, reconciliations: Vec<Reconciliation>) {
        let now_ms = self.memory.now_ms();
        let mut noted = self.noted.lock();
        for reconciliation in reconciliations {
            let entry = noted.entry(reconciliation.key().hash());
            entry
                .or_insert_with(|| Noted::of_reconciliation(&reconciliation))
                .put_back(&reconciliation, now_ms);
        }
    }

    /// Hits that were taken or given back and that the store can never be told of, since this was
    /// asked last.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Where it counts.
    pub fn memory(&self) -> &MemoryStore {
        &self.memory
    }

    /// Whether there is anything to charge.
    pub fn needs_reconciling(&self) -> bool {
        !self.noted.lock().is_empty()
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
    fn each_replica_admits_its_part_rounded_up() {
        for (replicas, part) in [(1, 10), (2, 5), (3, 4), (10, 1), (100, 1)] {
            for algorithm in Algorithm::ALL.into_iter().filter(|other| *other != Algorithm::Gcra) {
                let (fallback, _) = fallback(replicas);
                let admit = |_: &u64| admits(&fallback, counter(algorithm, 1, Mode::Take), down());
                assert_eq!((0..20).take_while(admit).count(), part, "{algorithm:?}, {replicas}");
            }
        }
    }

    #[test]
    fn the_other_policies_decide_all_alike() {
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
    fn what_was_admitted_is_charged_once() {
        let (fallback, _) = fallback(1);
        assert!(admits(&fallback, take(3), down()));
        assert!(admits(&fallback, take(4), down()));
        assert!(!admits(&fallback, take(4), down()), "rejected, and not charged");
        assert!(admits(&fallback, counter(Algorithm::SlidingWindowLog, 2, Mode::Refund), down()));
        assert_eq!(to_reconcile(&fallback), [5]);
        assert_eq!(to_reconcile(&fallback), [0; 0]);
    }

    fn give_back(algorithm: Algorithm, hits: u64) -> CounterRequest {
        counter(algorithm, hits, Mode::Refund)
    }

    /// What the store is asked once it is back.
    fn asked(fallback: &Fallback) -> Vec<(Mode, u64)> {
        let reconciliations =
            fallback.take_reconciliations(usize::MAX, Duration::ZERO).unwrap_or_default();
        let asked = |reconciliation: &Reconciliation| {
            (reconciliation.counter().mode, reconciliation.counter().hits)
        };
        reconciliations.iter().map(asked).collect()
    }

    #[test]
    fn hits_of_before_the_outage_are_given_back_to_the_store() {
        for algorithm in Algorithm::ALL {
            let (fallback, _) = fallback(1);
            assert!(admits(&fallback, give_back(algorithm, 4), down()));
            assert_eq!(asked(&fallback), [(Mode::Refund, 4)], "{algorithm:?}");
            assert_eq!(asked(&fallback), [], "{algorithm:?}: once");
        }
    }

    #[test]
    fn hits_taken_and_given_back_come_to_one_amount() {
        let log = Algorithm::SlidingWindowLog;
        for (hits, counters) in [
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
            assert_eq!(asked(&fallback), [counters], "{hits:?}");
        }
    }

    #[test]
    fn a_refund_is_void_once_nothing_of_before_it_can_count() {
        for (algorithm, counts_for_ms) in [
            // The window ends 40 seconds after it.
            (Algorithm::FixedWindow, 40_000),
            (Algorithm::SlidingWindowLog, 60_000),
            // Until the sub-window of six seconds that it is in has left the period.
            (Algorithm::SlidingWindowCounter, 64_000),
            (Algorithm::TokenBucket, 60_000),
            (Algorithm::LeakyBucket, 60_000),
        ] {
            for (after_ms, counters) in
                [(counts_for_ms - 1, &[(Mode::Refund, 4)][..]), (counts_for_ms, &[])]
            {
                let (fallback, clock) = fallback(1);
                assert!(admits(&fallback, give_back(algorithm, 4), down()));
                clock.set(NOW_MS + after_ms);
                assert_eq!(asked(&fallback), counters, "{algorithm:?} after {after_ms} ms");
            }
        }
    }

    #[test]
    fn a_refund_of_an_ended_window_takes_nothing_from_the_next() {
        let window = Algorithm::FixedWindow;
        let (fallback, clock) = fallback(1);
        assert!(admits(&fallback, give_back(window, 4), down()));
        clock.set(NOW_MS + 40_000);
        assert!(admits(&fallback, counter(window, 3, Mode::Take), down()));
        assert!(admits(&fallback, give_back(window, 1), down()));
        assert_eq!(asked(&fallback), [(Mode::Take, 2)]);
        // Hits of an ended window are none that a refund of the next could give back.
        assert!(admits(&fallback, counter(window, 5, Mode::Take), down()));
        clock.set(NOW_MS + 100_000);
        assert!(admits(&fallback, give_back(window, 2), down()));
        assert_eq!(asked(&fallback), [(Mode::Refund, 2)]);
    }

    #[test]
    fn a_refund_that_is_put_back_lasts_no_longer_for_it() {
        let window = Algorithm::FixedWindow;
        let (fallback, clock) = fallback(1);
        assert!(admits(&fallback, give_back(window, 4), down()));
        let reconciliations = fallback.take_reconciliations(1, Duration::ZERO).unwrap();
        assert!(admits(&fallback, give_back(window, 1), down()));
        fallback.put_back(reconciliations);
        let reconciliations = fallback.take_reconciliations(1, Duration::ZERO).unwrap();
        assert_eq!(reconciliations.iter().map(Reconciliation::hits).collect::<Vec<_>>(), [5]);
        clock.set(NOW_MS + 40_000);
        fallback.put_back(reconciliations);
        assert_eq!(asked(&fallback), []);
    }

    #[test]
    fn a_refund_that_the_store_may_have_made_is_not_made_again() {
        let (fallback, _) = fallback(1);
        let log = Algorithm::SlidingWindowLog;
        assert!(admits(&fallback, give_back(log, 3), StoreError::Timeout));
        assert!(admits(&fallback, give_back(log, 2), down()));
        assert_eq!(asked(&fallback), [(Mode::Refund, 2)]);
    }

    #[test]
    fn what_a_rejected_request_gives_back_is_noted_where_rejected_hits_count() {
        let counted = |mode, hits| {
            let counter = counter(Algorithm::FixedWindow, hits, mode);
            CounterRequest { limit: counter.limit.into_counted(), ..counter }
        };
        let (fallback, _) = fallback(1);
        assert!(!admits(&fallback, counted(Mode::Take, 12), down()));
        assert!(admits(&fallback, counted(Mode::Refund, 15), down()));
        assert_eq!(asked(&fallback), [(Mode::Refund, 3)]);
    }

    #[test]
    fn what_is_put_back_is_charged_with_what_came_meanwhile() {
        let (fallback, _) = fallback(1);
        assert!(admits(&fallback, take(3), down()));
        let reconciliations = fallback.take_reconciliations(1, Duration::ZERO).unwrap();
        assert!(fallback.take_reconciliations(1, Duration::ZERO).is_none());
        assert!(admits(&fallback, take(2), down()));
        fallback.put_back(reconciliations);
        assert_eq!(to_reconcile(&fallback), [5]);
    }

    #[test]
    fn what_the_store_may_have_taken_is_not_charged() {
        let (fallback, _) = fallback(1);
        assert!(admits(&fallback, take(3), StoreError::Timeout));
        assert!(admits(&fallback, take(1), StoreError::Lost("connection closed".into())));
        assert!(admits(&fallback, take(2), down()));
        assert_eq!(to_reconcile(&fallback), [2]);
    }

    #[test]
    fn what_no_longer_counts_is_not_charged() {
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
        // A hit drains in 6 seconds, and a started one counts.
        assert_eq!(to_reconcile(&fallback), [2]);
    }
}
