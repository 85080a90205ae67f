use super::*;
use crate::decide::Outcome;
use crate::decision::QuotaGroup;
use crate::key::Key;
use crate::limit::LimitSpec;

const BOUNDS: Bounds = Bounds { keys_max: 1_000, ttl: Duration::from_secs(3_600) };

/// The moment at which script runs are sent.
const SENT_US: u64 = 1_000_000;

fn limit(hits: u64) -> Limit {
    let spec = LimitSpec { hits, period_ms: 60_000, ..LimitSpec::default() };
    Limit::new(&spec).unwrap()
}

fn counter(name: &str) -> CounterRequest {
    let key = Key::of_bytes(name.as_bytes());
    CounterRequest {
        key,
        limit: limit(5),
        hits: 1,
        mode: Mode::Take,
        enforcement: Enforcement::Enforced,
        quota_group: QuotaGroup::default(),
    }
}

fn full(retry_after_ms: u64) -> Status {
    Status {
        within_limit: false,
        remaining: 0,
        reset_after_ms: retry_after_ms,
        retry_after_ms: Some(retry_after_ms),
        delay_ms: 0,
    }
}

fn room(remaining: u64) -> Status {
    let within_limit = true;
    Status { within_limit, remaining, retry_after_ms: None, ..full(60_000) }
}

fn learn(cache: &DenyCache, counters: &[CounterRequest], statuses: &[Status], sent_us: u64) {
    let outcome = Outcome::of(counters, statuses);
    let statuses = statuses.to_vec();
    let decision = Decision { allowed: outcome.allowed(), source: Source::Store, statuses };
    cache.learn(counters, &decision, seen(sent_us));
}

fn seen(sent_us: u64) -> Seen {
    Seen { sent_us, answered_us: sent_us + 300, is_revocable: false }
}

fn denying(counter: &CounterRequest, retry_after_ms: u64) -> DenyCache {
    let cache = DenyCache::new(BOUNDS);
    learn(&cache, std::slice::from_ref(counter), &[full(retry_after_ms)], SENT_US);
    cache
}

#[test]
fn a_full_limit_is_denied_until_the_millisecond_before_its_wait_ends() {
    let user = counter("user");
    let cache = denying(&user, 10);
    let wait_ms = |now_us| {
        let decision = cache.find_denial(std::slice::from_ref(&user), now_us)?;
        assert_eq!((decision.allowed, decision.source), (false, Source::DenyCache));
        decision.statuses[0].retry_after_ms
    };
    assert_eq!(wait_ms(SENT_US), Some(10));
    assert_eq!(wait_ms(SENT_US + 1), Some(10));
    assert_eq!(wait_ms(SENT_US + 4_000), Some(6));
    assert_eq!(wait_ms(SENT_US + 8_999), Some(2));
    assert_eq!(wait_ms(SENT_US + 9_000), None);
}

#[test]
fn a_refund_by_another_process_is_noticed_within_the_ttl() {
    let user = counter("user");
    let cache = DenyCache::new(Bounds { ttl: Duration::from_millis(5), ..BOUNDS });
    learn(&cache, std::slice::from_ref(&user), &[full(1_000)], SENT_US);
    let wait_ms = |now_us| {
        let decision = cache.find_denial(std::slice::from_ref(&user), now_us)?;
        decision.statuses[0].retry_after_ms
    };
    assert_eq!(wait_ms(SENT_US + 4_000), Some(996), "the whole wait is reported");
    assert_eq!(wait_ms(SENT_US + 5_000), None);
}

#[test]
fn a_revocable_denial_is_kept_for_the_time_of_a_few_runs() {
    let user = [counter("user")];
    let decision = Decision { allowed: false, source: Source::Store, statuses: vec![full(1_000)] };
    let denied_for_us = |ttl| {
        let cache = DenyCache::new(Bounds { ttl, ..BOUNDS });
        cache.learn(&user, &decision, Seen { is_revocable: true, ..seen(SENT_US) });
        (0..2_000).take_while(|us| cache.find_denial(&user, SENT_US + us).is_some()).count()
    };
    assert_eq!(denied_for_us(Duration::from_secs(1)), 4 * 300);
    assert_eq!(denied_for_us(Duration::from_millis(1)), 1_000, "never beyond the ttl");
}

#[test]
fn a_refund_ends_earlier_denials() {
    let user = counter("user");
    let cache = denying(&user, 1_000);
    let refund = CounterRequest { mode: Mode::Refund, ..user.clone() };
    learn(&cache, std::slice::from_ref(&refund), &[room(1)], SENT_US + 1_000);
    let denied = |now_us| cache.find_denial(std::slice::from_ref(&user), now_us).is_some();
    assert!(!denied(SENT_US + 2_000));
    // A run that was sent before the refund was answered, and was itself answered after it.
    learn(&cache, std::slice::from_ref(&user), &[full(1_000)], SENT_US + 1_200);
    assert!(!denied(SENT_US + 2_000));
    learn(&cache, std::slice::from_ref(&user), &[full(1_000)], SENT_US + 1_301);
    assert!(denied(SENT_US + 2_000));
}

#[test]
fn only_the_same_counter_request_is_denied_again() {
    let user = counter("user");
    let cache = denying(&user, 1_000);
    for other in [
        counter("other"),
        CounterRequest { hits: 2, ..user.clone() },
        CounterRequest { limit: limit(6), ..user.clone() },
        CounterRequest { mode: Mode::Peek, ..user.clone() },
        CounterRequest { mode: Mode::Refund, ..user.clone() },
        CounterRequest { enforcement: Enforcement::Shadow, ..user.clone() },
    ] {
        let decision = cache.find_denial(std::slice::from_ref(&other), SENT_US);
        assert_eq!(decision, None, "{other:?}");
    }
}

#[test]
fn limits_that_reject_nothing_or_take_rejected_hits_are_not_cached() {
    let spec = LimitSpec { hits: 5, period_ms: 60_000, overdraft: true, ..LimitSpec::default() };
    let overdraft = Limit::new(&spec).unwrap();
    for (counter, status) in [
        (CounterRequest { enforcement: Enforcement::Shadow, ..counter("user") }, full(1_000)),
        (CounterRequest { mode: Mode::Peek, ..counter("user") }, full(1_000)),
        (CounterRequest { limit: overdraft, ..counter("user") }, full(1_000)),
        (CounterRequest { limit: limit(5).into_counted(), ..counter("user") }, full(1_000)),
        (CounterRequest { enforcement: Enforcement::Quota, ..counter("user") }, full(1_000)),
        (counter("user"), Status { retry_after_ms: None, ..full(1_000) }),
        (counter("user"), full(1)),
    ] {
        let cache = DenyCache::new(BOUNDS);
        learn(&cache, std::slice::from_ref(&counter), &[status], SENT_US);
        assert_eq!(cache.find_denial(std::slice::from_ref(&counter), SENT_US), None, "{counter:?}");
    }
}

#[test]
fn a_denial_reports_the_other_limits_as_they_were() {
    let counters = [counter("user"), counter("ip")];
    let cache = DenyCache::new(BOUNDS);
    learn(&cache, &counters, &[full(1_000), room(3)], SENT_US);
    let decision = cache.find_denial(&counters, SENT_US + 5_000).unwrap();
    let other_limit = Status { reset_after_ms: 59_995, ..room(3) };
    assert_eq!(decision.statuses[1], other_limit);
    // A limit without an entry is reported with nothing remaining.
    let decision =
        cache.find_denial(&[counter("user"), counter("new ip")], SENT_US + 5_000).unwrap();
    assert_eq!(decision.statuses[1], Status { reset_after_ms: 0, ..room(0) });
}

#[test]
fn the_bound_holds_and_the_oldest_entries_are_dropped_first() {
    let cache = DenyCache::new(BOUNDS);
    let names: Vec<String> = (0..20_000).map(|at| format!("user {at}")).collect();
    for name in &names {
        learn(&cache, &[counter(name)], &[full(1_000)], SENT_US);
    }
    let entries = |shard: &Mutex<CacheShard>| {
        let shard = shard.lock();
        shard.younger.len() + shard.elder.len()
    };
    let held: usize = cache.shards.iter().map(entries).sum();
    // Each shard has room for its share, rounded up, in two generations.
    assert!((500..=1_024).contains(&held), "{held}");
    assert!(cache.find_denial(&[counter(&names[19_999])], SENT_US).is_some());
    assert!(cache.find_denial(&[counter(&names[0])], SENT_US).is_none());
    let off = DenyCache::new(Bounds { keys_max: 0, ..BOUNDS });
    learn(&off, &[counter("user")], &[full(1_000)], SENT_US);
    assert!(off.find_denial(&[counter("user")], SENT_US).is_none());
}
