//! Builders of counter requests that read as a sentence, such as `take("name", &limit)`.

use tidegate::decide::{CounterRequest, Mode};
use tidegate::decision::{Enforcement, QuotaGroup};
use tidegate::key::{Group, Key, KeyFormat, KeyParts, KeyPrefix, KeySuffix};
use tidegate::limit::{Algorithm, Limit, LimitSpec};

/// A limit of `hits` per period, with the algorithm's defaults.
pub fn limit(algorithm: Algorithm, hits: u64, period_ms: u64) -> Limit {
    checked(&LimitSpec { algorithm, hits, period_ms, ..LimitSpec::default() })
}

/// The limit of a valid spec.
pub fn checked(spec: &LimitSpec) -> Limit {
    Limit::new(spec).expect("a limit that can be")
}

/// The milliseconds of [`monthly_bucket`]'s period.
pub const MONTH_MS: u64 = 30 * 86_400_000;

/// The hits of [`monthly_bucket`]. They and [`MONTH_MS`] have no common divisor, so a hit weighs
/// 2,592,000,000 units, and 3,474,000 hits are 2^53 of them.
pub const MONTHLY_HITS: u64 = 1_000_003;

/// A token bucket whose debts soon exceed 2^53 units.
pub fn monthly_bucket() -> Limit {
    checked(&LimitSpec {
        algorithm: Algorithm::TokenBucket,
        hits: MONTHLY_HITS,
        period_ms: MONTH_MS,
        overdraft: true,
        ..LimitSpec::default()
    })
}

/// Milliseconds in which so many units of [`monthly_bucket`] drain.
pub fn drained_in_ms(units: u128) -> u64 {
    u64::try_from(units.div_ceil(u128::from(MONTHLY_HITS))).expect("a time in u64")
}

/// The key of the counter `name` in the domain `test`.
pub fn key(name: &str, limit: &Limit) -> Key {
    key_in("test", name, limit)
}

/// The key of the counter `name` in a domain. Counters with the same algorithm and period share a
/// group.
pub fn key_in(domain: &str, name: &str, limit: &Limit) -> Key {
    let tail = KeySuffix::of(limit, 0);
    let key = Key::of(&KeyParts {
        head: &KeyPrefix::of(&KeyFormat::readable("tg"), domain),
        slot_by: &[],
        entries: std::iter::once(("name", name)),
        shared: &[],
        tail: &tail,
    });
    key.in_group(Group::of_limit(domain, "name", &tail))
}

/// A request that takes one hit from the counter `name`.
pub fn take(name: &str, limit: &Limit) -> CounterRequest {
    CounterRequest {
        key: key(name, limit),
        limit: *limit,
        hits: 1,
        mode: Mode::Take,
        enforcement: Enforcement::Enforced,
        quota_group: QuotaGroup::default(),
    }
}

/// The same for a quota of the group with this number.
pub fn in_quota_group(number: usize, counter: CounterRequest) -> CounterRequest {
    let quota_group = QuotaGroup::new(number).expect("few groups");
    CounterRequest { enforcement: Enforcement::Quota, quota_group, ..counter }
}

/// A request that tests one hit on the counter `name`.
pub fn peek(name: &str, limit: &Limit) -> CounterRequest {
    CounterRequest { mode: Mode::Peek, ..take(name, limit) }
}

/// A request that gives hits back to the counter `name`.
pub fn refund(name: &str, limit: &Limit, hits: u64) -> CounterRequest {
    CounterRequest { mode: Mode::Refund, hits, ..take(name, limit) }
}

/// Requests for one hit each, cycling through all algorithms, on limits per hour with spare hits.
pub fn mixed(count: usize) -> Vec<CounterRequest> {
    let mixed = (0..count).map(|at| {
        let algorithm = Algorithm::ALL[at % Algorithm::ALL.len()];
        let burst = (algorithm == Algorithm::Gcra).then_some(100);
        let spec =
            LimitSpec { algorithm, hits: 100, period_ms: 3_600_000, burst, ..LimitSpec::default() };
        take(&format!("{at}"), &checked(&spec))
    });
    mixed.collect()
}
