//! The memory store at its maximum of keys: a flood of distinct values of one limit evicts that
//! limit's own counters, and all other limits stay exact.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;

use tidegate::clock::FakeClock;
use tidegate::limit::{Algorithm, Limit, LimitSpec};
use tidegate::on_store_failure::OnStoreFailure;
use tidegate::store::fallback::Fallback;
use tidegate::store::memory::MemoryStore;
use tidegate::store_error::StoreError;

use crate::counters::{checked, limit, peek, take};
use crate::support::client::{Caller, Request, Served, request};
use crate::support::servers::free_port;

const KEYS_MAX: usize = 1_000;
const START_MS: u64 = 1_700_000_000_000;
const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// The number of requests, of which a limit of five per period admits five.
const REQUESTS: u64 = 300;
const ADMITTED: u64 = 5;

fn store() -> (MemoryStore, FakeClock) {
    let clock = FakeClock::at(START_MS);
    (MemoryStore::new(KEYS_MAX, Arc::new(clock.clone())), clock)
}

/// Five hits at once, and no more at the same time.
fn five(algorithm: Algorithm, period_ms: u64) -> Limit {
    let burst = (algorithm == Algorithm::Gcra).then_some(5);
    checked(&LimitSpec { algorithm, hits: 5, period_ms, burst, ..LimitSpec::default() })
}

fn admits(store: &MemoryStore, name: &str, limit: &Limit) -> bool {
    store.transact(&[take(name, limit)], None).allowed
}

/// Distinct values of a limit of one hit per hour.
struct Flood {
    limit: Limit,
    sent: u64,
}

impl Flood {
    fn of(algorithm: Algorithm) -> Self {
        Self { limit: limit(algorithm, 1, HOUR_MS), sent: 0 }
    }

    fn send(&mut self, store: &MemoryStore, values: u64) {
        for _ in 0..values {
            self.sent += 1;
            assert!(admits(store, &format!("flood {}", self.sent), &self.limit));
            assert!(store.keys() <= KEYS_MAX, "{} keys", store.keys());
        }
    }
}

/// The hits that each of `users` users gets out of [`REQUESTS`] during the flood.
fn admitted(store: &MemoryStore, flood: &mut Flood, limit: &Limit, users: u64) -> Vec<u64> {
    let mut admitted = vec![0; usize::try_from(users).unwrap()];
    for _ in 0..REQUESTS {
        for (user, admitted) in admitted.iter_mut().enumerate() {
            *admitted += u64::from(self::admits(store, &format!("user {user}"), limit));
        }
        flood.send(store, 10);
    }
    admitted
}

#[test]
fn a_flood_of_one_limit_leaves_limits_of_shorter_periods_exact() {
    for algorithm in Algorithm::ALL {
        for period_ms in [SECOND_MS, MINUTE_MS] {
            let (store, clock) = store();
            let (mut flood, five) = (Flood::of(algorithm), five(algorithm, period_ms));
            flood.send(&store, 3 * KEYS_MAX as u64);
            for window in 0..3 {
                // After two periods, every algorithm has its whole limit again.
                clock.set(START_MS + window * 2 * period_ms);
                let counts = admitted(&store, &mut flood, &five, 1);
                assert_eq!(counts, [ADMITTED], "{algorithm:?}, {period_ms} ms, window {window}");
            }
        }
    }
}

#[test]
fn a_flood_of_one_limit_leaves_all_values_of_the_others_exact() {
    for algorithm in Algorithm::ALL {
        let (store, _) = store();
        let mut flood = Flood::of(algorithm);
        let limits = [SECOND_MS, MINUTE_MS, 24 * HOUR_MS].map(|period| five(algorithm, period));
        flood.send(&store, 3 * KEYS_MAX as u64);
        for five in &limits {
            let counts = admitted(&store, &mut flood, five, 100);
            assert_eq!(counts, [ADMITTED; 100], "{algorithm:?}, {} ms", five.period_ms());
        }
        for five in &limits {
            let full = |user| !store.transact(&[peek(&format!("user {user}"), five)], None).allowed;
            assert!((0..100).all(full), "{algorithm:?}, {} ms: forgotten", five.period_ms());
        }
    }
}

#[test]
fn limits_stay_exact_after_the_flood_of_another_is_over() {
    let (store, clock) = store();
    let mut flood = Flood::of(Algorithm::FixedWindow);
    flood.send(&store, 3 * KEYS_MAX as u64);
    clock.set(START_MS + MINUTE_MS);
    for period_ms in [SECOND_MS, MINUTE_MS] {
        let five = five(Algorithm::FixedWindow, period_ms);
        let count = (0..REQUESTS).filter(|_| admits(&store, "user", &five)).count();
        assert_eq!(count as u64, ADMITTED, "{period_ms} ms");
    }
}

#[test]
fn values_of_the_flooded_limit_that_are_in_use_stay_exact() {
    for algorithm in Algorithm::ALL {
        let (store, _) = store();
        let mut flood = Flood::of(algorithm);
        let five = five(algorithm, HOUR_MS);
        // One limit: the same algorithm and period, and so one group.
        flood.limit = five;
        let mut admitted = 0;
        for _ in 0..REQUESTS {
            admitted += u64::from(admits(&store, "in use", &five));
            flood.send(&store, 100);
        }
        assert_eq!(admitted, ADMITTED, "{algorithm:?}");
    }
}

#[test]
fn a_limit_within_its_share_of_the_bound_loses_nothing() {
    let (store, _) = store();
    let others = [HOUR_MS, 2 * HOUR_MS].map(|period| limit(Algorithm::FixedWindow, 1, period));
    for (other, user) in others.iter().flat_map(|other| (0..300).map(move |user| (other, user))) {
        assert!(admits(&store, &format!("user {user}"), other));
    }
    let mut flood = Flood::of(Algorithm::SlidingWindowLog);
    flood.send(&store, 10 * KEYS_MAX as u64);
    for (other, user) in others.iter().flat_map(|other| (0..300).map(move |user| (other, user))) {
        assert!(!admits(&store, &format!("user {user}"), other), "{user} of {other:?}");
    }
    assert_eq!((store.keys(), store.evicted()), (KEYS_MAX, 10 * KEYS_MAX as u64 - 400));
}

#[test]
fn a_flood_within_one_request_leaves_other_limits_exact() {
    let (store, _) = store();
    let (hour, five) =
        (limit(Algorithm::FixedWindow, 1, HOUR_MS), five(Algorithm::Gcra, SECOND_MS));
    let mut admitted = 0;
    for call in 0..40 {
        let counter_requests: Vec<_> =
            (0..250).map(|at| take(&format!("{call} {at}"), &hour)).collect();
        assert!(store.transact(&counter_requests, None).allowed);
        admitted += u64::from(admits(&store, "user", &five));
        assert!(store.keys() <= KEYS_MAX, "{} keys", store.keys());
    }
    assert_eq!(admitted, ADMITTED);
}

#[test]
fn the_fallback_stays_exact_in_a_flood() {
    let (store, _) = store();
    let fallback = Fallback::new(Arc::new(store), 1);
    let hour = limit(Algorithm::SlidingWindowCounter, 1, HOUR_MS);
    let five = five(Algorithm::TokenBucket, MINUTE_MS);
    let allowed = |name: &str, limit: &Limit| {
        let down = StoreError::Unavailable("not connected".into());
        fallback.fall_back(&[take(name, limit)], OnStoreFailure::Local, down).unwrap().allowed
    };
    let mut admitted = 0;
    for at in 0..20 * REQUESTS {
        assert!(allowed(&format!("flood {at}"), &hour));
        admitted += u64::from(at % 20 == 0 && allowed("user", &five));
    }
    assert_eq!(admitted, ADMITTED);
}

/// Sliding logs: a test cannot know when the windows of a running service begin.
const SERVED: &str = "
domain: edge
descriptors:
  - {key: ip, rate_limit: {limit: 1, period: 1h, algorithm: sliding_window_log}}
  - {key: user, rate_limit: {limit: 5, period: 10m, algorithm: sliding_window_log}}
  - {key: route, rate_limit: {limit: 1000, period: 1h}}
";

/// Four times the maximum, in calls of 80 descriptors, as many logs as a request may have; `nth` builds
/// the descriptor of each value.
async fn flood_calls(caller: &Caller, nth: impl Fn(Request, usize) -> Request) -> u64 {
    let mut admitted = 0;
    for call in 0..50 {
        let values = (0..80).map(|at| 80 * call + at);
        caller.should(&values.fold(request("edge"), &nth)).await.unwrap();
        admitted += u64::from(caller.allows(&request("edge").about("user", "a")).await);
    }
    admitted
}

fn ip(flood: Request, value: usize) -> Request {
    flood.about("ip", format!("10.0.0.{value}"))
}

#[tokio::test]
async fn a_running_service_stays_exact_in_a_flood() {
    let served = Served::with(&[SERVED], &["--memory-max-keys", "1000"]);
    let caller = served.caller().await;
    assert_eq!(flood_calls(&caller, ip).await, ADMITTED);
}

#[tokio::test]
async fn a_flood_of_limits_that_requests_bring_leaves_configured_ones_exact() {
    let served = Served::with(&[SERVED], &["--memory-max-keys", "1000"]);
    let caller = served.caller().await;
    let hour = 3;
    for key in ["route", "of no rule"] {
        let brought = |flood: Request, value: usize| {
            let own = flood.about(key, format!("{key} {value}"));
            own.limited_to(1 + u32::try_from(value).unwrap(), hour)
                .every(1 + u32::try_from(value % 7).unwrap())
        };
        let admitted = flood_calls(&caller, brought).await;
        assert_eq!(admitted, if key == "route" { ADMITTED } else { 0 }, "{key}");
    }
}

#[tokio::test]
async fn a_running_service_without_its_redis_stays_exact_in_a_flood() {
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let args = ["--store", &nobody, "--memory-max-keys", "1000"];
    let served = Served::with(&[SERVED], &args);
    let caller = served.caller().await;
    assert_eq!(flood_calls(&caller, ip).await, ADMITTED);
}
