//! The deny cache: a limit that Redis said stays full until later than now rejects here, and costs
//! Redis nothing.
//!
//! Exact, because a wait is tight: hits that others take meanwhile only make it longer. What makes
//! it shorter, a refund, is forgotten at once where it passes through this process, and after
//! [`Bounds::ttl`] where it does not. A wait counts from before the run was sent and loses
//! the millisecond by which Redis's clock may have been ahead of it, so that it ends here before it
//! ends in Redis, never after.
//!
//! Where requests are decided on several servers, hits that one of them took are given back when
//! another rejects. Another replica that sees them in between may be told a long wait that ends
//! with the undo, of which it does not hear. So a denial that an undo may revoke is kept for the
//! time of [`UNDO_RUNS`] runs only: no longer than such a request itself may take.
//!
//! A rejected request also leaves behind how its other limits stood, for its next rejection.
//!
//! Entries stand in two generations: when the younger is full, the elder goes and the younger
//! takes its place. So the bound costs nothing, and what is old goes first.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::decide::{CounterRequest, Mode};
use crate::decision::{Decision, Source};
use crate::decision::{Enforcement, Status};
use crate::limit::{Excess, Limit};

/// Parts with a lock each.
const SHARDS: usize = 64;

/// How long a denial that an undo may revoke is kept, in times of the run that told it.
const UNDO_RUNS: u64 = 4;

/// What the cache may hold, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Entries; none turns it off.
    pub keys_max: usize,
    /// How long Redis is not asked again.
    pub ttl: Duration,
}

/// What is known of limits that reject.
pub struct DenyCache {
    shards: Vec<Mutex<CacheShard>>,
    shard_max: usize,
    ttl_us: u64,
    /// From when no entry denies anything.
    idle_from_us: AtomicU64,
}

/// When a run was under way, and what its denials are worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) sent_us: u64,
    pub(super) answered_us: u64,
    /// Whether hits that are counted may be given back by another replica at any moment.
    pub(super) is_revocable: bool,
}

#[derive(Default)]
struct CacheShard {
    younger: Entries,
    elder: Entries,
}

type Entries = HashMap<u128, Entry, BuildHasherDefault<LowerHalf>>;

/// What is known of one counter.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// When it was known: before its run was sent, of a refund after.
    at_us: u64,
    known: Known,
}

#[derive(Clone, Copy, Debug)]
enum Known {
    /// So many hits were asked of the limit, and it stood so. Until `denied_until_us` it has no
    /// room for them; 0 where it did not reject.
    Asked { limit: Limit, hits: u64, status: Status, denied_until_us: u64 },
    /// Hits were given back: what was asked before that is no longer true.
    Refunded,
}

impl DenyCache {
    /// An empty cache.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_max: bounds.keys_max.div_ceil(2 * SHARDS),
            ttl_us: u64::try_from(bounds.ttl.as_micros()).unwrap_or(u64::MAX),
            idle_from_us: AtomicU64::new(0),
        }
    }

    /// The rejection of a request of which some limit is known to be full.
    pub(super) fn find_denial(&self, counters: &[CounterRequest], now_us: u64) -> Option<Decision> {
        if now_us >= self.idle_from_us.load(Ordering::Relaxed) {
            return None;
        }
        let takes_always = |counter: &CounterRequest| counter.limit.excess() == Excess::Counted;
        if counters.iter().any(|counter| counter.mode != Mode::Take || takes_always(counter)) {
            return None;
        }
        if !counters.iter().any(|counter| self.denies(counter, now_us)) {
            return None;
        }
        let statuses = counters.iter().map(|counter| self.status(counter, now_us)).collect();
        Some(Decision { allowed: false, source: Source::DenyCache, statuses })
    }

    /// Learns from what a run decided.
    pub(super) fn learn(&self, counters: &[CounterRequest], decision: &Decision, seen: Seen) {
        if self.shard_max == 0 {
            return;
        }
        let both = || counters.iter().zip(&decision.statuses);
        // Of a rejected request over several servers, those that admitted it gave its hits back.
        let is_undone = seen.is_revocable && !decision.allowed;
        let gives_back = |counter: &CounterRequest, status: &Status| {
            counter.mode == Mode::Refund || (is_undone && status.within_limit)
        };
        for (counter, _) in both().filter(|(counter, status)| gives_back(counter, status)) {
            self.put(counter, Entry { at_us: seen.answered_us, known: Known::Refunded });
        }
        if !both().any(|(counter, status)| self.until_us(counter, status, seen).is_some()) {
            return;
        }
        for (counter, status) in both().filter(|(counter, _)| counter.mode != Mode::Refund) {
            let denied_until_us = self.until_us(counter, status, seen).unwrap_or(0);
            self.idle_from_us.fetch_max(denied_until_us, Ordering::Relaxed);
            let (limit, hits, status) = (counter.limit, counter.tested_hits(), *status);
            let known = Known::Asked { limit, hits, status, denied_until_us };
            self.put(counter, Entry { at_us: seen.sent_us, known });
        }
    }

    /// Until when an ask that was not within its limit rejects its request; `None` where it does
    /// not, or where a rejection takes hits, as an overdraft does.
    fn until_us(&self, counter: &CounterRequest, status: &Status, seen: Seen) -> Option<u64> {
        let rejects = !status.within_limit
            && counter.enforcement == Enforcement::Enforced
            && counter.limit.excess() == Excess::Refused
            && counter.mode == Mode::Take;
        let wait_us = status.retry_after_ms?.checked_sub(1)?.saturating_mul(1_000);
        let kept_us = wait_us.min(self.ttl_us(seen));
        (rejects && wait_us > 0).then(|| seen.sent_us.saturating_add(kept_us))
    }

    /// How long a denial is kept at most, from when its run was sent.
    fn ttl_us(&self, seen: Seen) -> u64 {
        if !seen.is_revocable {
            return self.ttl_us;
        }
        let took_us = seen.answered_us.saturating_sub(seen.sent_us);
        took_us.saturating_mul(UNDO_RUNS).min(self.ttl_us)
    }

    fn denies(&self, counter: &CounterRequest, now_us: u64) -> bool {
        counter.enforcement == Enforcement::Enforced
            && self.get(counter).is_some_and(|entry| entry.denied_until_us(counter) > now_us)
    }

    /// What is known of one of a rejected request's limits. Of a limit that nothing is known of,
    /// nothing is promised: within the limit, with nothing left.
    fn status(&self, counter: &CounterRequest, now_us: u64) -> Status {
        self.get(counter).and_then(|entry| entry.status(counter, now_us)).unwrap_or(Status::UNKNOWN)
    }

    fn get(&self, counter: &CounterRequest) -> Option<Entry> {
        let shard = self.shard(counter).lock();
        let key = counter.key.hash();
        shard.younger.get(&key).or_else(|| shard.elder.get(&key)).copied()
    }

    /// Keeps what is known, unless hits were given back since.
    fn put(&self, counter: &CounterRequest, entry: Entry) {
        let mut shard = self.shard(counter).lock();
        let key = counter.key.hash();
        let earlier = shard.younger.get(&key).or_else(|| shard.elder.get(&key));
        let newer = |earlier: &Entry| {
            matches!(earlier.known, Known::Refunded) && earlier.at_us >= entry.at_us
        };
        if earlier.is_some_and(newer) {
            return;
        }
        if shard.younger.len() >= self.shard_max {
            shard.elder = std::mem::take(&mut shard.younger);
        }
        shard.younger.insert(key, entry);
    }

    #[allow(clippy::cast_possible_truncation)] // a few bits
    fn shard(&self, counter: &CounterRequest) -> &Mutex<CacheShard> {
        &self.shards[(counter.key.hash() >> 64) as usize % SHARDS]
    }
}

impl Entry {
    /// Until when this very ask is denied.
    fn denied_until_us(&self, counter: &CounterRequest) -> u64 {
        match self.known {
            Known::Asked { limit, hits, denied_until_us, .. }
                if limit == counter.limit && hits == counter.tested_hits() =>
            {
                denied_until_us
            }
            Known::Asked { .. } | Known::Refunded => 0,
        }
    }

    /// How the limit stands, if nothing but time has passed since.
    fn status(&self, counter: &CounterRequest, now_us: u64) -> Option<Status> {
        let Known::Asked { limit, hits, status, .. } = self.known else { return None };
        if limit != counter.limit || hits != counter.tested_hits() {
            return None;
        }
        let left_ms = |ms: u64| {
            let end_us = self.at_us.saturating_add(ms.saturating_mul(1_000));
            end_us.saturating_sub(now_us).div_ceil(1_000)
        };
        let retry_after_ms = status.retry_after_ms.map(left_ms).filter(|left_ms| *left_ms > 0);
        let waited = status.retry_after_ms.is_some() && retry_after_ms.is_none();
        Some(Status {
            within_limit: status.within_limit || waited,
            reset_after_ms: left_ms(status.reset_after_ms),
            retry_after_ms,
            delay_ms: 0,
            ..status
        })
    }
}

/// Keys are hashes already.
#[derive(Default)]
struct LowerHalf(u64);

impl Hasher for LowerHalf {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[allow(clippy::cast_possible_truncation)] // that is what it is for
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Outcome;
    use crate::decision::QuotaGroup;
    use crate::key::Key;
    use crate::limit::LimitSpec;

    const BOUNDS: Bounds = Bounds { keys_max: 1_000, ttl: Duration::from_secs(3_600) };

    /// When runs are sent.
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
    fn what_others_give_back_is_found_out_within_the_time_to_live() {
        let user = counter("user");
        let cache = DenyCache::new(Bounds { ttl: Duration::from_millis(5), ..BOUNDS });
        learn(&cache, std::slice::from_ref(&user), &[full(1_000)], SENT_US);
        let wait_ms = |now_us| {
            let decision = cache.find_denial(std::slice::from_ref(&user), now_us)?;
            decision.statuses[0].retry_after_ms
        };
        assert_eq!(wait_ms(SENT_US + 4_000), Some(996), "the wait itself is told");
        assert_eq!(wait_ms(SENT_US + 5_000), None);
    }

    #[test]
    fn what_an_undo_may_revoke_is_denied_for_the_time_of_a_few_runs() {
        let user = [counter("user")];
        let decision =
            Decision { allowed: false, source: Source::Store, statuses: vec![full(1_000)] };
        let denied_for_us = |ttl| {
            let cache = DenyCache::new(Bounds { ttl, ..BOUNDS });
            cache.learn(&user, &decision, Seen { is_revocable: true, ..seen(SENT_US) });
            (0..2_000).take_while(|us| cache.find_denial(&user, SENT_US + us).is_some()).count()
        };
        assert_eq!(denied_for_us(Duration::from_secs(1)), 4 * 300);
        assert_eq!(denied_for_us(Duration::from_millis(1)), 1_000, "never beyond the time to live");
    }

    #[test]
    fn a_refund_is_followed_by_no_denial_from_before() {
        let user = counter("user");
        let cache = denying(&user, 1_000);
        let refund = CounterRequest { mode: Mode::Refund, ..user.clone() };
        learn(&cache, std::slice::from_ref(&refund), &[room(1)], SENT_US + 1_000);
        let denied = |now_us| cache.find_denial(std::slice::from_ref(&user), now_us).is_some();
        assert!(!denied(SENT_US + 2_000));
        // A run that was sent before the refund was answered, and came back behind it.
        learn(&cache, std::slice::from_ref(&user), &[full(1_000)], SENT_US + 1_200);
        assert!(!denied(SENT_US + 2_000));
        learn(&cache, std::slice::from_ref(&user), &[full(1_000)], SENT_US + 1_301);
        assert!(denied(SENT_US + 2_000));
    }

    #[test]
    fn only_the_very_ask_that_was_denied_is() {
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
    fn what_rejects_nothing_or_takes_all_the_same_denies_nothing() {
        let spec =
            LimitSpec { hits: 5, period_ms: 60_000, overdraft: true, ..LimitSpec::default() };
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
            assert_eq!(
                cache.find_denial(std::slice::from_ref(&counter), SENT_US),
                None,
                "{counter:?}"
            );
        }
    }

    #[test]
    fn the_limits_beside_the_one_that_rejects_are_told_as_they_stood() {
        let counters = [counter("user"), counter("ip")];
        let cache = DenyCache::new(BOUNDS);
        learn(&cache, &counters, &[full(1_000), room(3)], SENT_US);
        let decision = cache.find_denial(&counters, SENT_US + 5_000).unwrap();
        let beside = Status { reset_after_ms: 59_995, ..room(3) };
        assert_eq!(decision.statuses[1], beside);
        // Of one that nothing is known of, nothing is promised.
        let decision =
            cache.find_denial(&[counter("user"), counter("new ip")], SENT_US + 5_000).unwrap();
        assert_eq!(decision.statuses[1], Status { reset_after_ms: 0, ..room(0) });
    }

    #[test]
    fn the_bound_holds_and_what_is_old_goes_first() {
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
        // Each part has room for its share, rounded up, in two generations.
        assert!((500..=1_024).contains(&held), "{held}");
        assert!(cache.find_denial(&[counter(&names[19_999])], SENT_US).is_some());
        assert!(cache.find_denial(&[counter(&names[0])], SENT_US).is_none());
        let off = DenyCache::new(Bounds { keys_max: 0, ..BOUNDS });
        learn(&off, &[counter("user")], &[full(1_000)], SENT_US);
        assert!(off.find_denial(&[counter("user")], SENT_US).is_none());
    }
}
