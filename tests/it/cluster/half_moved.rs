//! A slot that is half moved to another node: every request is decided by the node that has its
//! counter, and no counter exists twice.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::decide::CounterRequest;
use tidegate::limit::{Algorithm, Limit};
use tidegate::proto::tidegate::v1 as api;
use tidegate::store::redis::slot::slot;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::DEADLINE;
use crate::counters::{limit, take};
use crate::random::Random;
use crate::support::client::{Caller, Request, Served, request};
use crate::support::cluster::Cluster;
use crate::support::cluster::migration::Migration;
use crate::support::process;
use crate::support::servers::Version;
use crate::support::stores::{Layered, decide_at_once, shared, store_within};

/// Longer than any test, so no hit leaves its counter.
const PERIOD_MS: u64 = 36_500 * 86_400_000;

fn three_hits() -> Limit {
    limit(Algorithm::FixedWindow, 3, PERIOD_MS)
}

fn take_of(name: &str) -> Vec<CounterRequest> {
    vec![take(name, &three_hits())]
}

async fn store_of(cluster: &Cluster, timeout: Duration) -> Arc<Layered> {
    Arc::new(store_within(timeout, &cluster.url(), &shared(0)).await)
}

/// Starts moving the slot of `take_of`, and moves the counters `moved`.
fn half_move(cluster: &Cluster, moved: &[&str]) -> Migration {
    let slot = cluster.slot_of(take_of("")[0].key.as_bytes());
    let to = (cluster.master_of(slot) + 1) % 3;
    let migration = cluster.begin_migration(slot, to);
    let keys: Vec<_> = moved.iter().map(|name| take_of(name)[0].key.as_bytes().to_vec()).collect();
    cluster.move_some(migration, keys);
    migration
}

/// The keys that exist on two nodes.
fn on_two_nodes(cluster: &Cluster) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let keys = (0..3).flat_map(|node| cluster.server(node).keys());
    let twice = keys.filter(|key| !seen.insert(key.clone()));
    twice.map(|key| key.escape_ascii().to_string()).collect()
}

#[tokio::test]
async fn each_request_of_a_run_is_decided_where_its_counter_is() {
    for version in Version::ALL {
        let cluster = Cluster::without_replicas(version);
        let store = store_of(&cluster, DEADLINE).await;
        let names: Vec<_> = (0..40).map(|at| at.to_string()).collect();
        let take_all = async |names: &[String]| {
            let decisions = decide_at_once(&store, names.iter().map(|name| take_of(name))).await;
            let remaining = decisions.into_iter().map(|decision| {
                let decision = decision.unwrap_or_else(|error| panic!("{version:?}: {error}"));
                (decision.allowed, decision.statuses[0].remaining)
            });
            remaining.collect::<Vec<_>>()
        };
        assert_eq!(take_all(&names).await, [(true, 2); 40], "{version:?}");
        let moved: Vec<_> = names.iter().step_by(2).map(String::as_str).collect();
        let migration = half_move(&cluster, &moved);
        // The first of these alternate between source and target; the others are on neither.
        let more: Vec<_> = (0..60).map(|at| at.to_string()).collect();
        for remaining in [1, 0] {
            let taken = take_all(&more).await;
            assert_eq!(taken[..40], [(true, remaining); 40], "{version:?}");
            assert_eq!(taken[40..], [(true, remaining + 1); 20], "{version:?}: new counters");
        }
        assert_eq!(take_all(&names).await, [(false, 0); 40], "{version:?}");
        assert_eq!(on_two_nodes(&cluster), [""; 0], "{version:?}");
        cluster.move_keys(migration);
        cluster.finish_migration(migration);
        assert_eq!(take_all(&names).await, [(false, 0); 40], "{version:?}");
    }
}

#[tokio::test]
async fn a_request_with_counters_on_both_nodes_is_undecided_and_creates_none() {
    for version in Version::ALL {
        let cluster = Cluster::without_replicas(version);
        let store = store_of(&cluster, Duration::from_secs(2)).await;
        let both = || vec![take("here", &three_hits()), take("there", &three_hits())];
        let decided = async |counter_requests: Vec<CounterRequest>| {
            decide_at_once(&store, [counter_requests]).await.remove(0)
        };
        // A busy machine may need longer for one decision.
        let eventually = async |counter_requests: Vec<CounterRequest>| {
            let decided =
                async || decided(counter_requests.clone()).await.ok().map(|it| it.statuses);
            process::eventually(DEADLINE, decided).await.expect("a decision")
        };
        eventually(both()).await;
        let before = eventually(vec![take("other", &three_hits())]).await;
        assert!(before[0].remaining <= 2);
        let migration = half_move(&cluster, &["there"]);
        let keys = || (0..3).map(|node| cluster.server(node).keys()).collect::<Vec<_>>();
        let before = keys();
        assert!(decided(both()).await.is_err(), "{version:?}");
        assert_eq!(keys(), before, "{version:?}");
        assert_eq!(on_two_nodes(&cluster), [""; 0], "{version:?}");
        cluster.move_keys(migration);
        // By ASK, as long as the old node owns the slot.
        let moved = eventually(both()).await;
        assert!(moved.iter().all(|status| status.within_limit), "{version:?}: {moved:?}");
        cluster.finish_migration(migration);
        assert_eq!(on_two_nodes(&cluster), [""; 0], "{version:?}");
    }
}

/// Users that have taken one hit of two before their slot moves.
const USERS: u32 = if cfg!(debug_assertions) { 2_000 } else { 5_000 };

/// Descriptors per call.
const USERS_A_CALL: u32 = 250;

/// Concurrent requests: with few runs in flight, each run has many requests.
const CALLERS: u64 = 48;

/// Requests while no keys move: after each quarter of them has moved.
const REQUESTS_EACH: u64 = 1_000;

/// The number of reshards, at most, and of pauses per reshard: on a busy machine one may end before
/// it is paused.
const PAUSES_MIN: u32 = 2;
const ROUNDS_MAX: u32 = 20;

/// Further slots that may move: redis-cli moves the lowest ones of a node.
const SLOTS_MAX: u16 = 30;

/// The outcomes of the requests while a slot moved.
#[derive(Default)]
struct Tally {
    requests: u64,
    undecided: u64,
    allowed: HashMap<u32, u32>,
}

/// Requests about random users.
#[derive(Default)]
struct RandomLoad {
    domain: String,
    /// The number of users.
    users: AtomicU32,
    /// The number of answered requests.
    asked: AtomicU64,
    ended: AtomicBool,
}

impl RandomLoad {
    /// Sends requests one after the other, of which one in six is about a new user, until the end.
    async fn run(&self, caller: &Caller, seed: u64) -> Tally {
        let (mut tally, mut random) = (Tally::default(), Random::of_seed(seed));
        while !self.ended.load(Ordering::Relaxed) {
            let last = u64::from(self.users.load(Ordering::Relaxed)) - 1;
            let known = u32::try_from(random.within(0..=last)).unwrap();
            let is_new = random.one_in(6);
            let user = if is_new { self.users.fetch_add(1, Ordering::Relaxed) } else { known };
            match caller.check(&about(&self.domain, user)).await {
                Ok(answer) if answer.decision() == api::Decision::Allowed => {
                    *tally.allowed.entry(user).or_default() += 1;
                }
                Ok(_rejected) => {}
                Err(_undecided) => tally.undecided += 1,
            }
            tally.requests += 1;
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
        tally
    }
}

async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let look = async || holds().await.then_some(());
    process::eventually(10 * DEADLINE, look).await.expect("it comes to that");
}

fn about(domain: &str, user: u32) -> Request {
    request(domain).about("user", user.to_string())
}

/// A domain with one of the lowest slots.
fn domain_of_a_low_slot() -> (String, u16) {
    let domains = (0_u32..).map(|number| format!("d{number}"));
    let mut with_slots = domains.map(|domain| (slot(domain.as_bytes()), domain));
    let found = with_slots.find(|(slot, _)| *slot < SLOTS_MAX);
    found.map(|(slot, domain)| (domain, slot)).unwrap()
}

/// Moves the slot from one node to the other, pausing for many requests after each part of its
/// keys; returns the number of pauses.
async fn reshard_and_pause(
    cluster: &Cluster,
    load: &RandomLoad,
    slot: u16,
    (from, to): (usize, usize),
) -> u32 {
    let (mut pauses, keys) = (0, cluster.keys_in(from, slot));
    let mut reshard = cluster.reshard(from, to, slot + 1, 1);
    for quarters in [3, 2, 1] {
        let is_moved = || cluster.keys_in(from, slot) <= keys * quarters / 4;
        eventually(async || is_moved() || reshard.has_ended()).await;
        reshard.pause();
        if cluster.keys_in(from, slot) > 0 {
            let before = load.asked.load(Ordering::Relaxed);
            eventually(async || load.asked.load(Ordering::Relaxed) - before >= REQUESTS_EACH).await;
            pauses += 1;
        }
        reshard.resume();
    }
    eventually(async || reshard.has_ended()).await;
    assert!(reshard.succeeds(), "a key was on both nodes, or the reshard failed");
    assert_eq!(cluster.master_of(slot), to);
    pauses
}

async fn reshard_under_load(version: Version) {
    // Three at once would mostly wait for each other.
    static MACHINE: Mutex<()> = Mutex::const_new(());
    let _alone = MACHINE.lock().await;
    let cluster = Cluster::without_replicas(version);
    let (domain, slot) = domain_of_a_low_slot();
    let limits = format!(
        "{{domain: {domain}, descriptors: \
         [{{key: user, rate_limit: {{limit: 2, period: 36500d}}}}]}}"
    );
    let url = cluster.url();
    // Longer than a busy machine needs, so that an undecided request is a real failure.
    let args = ["--store", &url, "--store-timeout", "15s", "--on-store-failure", "error"];
    // Redis decides every request, on one thread.
    let more = ["--deny-cache-max-keys", "0", "--threads", "1"];
    let served = Served::with(&[&limits], &[&args[..], &more].concat());
    let caller = served.caller().await;
    for first in (0..USERS).step_by(USERS_A_CALL as usize) {
        let users = first..first + USERS_A_CALL;
        let all = |all: Request, user: u32| all.about("user", user.to_string());
        assert!(caller.allows(&users.fold(request(&*domain), all)).await, "{version:?}");
    }
    let load =
        Arc::new(RandomLoad { domain, users: AtomicU32::new(USERS), ..RandomLoad::default() });
    let mut callers = JoinSet::new();
    for seed in 0..CALLERS {
        let (load, caller) = (Arc::clone(&load), served.caller().await);
        callers.spawn(async move { load.run(&caller, seed).await });
    }
    let mut pauses = 0;
    let mut has_slot = 0;
    for _ in 0..ROUNDS_MAX {
        let to = 1 - has_slot;
        pauses += reshard_and_pause(&cluster, &load, slot, (has_slot, to)).await;
        has_slot = to;
        if pauses >= PAUSES_MIN {
            break;
        }
    }
    assert!(pauses >= PAUSES_MIN, "{version:?}: redis-cli is done before it can be paused");
    load.ended.store(true, Ordering::Relaxed);
    let tallies = callers.join_all().await;
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let (requests, undecided) = (sum(|tally| tally.requests), sum(|tally| tally.undecided));
    let mut allowed = HashMap::<u32, u32>::new();
    for (user, hits) in tallies.iter().flat_map(|tally| &tally.allowed) {
        *allowed.entry(*user).or_default() += hits;
    }
    let most = |user: u32| if user < USERS { 1 } else { 2 };
    let over: u32 = allowed.iter().map(|(user, hits)| hits.saturating_sub(most(*user))).sum();
    eprintln!("{version:?}: {requests} requests, {undecided} undecided, {over} hits over");
    eprintln!("| {version:?}: reshard of {USERS} keys, none over its limit | {requests} | - | - |");
    assert_eq!(over, 0, "{version:?}: hits over the limit, of {requests} requests");
    let errors = || {
        let page = served.page("/metrics").body;
        let lines = page.lines().filter(|line| line.starts_with("rate_limit_store_errors_total"));
        lines.filter(|line| !line.ends_with(" 0")).collect::<Vec<_>>().join(", ")
    };
    assert!(
        undecided * 100 < requests,
        "{version:?}: {undecided} of {requests} are undecided: {}",
        errors()
    );
    assert_eq!(on_two_nodes(&cluster), [""; 0], "{version:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reshard_of_redis_6_2_under_load_admits_no_hit_too_many() {
    reshard_under_load(Version::Redis62).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reshard_of_redis_7_0_under_load_admits_no_hit_too_many() {
    reshard_under_load(Version::Redis70).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reshard_of_valkey_9_1_under_load_admits_no_hit_too_many() {
    reshard_under_load(Version::Valkey91).await;
}
