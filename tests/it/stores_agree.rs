//! Memory, one Redis and three independent servers give the same answers: random requests go
//! through the stores that a service uses, at the same times. The requests of one run are sent
//! concurrently, so that Redis decides them in one script run, and the limit of a counter changes
//! among them.
//!
//! Limits and hits are small: a debt that saturates is cut in memory, and given back completely on
//! several servers. The clock does not step back: hits that were given back still count for the
//! time of the last hit.
//!
//! `TIDEGATE_PROPERTY_SEED` replays a run, `TIDEGATE_PROPERTY_STEPS` makes it longer.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on panics")]

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tidegate::clock::FakeClock;
use tidegate::decide::{CounterRequest, Mode};
use tidegate::decision::Decision;
use tidegate::decision::{Enforcement, QuotaGroup};
use tidegate::limit::{Algorithm, Limit, LimitSpec};
use tidegate::store::DecideContext;
use tidegate::store::memory::MemoryStore;
use tidegate::store::redis::ring::Ring;

use crate::counters;
use crate::lua_and_rust::number_groups;
use crate::random::{Random, number_from_env};
use crate::random_limits::{draw_spec, redraw_numbers};
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::{Layered, decide_at_once_on, shared, store_at};

/// The largest limit, burst and number of hits.
const HITS_MAX: u64 = 1_000;

const PERIOD_MAX_MS: u64 = 86_400_000;

/// Steps on the same counters.
const EPISODE_STEPS: u64 = 40;

/// The compared stores, and the coverage of the run so far.
struct Stores {
    memory: MemoryStore,
    one: Arc<Layered>,
    three: Arc<Layered>,
    ring: Ring,
    seen: Seen,
}

/// Counts of special cases, to prove that a run was varied.
#[derive(Debug, Default)]
struct Seen {
    allowed: u64,
    rejected: u64,
    /// Rejected requests on several servers.
    spread_rejected: u64,
    /// Requests of runs in which a limit changed.
    changed: u64,
}

struct Counter {
    domain: String,
    /// The one of the three servers that has it.
    server: usize,
    spec: LimitSpec,
}

/// A request, and whether several of the three servers decide it.
struct Request {
    counter_requests: Vec<CounterRequest>,
    is_spread: bool,
}

/// Concurrent requests.
struct Run {
    requests: Vec<Request>,
    /// Whether a limit changes among them.
    is_changed: bool,
}

impl Stores {
    async fn on(one: &RedisServer, three: &[RedisServer]) -> Self {
        let names: Vec<String> = three.iter().map(|server| server.addr().to_string()).collect();
        let urls: Vec<String> = three.iter().map(RedisServer::url).collect();
        Self {
            memory: MemoryStore::new(usize::MAX, Arc::new(FakeClock::at(0))),
            one: Arc::new(store_at(&one.url(), &shared(0)).await),
            three: Arc::new(store_at(&urls.join(","), &shared(0)).await),
            ring: Ring::new(&names).unwrap(),
            seen: Seen::default(),
        }
    }

    /// Decides in all stores, compares, and returns the decisions.
    async fn decide(&mut self, run: &Run, now_ms: u64) -> Result<Vec<Decision>, String> {
        let counter_requests: Vec<&[CounterRequest]> =
            run.requests.iter().map(|request| &*request.counter_requests).collect();
        let memory = counter_requests
            .iter()
            .map(|counter_requests| self.memory.transact(counter_requests, Some(now_ms)));
        let memory: Vec<Decision> = memory.collect();
        let one = at_once(&self.one, &counter_requests, now_ms).await;
        // On several servers concurrent requests have no order.
        let is_spread = run.requests.iter().any(|request| request.is_spread);
        let mut three = vec![];
        for counter_requests in
            counter_requests.chunks(if is_spread { 1 } else { counter_requests.len() })
        {
            three.extend(at_once(&self.three, counter_requests, now_ms).await);
        }
        for (at, request) in run.requests.iter().enumerate() {
            if memory[at] != one[at] || memory[at] != three[at] {
                return Err(format!(
                    "at {now_ms}, request {at} of {counter_requests:#?}\nmemory: {:#?}\none: {:#?}\nthree: {:#?}",
                    memory[at], one[at], three[at]
                ));
            }
            self.seen.count(request, &memory[at]);
        }
        self.seen.changed += if run.is_changed { run.requests.len() as u64 } else { 0 };
        Ok(memory)
    }
}

async fn at_once(
    store: &Arc<Layered>,
    requests: &[&[CounterRequest]],
    now_ms: u64,
) -> Vec<Decision> {
    let requests = requests.iter().map(|counter_requests| counter_requests.to_vec());
    let decided = decide_at_once_on(store, requests, &DecideContext::at(now_ms)).await;
    decided.into_iter().map(Result::unwrap).collect()
}

impl Seen {
    fn count(&mut self, request: &Request, decision: &Decision) {
        self.allowed += u64::from(decision.allowed);
        self.rejected += u64::from(!decision.allowed);
        self.spread_rejected += u64::from(request.is_spread && !decision.allowed);
    }

    fn assert_coverage(&self, steps: u64) {
        let some = steps / 20;
        assert!(self.allowed > some && self.rejected > some, "{self:?}");
        assert!(self.spread_rejected > some && self.changed > some, "{self:?}");
    }
}

fn is_small(spec: &LimitSpec) -> bool {
    spec.hits.max(spec.burst.unwrap_or(0)) <= HITS_MAX && spec.period_ms <= PERIOD_MAX_MS
}

fn draw_counter(random: &mut Random, domain: String, ring: &Ring) -> Counter {
    let algorithm = random.pick(&Algorithm::ALL);
    let mut spec = draw_spec(random, algorithm);
    while !is_small(&spec) {
        spec = draw_spec(random, algorithm);
    }
    Counter { server: ring.server_of(domain.as_bytes()), domain, spec }
}

/// Changes a limit's numbers, but not the rate of a bucket: a refund on several servers drains a
/// bucket up to that time at the rate of that time.
fn change_a_limit(random: &mut Random, counters: &mut [Counter]) {
    let at = usize::try_from(random.within(0..=counters.len() as u64 - 1)).unwrap();
    let before = counters[at].spec.clone();
    let is_bucket = before.algorithm.has_field("burst");
    loop {
        let mut spec = before.clone();
        redraw_numbers(random, &mut spec);
        if is_bucket {
            spec.hits = before.hits;
        }
        if is_small(&spec) && Limit::new(&spec).is_ok() {
            counters[at].spec = spec;
            return;
        }
    }
}

/// Some requests for counters on any servers, or each of them for counters on one.
fn draw_run(random: &mut Random, counters: &mut [Counter]) -> Run {
    let (is_spread, is_changed) = (random.one_in(2), random.one_in(2));
    let count = random.within(1..=6);
    let requests = (0..count).map(|_| {
        if is_changed && random.one_in(2) {
            change_a_limit(random, counters);
        }
        let server =
            counters[usize::try_from(random.within(0..=counters.len() as u64 - 1)).unwrap()].server;
        let some = counters.iter().filter(|counter| is_spread || counter.server == server);
        draw_request(random, some.collect())
    });
    Run { requests: requests.collect(), is_changed }
}

fn draw_request(random: &mut Random, mut left: Vec<&Counter>) -> Request {
    let count = random.within(1..=left.len().min(4) as u64);
    let chosen = (0..count).map(|_| {
        let at = random.within(0..=left.len() as u64 - 1);
        left.swap_remove(usize::try_from(at).unwrap())
    });
    let chosen: Vec<&Counter> = chosen.collect();
    let is_spread = chosen.iter().any(|counter| counter.server != chosen[0].server);
    let mut counter_requests: Vec<CounterRequest> =
        chosen.into_iter().map(|counter| draw_counter_request(random, counter)).collect();
    number_groups(&mut counter_requests);
    Request { counter_requests, is_spread }
}

fn draw_counter_request(random: &mut Random, counter: &Counter) -> CounterRequest {
    let mut limit = counters::checked(&counter.spec);
    if random.one_in(8) {
        limit = limit.into_counted();
    }
    let hits = match random.within(0..=9) {
        0 => 0,
        1..=5 => 1,
        6..=7 => random.within(0..=5),
        8 => random.within(0..=limit.capacity()),
        _ => limit.capacity() + 1 - random.within(0..=limit.capacity().min(2)),
    };
    let mode = match random.within(0..=9) {
        0 => Mode::Peek,
        1 => Mode::Refund,
        _ => Mode::Take,
    };
    let (enforcement, quota_group) = match random.within(0..=19) {
        0..=1 => (Enforcement::Shadow, 0),
        2..=5 => (Enforcement::Quota, random.within(0..=2)),
        _ => (Enforcement::Enforced, 0),
    };
    let quota_group = QuotaGroup::new(usize::try_from(quota_group).unwrap()).unwrap();
    let key = counters::key_in(&counter.domain, "counter", &limit);
    CounterRequest { key, limit, hits, mode, enforcement, quota_group }
}

/// The time until the next run: often when a wait of the last one is over.
fn draw_wait_ms(random: &mut Random, counters: &[Counter], decisions: &[Decision]) -> u64 {
    let statuses = decisions.iter().flat_map(|decision| &decision.statuses);
    let waits = statuses.flat_map(|status| [Some(status.reset_after_ms), status.retry_after_ms]);
    let waits: Vec<u64> = waits.flatten().collect();
    let period_ms = counters[0].spec.period_ms;
    match random.within(0..=5) {
        0..=1 => 0,
        2 => random.within(0..=3),
        3 => random.within(0..=period_ms / 2),
        4 if !waits.is_empty() => random.pick(&waits).saturating_sub(random.within(0..=1)),
        _ => random.within(0..=period_ms / 8),
    }
}

async fn run(stores: &mut Stores, random: &mut Random, steps: u64) -> Result<(), String> {
    let (mut now_ms, mut counters) = (1_700_000_000_000, vec![]);
    for step in 0..steps {
        if step % EPISODE_STEPS == 0 {
            let number = random.within(2..=6);
            let drawn =
                (0..number).map(|at| draw_counter(random, format!("{step}-{at}"), &stores.ring));
            counters = drawn.collect();
        }
        let run = draw_run(random, &mut counters);
        let decisions = stores.decide(&run, now_ms).await;
        let decisions = decisions.map_err(|error| format!("step {step}: {error}"))?;
        now_ms += draw_wait_ms(random, &counters, &decisions);
    }
    Ok(())
}

#[tokio::test]
async fn memory_one_redis_and_three_servers_give_the_same_answers() {
    let steps = number_from_env("TIDEGATE_PROPERTY_STEPS").unwrap_or(300);
    let seed = number_from_env("TIDEGATE_PROPERTY_SEED");
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(steps));
    let one = RedisServer::start(Version::Redis70);
    let three = [Version::Redis70, Version::Redis62, Version::Valkey91].map(RedisServer::start);
    let mut stores = Stores::on(&one, &three).await;
    let result = Box::pin(run(&mut stores, &mut Random::of_seed(seed), steps)).await;
    if let Err(error) = result {
        panic!("TIDEGATE_PROPERTY_SEED={seed} TIDEGATE_PROPERTY_STEPS={steps}: {error}");
    }
    eprintln!("{steps} steps, {:?}", stores.seen);
    stores.seen.assert_coverage(steps);
    let requests = stores.seen.allowed + stores.seen.rejected;
    assert!(one.evalsha_calls() * 2 < requests, "several requests in a script run");
}
