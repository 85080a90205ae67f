//! The memory store: its maximum of keys, the order of eviction, and concurrent threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tidegate::clock::FakeClock;
use tidegate::decide::CounterRequest;
use tidegate::limit::{Algorithm, Limit, LimitSpec};
use tidegate::store::memory::MemoryStore;

use crate::counters::{checked, key, limit, peek, refund, take};
use crate::random::Random;

const START_MS: u64 = 1_700_000_000_000;
const HOUR_MS: u64 = 3_600_000;
const THREADS: u64 = 8;

/// The deadline for threads that end at once.
const DEADLINE: Duration = Duration::from_secs(60);

fn store(keys_max: usize) -> (MemoryStore, FakeClock) {
    let clock = FakeClock::at(START_MS);
    (MemoryStore::new(keys_max, Arc::new(clock.clone())), clock)
}

/// A log's hit counts for exactly its period.
fn for_hours(hours: u64) -> Limit {
    limit(Algorithm::SlidingWindowLog, 1, hours * HOUR_MS)
}

fn use_up(store: &MemoryStore, name: &str, limit: &Limit) {
    assert!(store.transact(&[take(name, limit)], None).allowed, "{name} was used before");
}

fn is_held(store: &MemoryStore, name: &str, limit: &Limit) -> bool {
    store.encoded(&key(name, limit)).is_some()
}

fn idle_flood(store: &MemoryStore, clock: &FakeClock, step_ms: u64) {
    let brief = limit(Algorithm::FixedWindow, 1, 1);
    for flood in 0..10_000 {
        clock.set(START_MS + flood * step_ms);
        use_up(store, &format!("flood {flood}"), &brief);
        assert!(store.keys() <= 100, "{} keys", store.keys());
    }
}

#[test]
fn active_counters_survive_a_flood_of_idle_ones() {
    let (store, clock) = store(100);
    let hour = for_hours(1);
    (0..50).for_each(|at| use_up(&store, &format!("in force {at}"), &hour));
    idle_flood(&store, &clock, 2);
    for at in 0..50 {
        let decision = store.transact(&[peek(&format!("in force {at}"), &hour)], None);
        assert!(!decision.allowed, "limit {at} was forgotten");
    }
    assert_eq!(store.evicted(), 0);
}

#[test]
fn active_counters_survive_a_flood_of_counters_that_expire_sooner() {
    let (store, clock) = store(100);
    let hour = for_hours(1);
    (0..50).for_each(|at| use_up(&store, &format!("in force {at}"), &hour));
    idle_flood(&store, &clock, 0);
    assert!((0..50).all(|at| is_held(&store, &format!("in force {at}"), &hour)));
    // The whole flood came within one millisecond: all but the last 50 were evicted while active.
    assert_eq!((store.keys(), store.evicted()), (100, 10_000 - 50));
}

#[test]
fn expired_counters_are_evicted_first_and_do_not_count_as_lost() {
    let (store, clock) = store(100);
    (0..50).for_each(|at| use_up(&store, &format!("short {at}"), &for_hours(1)));
    (0..50).for_each(|at| use_up(&store, &format!("long {at}"), &for_hours(9)));
    clock.set(START_MS + HOUR_MS + 10_000);
    (0..50).for_each(|at| use_up(&store, &format!("new {at}"), &for_hours(2)));
    assert!((0..50).all(|at| is_held(&store, &format!("long {at}"), &for_hours(9))));
    assert!((0..50).all(|at| is_held(&store, &format!("new {at}"), &for_hours(2))));
    assert_eq!(store.evicted(), 0);
    assert!(store.keys() <= 100);
}

#[test]
fn at_the_maximum_the_least_recently_used_counter_is_evicted() {
    // Few enough that an eviction compares all of them.
    let (store, _) = store(8);
    let hour = for_hours(1);
    (0..8).for_each(|at| use_up(&store, &format!("{at}"), &hour));
    for at in [0, 2, 4] {
        assert!(!store.transact(&[take(&format!("{at}"), &hour)], None).allowed, "{at}");
    }
    (0..3).for_each(|at| use_up(&store, &format!("new {at}"), &hour));
    for at in 0..8 {
        assert_eq!(is_held(&store, &format!("{at}"), &hour), ![1, 3, 5].contains(&at), "{at}");
    }
    assert!((0..3).all(|at| is_held(&store, &format!("new {at}"), &hour)));
    assert_eq!((store.keys(), store.evicted()), (8, 3));
}

#[test]
fn at_the_maximum_the_limit_with_most_counters_loses_one() {
    let (store, _) = store(8);
    // The counters that end last are the most numerous, so that count and expiry order differ.
    (0..5).for_each(|at| use_up(&store, &format!("{at}"), &for_hours(9)));
    (0..3).for_each(|at| use_up(&store, &format!("{at}"), &for_hours(1)));
    use_up(&store, "new", &for_hours(2));
    assert!(!is_held(&store, "0", &for_hours(9)));
    assert!((1..5).all(|at| is_held(&store, &format!("{at}"), &for_hours(9))));
    assert!((0..3).all(|at| is_held(&store, &format!("{at}"), &for_hours(1))));
    assert!(is_held(&store, "new", &for_hours(2)));
}

#[test]
fn the_maximum_applies_to_a_request_with_more_counters() {
    let (store, _) = store(3);
    let requests: Vec<CounterRequest> =
        (0..10).map(|at| take(&format!("{at}"), &for_hours(1))).collect();
    assert!(store.transact(&requests, None).allowed);
    assert_eq!((store.keys(), store.evicted()), (3, 7));
}

#[test]
fn a_counter_that_was_used_again_expires_after_its_last_hit() {
    let (store, clock) = store(2);
    let twice = limit(Algorithm::SlidingWindowLog, 2, 10 * HOUR_MS);
    use_up(&store, "used again", &twice);
    use_up(&store, "once", &for_hours(12));
    clock.set(START_MS + 5 * HOUR_MS);
    use_up(&store, "used again", &twice);
    clock.set(START_MS + 12 * HOUR_MS);
    use_up(&store, "new", &for_hours(100));
    assert!(is_held(&store, "used again", &twice));
    assert!(!is_held(&store, "once", &for_hours(12)));
    assert_eq!(store.evicted(), 0);
}

#[test]
fn a_counter_whose_newest_hits_were_given_back_expires_sooner() {
    let (store, clock) = store(2);
    let twice = limit(Algorithm::SlidingWindowLog, 2, 10 * HOUR_MS);
    use_up(&store, "given back", &twice);
    use_up(&store, "once", &for_hours(12));
    clock.set(START_MS + 5 * HOUR_MS);
    use_up(&store, "given back", &twice);
    store.transact(&[refund("given back", &twice, 1)], None);
    clock.set(START_MS + 10 * HOUR_MS);
    use_up(&store, "new", &for_hours(100));
    assert!(!is_held(&store, "given back", &twice));
    assert!(is_held(&store, "once", &for_hours(12)));
    assert_eq!(store.evicted(), 0);
}

#[test]
fn reads_and_rejections_of_unknown_counters_store_no_keys() {
    let (store, _) = store(100);
    let closed = limit(Algorithm::FixedWindow, 0, HOUR_MS);
    for at in 0..1_000 {
        let name = format!("{at}");
        store.transact(&[peek(&name, &for_hours(1))], None);
        store.transact(&[take(&name, &for_hours(1)), take("closed", &closed)], None);
    }
    assert_eq!(store.keys(), 0);
}

#[test]
fn no_key_remains_once_all_have_expired() {
    let (store, clock) = store(1_000_000);
    (0..20_000).for_each(|at| use_up(&store, &format!("{at}"), &for_hours(1 + at % 5)));
    store.drop_due();
    assert_eq!(store.keys(), 20_000);
    clock.set(START_MS + 5 * HOUR_MS + 10_000);
    for _ in 0..100 {
        store.drop_due();
    }
    assert_eq!((store.keys(), store.evicted()), (0, 0));
}

#[test]
fn writes_alone_drop_expired_keys() {
    let (store, clock) = store(1_000_000);
    (0..5_000).for_each(|at| use_up(&store, &format!("{at}"), &for_hours(1)));
    clock.set(START_MS + 2 * HOUR_MS);
    // Many per shard, however keys are distributed: a write drops a few of its own shard.
    (0..40_000).for_each(|at| use_up(&store, &format!("later {at}"), &for_hours(1)));
    assert_eq!((store.keys(), store.evicted()), (40_000, 0));
}

#[test]
fn dropped_states_would_not_have_changed_a_decision() {
    const NAMES: u64 = 2_000;
    let ((store, clock), (keeping, _)) = (store(1_000_000), store(1_000_000));
    let mut random = Random::of_seed(1);
    let mut now_ms = START_MS;
    for step in 0..100_000 {
        let name = random.within(0..=NAMES - 1);
        let algorithm = Algorithm::ALL[usize::try_from(name % 6).unwrap()];
        let limit =
            limit(algorithm, 4, HOUR_MS / 60 * 10_u64.pow(u32::try_from(name % 4).unwrap()));
        let request = match random.within(0..=3) {
            0 => refund(&name.to_string(), &limit, random.within(1..=4)),
            _ => take(&name.to_string(), &limit),
        };
        now_ms += random.within(0..=2_000);
        clock.set(now_ms);
        if random.within(0..=99) == 0 {
            store.drop_due();
        }
        // States of a replay are never dropped.
        let kept = keeping.transact(std::slice::from_ref(&request), Some(now_ms));
        assert_eq!(store.transact(&[request], None), kept, "step {step}");
    }
    assert_eq!(store.evicted(), 0);
    assert!(store.keys() < keeping.keys(), "none was dropped");
}

#[test]
fn active_counters_outlive_those_whose_hits_were_given_back() {
    let (store, clock) = store(1_000_000);
    (0..2_000).for_each(|at| use_up(&store, &format!("held {at}"), &for_hours(5)));
    for at in 0..2_000 {
        use_up(&store, &format!("given back {at}"), &for_hours(1));
        store.transact(&[refund(&format!("given back {at}"), &for_hours(1), 1)], None);
    }
    clock.set(START_MS + 2 * HOUR_MS);
    store.drop_due();
    (0..2_000).for_each(|at| use_up(&store, &format!("new {at}"), &for_hours(1)));
    assert_eq!((store.keys(), store.evicted()), (4_000, 0));
}

#[test]
fn the_maximum_applies_to_counters_that_last_ten_thousand_years() {
    let spec = LimitSpec {
        algorithm: Algorithm::TokenBucket,
        hits: 1,
        period_ms: 365 * 24 * HOUR_MS,
        burst: Some(20_000),
        ..LimitSpec::default()
    };
    let slow = checked(&spec);
    let store = Arc::new(store(100).0);
    let threads_store = Arc::clone(&store);
    in_threads(move |thread| {
        for at in 0..200 {
            let take =
                CounterRequest { hits: 10_000 + at, ..take(&format!("{thread} {at}"), &slow) };
            assert!(threads_store.transact(&[take], None).allowed);
        }
    });
    assert_eq!((store.keys(), store.evicted()), (100, THREADS * 200 - 100));
}

/// Runs `work` in eight threads that start together, and fails if they do not end in time.
fn in_threads(work: impl Fn(u64) + Send + Sync + 'static) {
    let (work, start) = (Arc::new(work), Arc::new(Barrier::new(usize::try_from(THREADS).unwrap())));
    let (done, ends) = channel();
    for thread in 0..THREADS {
        let (work, start, done) = (Arc::clone(&work), Arc::clone(&start), done.clone());
        thread::spawn(move || {
            start.wait();
            work(thread);
            done.send(()).expect("the test waits");
        });
    }
    for _ in 0..THREADS {
        ends.recv_timeout(DEADLINE).expect("a thread failed, or all wait for each other");
    }
}

#[test]
fn threads_with_keys_in_different_orders_admit_exactly_the_limit() {
    const LIMIT: u64 = 20_000;
    let store = Arc::new(store(1_000).0);
    let allowed = Arc::new([const { AtomicU64::new(0) }; 12]);
    let (shared, wide) = (
        limit(Algorithm::FixedWindow, LIMIT, HOUR_MS),
        limit(Algorithm::SlidingWindowCounter, 10 * LIMIT, HOUR_MS),
    );
    let (threads_store, threads_allowed) = (Arc::clone(&store), Arc::clone(&allowed));
    in_threads(move |thread| {
        let mut random = Random::of_seed(thread);
        for _ in 0..4_000 {
            let others: Vec<usize> = shuffled(&mut random, 11);
            let mut requests: Vec<CounterRequest> =
                others[..3].iter().map(|at| take(&format!("{at}"), &wide)).collect();
            let place = usize::try_from(random.within(0..=3)).unwrap();
            requests.insert(place, take("shared", &shared));
            if threads_store.transact(&requests, None).allowed {
                threads_allowed[11].fetch_add(1, Ordering::Relaxed);
                others[..3].iter().for_each(|at| {
                    threads_allowed[*at].fetch_add(1, Ordering::Relaxed);
                });
            }
        }
    });
    assert_eq!(allowed[11].load(Ordering::Relaxed), LIMIT);
    for at in 0..11 {
        let decision = store.transact(&[peek(&format!("{at}"), &wide)], None);
        let taken = 10 * LIMIT - decision.statuses[0].remaining;
        assert_eq!(taken, allowed[at].load(Ordering::Relaxed), "counter {at}");
    }
    assert_eq!(store.keys(), 12);
}

fn shuffled(random: &mut Random, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        order.swap(at, usize::try_from(random.within(0..=at as u64)).unwrap());
    }
    order
}

#[test]
fn the_maximum_of_keys_applies_under_threads() {
    let store = Arc::new(store(500).0);
    let threads_store = Arc::clone(&store);
    in_threads(move |thread| {
        for at in 0..4_000 {
            use_up(&threads_store, &format!("{thread} {at}"), &for_hours(1 + at % 7));
        }
    });
    assert_eq!((store.keys(), store.evicted()), (500, THREADS * 4_000 - 500));
}

#[test]
fn a_clock_that_steps_back_and_returns_loses_nothing() {
    for algorithm in Algorithm::ALL {
        let (store, clock) = store(100);
        let five = limit(algorithm, 5, HOUR_MS);
        clock.set(START_MS + HOUR_MS / 2);
        while store.transact(&[take("user", &five)], None).allowed {}
        let taken = store.encoded(&key("user", &five));
        clock.set(START_MS - HOUR_MS);
        assert!(!store.transact(&[take("user", &five)], None).allowed, "{algorithm:?}");
        store.transact(&[peek("user", &five)], None);
        clock.set(START_MS + HOUR_MS / 2);
        store.drop_due();
        assert_eq!(store.encoded(&key("user", &five)), taken, "{algorithm:?}");
    }
}

#[test]
fn active_states_outlive_hits_taken_while_the_clock_was_back() {
    for algorithm in Algorithm::ALL {
        let (store, clock) = store(100);
        let five = limit(algorithm, 5, HOUR_MS);
        clock.set(START_MS + HOUR_MS / 2);
        assert!(store.transact(&[take("user", &five)], None).allowed);
        clock.set(START_MS - HOUR_MS);
        while store.transact(&[take("user", &five)], None).allowed {}
        clock.set(START_MS + HOUR_MS / 2);
        store.drop_due();
        assert!(!store.transact(&[take("user", &five)], None).allowed, "{algorithm:?}");
    }
}
