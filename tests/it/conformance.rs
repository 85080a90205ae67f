//! The conformance suite: the same cases over every store, on every server and topology, and with the
//! layers around it that `serve` has.
//!
//! Most cases use limits of a period in which nothing ends or drains, so that they hold on any clock.
//! Cases in which time passes run where a store decides at the moments of a replay.

mod cases;
mod timed;

use tidegate::decide::{CounterRequest, Mode};
use tidegate::decision::{Decision, Enforcement, QuotaGroup, Source, Status};
use tidegate::key::{Group, Key, KeyFormat, KeyParts, KeyPrefix, KeySuffix};
use tidegate::limit::{Algorithm, Limit, LimitSpec};

use crate::counters::checked;
use crate::support::cluster::Cluster;
use crate::support::sentinels::Sentinels;
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::Subject;

/// A minute begins: fixed windows of a minute begin with it.
const START_MS: u64 = 1_699_999_980_000;

/// Longer than any test.
const FOREVER_MS: u64 = 36_500 * 86_400_000;

/// One case, on a store.
struct Case<'a> {
    store: &'a Subject,
    /// Names its counters, which no other case has.
    name: String,
    algorithm: Algorithm,
    /// The moment, in a replay.
    now_ms: Option<u64>,
}

impl Case<'_> {
    /// A limit under the case's algorithm in which nothing ends, with its hits at once.
    fn limit(&self, hits: u64) -> Limit {
        checked(&self.spec(hits, FOREVER_MS))
    }

    /// The same with overdraft.
    fn overdraft(&self, hits: u64) -> Limit {
        checked(&LimitSpec { overdraft: true, ..self.spec(hits, FOREVER_MS) })
    }

    fn spec(&self, hits: u64, period_ms: u64) -> LimitSpec {
        let burst = (self.algorithm == Algorithm::Gcra).then_some(hits);
        LimitSpec { algorithm: self.algorithm, hits, period_ms, burst, ..LimitSpec::default() }
    }

    fn take(&self, counter: &str, limit: &Limit, hits: u64) -> CounterRequest {
        let (enforcement, quota_group) = (Enforcement::Enforced, QuotaGroup::default());
        let key = self.key(counter, limit);
        CounterRequest { key, limit: *limit, hits, mode: Mode::Take, enforcement, quota_group }
    }

    fn refund(&self, counter: &str, limit: &Limit, hits: u64) -> CounterRequest {
        CounterRequest { mode: Mode::Refund, ..self.take(counter, limit, hits) }
    }

    fn peek(&self, counter: &str, limit: &Limit, hits: u64) -> CounterRequest {
        CounterRequest { mode: Mode::Peek, ..self.take(counter, limit, hits) }
    }

    fn key(&self, counter: &str, limit: &Limit) -> Key {
        let slot_by = if self.store.spreads { vec!["counter".to_owned()] } else { vec![] };
        let (tail, counter) = (KeySuffix::of(limit, 0), format!("{} {counter}", self.name));
        let key = Key::of(&KeyParts {
            head: &KeyPrefix::of(&KeyFormat::readable("tg"), "conformance"),
            slot_by: &slot_by,
            entries: std::iter::once(("counter", &*counter)),
            shared: &[],
            tail: &tail,
        });
        key.in_group(Group::of_limit("conformance", "counter", &tail))
    }

    async fn decide<const N: usize>(&self, request: [CounterRequest; N]) -> Decided<N> {
        Decided::of(&self.name, self.store.decide(request.to_vec(), self.now_ms).await)
    }

    async fn remaining(&self, counter: &str, limit: &Limit) -> u64 {
        self.decide([self.peek(counter, limit, 1)]).await.statuses[0].remaining
    }
}

/// A decision over so many counters.
#[derive(Debug)]
struct Decided<const N: usize> {
    allowed: bool,
    source: Source,
    statuses: [Status; N],
}

impl<const N: usize> Decided<N> {
    fn of(case: &str, decision: Decision) -> Self {
        let statuses = decision.statuses.try_into();
        let statuses = statuses.unwrap_or_else(|other| panic!("{case}: {N} statuses: {other:?}"));
        Self { allowed: decision.allowed, source: decision.source, statuses }
    }

    fn within(&self) -> [bool; N] {
        self.statuses.map(|status| status.within_limit)
    }

    fn remaining(&self) -> [u64; N] {
        self.statuses.map(|status| status.remaining)
    }
}

/// Runs every case on a store that nothing else uses.
async fn check(store: &Subject) {
    for algorithm in Algorithm::ALL {
        let case = |name: &str| Case {
            store,
            name: format!("{} {name}", algorithm.name()),
            algorithm,
            now_ms: store.replays.then_some(START_MS),
        };
        cases::check_all(case).await;
        if store.replays {
            timed::check_all(case).await;
        }
    }
}

#[tokio::test]
async fn the_memory_store_conforms() {
    check(&Subject::memory()).await;
    check(&Subject::memory().on_its_own_clock()).await;
}

#[tokio::test]
async fn one_redis_of_every_version_conforms() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        check(&Subject::at(&server.url()).await).await;
        server.command(&["FLUSHALL"]);
        check(&Subject::at(&server.url()).await.on_its_own_clock()).await;
    }
}

#[tokio::test]
async fn a_master_behind_sentinels_conforms() {
    let sentinels = Sentinels::start();
    check(&Subject::at(&sentinels.url()).await).await;
}

#[tokio::test]
async fn a_cluster_conforms_with_all_counters_in_one_slot_and_in_several() {
    let cluster = Cluster::without_replicas(Version::Redis70);
    check(&Subject::at(&cluster.url()).await).await;
    let keys = || (0..3).map(|node| cluster.server(node).keys().len()).collect::<Vec<_>>();
    assert_eq!(keys().iter().filter(|keys| **keys > 0).count(), 1, "one slot: {:?}", keys());
    check(&Subject::at(&cluster.url()).await.spreading()).await;
    assert!(keys().iter().all(|keys| *keys > 0), "several slots: {:?}", keys());
}

#[tokio::test]
async fn several_independent_servers_conform() {
    let servers = Version::ALL.map(RedisServer::start);
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    check(&Subject::at(&urls.join(",")).await.spreading()).await;
    assert!(servers.iter().all(|server| !server.keys().is_empty()));
}

#[tokio::test]
async fn the_deny_cache_and_the_fallback_around_redis_conform() {
    let server = RedisServer::start(Version::Redis70);
    let layered = Subject::layered(&server.url()).await;
    check(&layered).await;
    cases::full_limit_is_decided_by(&layered, Source::DenyCache).await;
}

#[tokio::test]
async fn the_fallback_in_place_of_a_redis_that_is_down_conforms() {
    let mut server = RedisServer::start(Version::Redis70);
    let layered = Subject::layered(&server.url()).await;
    server.stop();
    check(&layered).await;
    cases::full_limit_is_decided_by(&layered, Source::Fallback).await;
}
