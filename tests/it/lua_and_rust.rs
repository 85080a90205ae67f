//! The script in Redis and the arithmetic in Rust agree: random requests run through both at the
//! same times, and after each run the decisions and the stored bytes must be equal. Runs have one
//! request or several on the same few counters, which Rust decides in sequence.
//!
//! `TIDEGATE_PROPERTY_SEED` replays a run, `TIDEGATE_PROPERTY_STEPS` makes it longer.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use fred::clients::Client;
use fred::interfaces::{ClientLike, KeysInterface};
use fred::types::Builder;
use fred::types::config::Config;
use tidegate::clock::{FakeClock, MOMENT_MAX_MS};
use tidegate::decide::{CounterRequest, Mode};
use tidegate::decision::Decision;
use tidegate::decision::{Enforcement, QuotaGroup};
use tidegate::limit::{Algorithm, HITS_MAX, LimitSpec, PERIOD_MAX_MS};
use tidegate::store::memory::MemoryStore;

use crate::counters;
use crate::random::{Random, number_from_env};
use crate::random_limits::{draw_spec, redraw_numbers};
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::{Layered, store_on};

/// The bytes of a bucket that owes more than 2^53 units; any other takes 19.
const DEBT_BYTES: usize = 32;

/// Both stores, and the coverage of the run so far.
struct SideBySide {
    memory: MemoryStore,
    redis: Layered,
    /// Reads the stored bytes.
    reader: Client,
    seen: Seen,
}

/// Counts of special cases, to prove that a run was varied.
#[derive(Debug, Default)]
struct Seen {
    allowed: u64,
    rejected: u64,
    never: u64,
    delayed: u64,
    debts: u64,
    /// Buckets that owe more than 2^53 units.
    long_debts: u64,
    log_bytes_max: usize,
    /// Logs seen while their records were being moved to the front.
    moving: u64,
    /// Runs with several requests for one counter.
    shared: u64,
    /// Of those, runs in which one gave hits back.
    refunded: u64,
}

/// A few counters that requests use for a while.
struct Episode {
    counters: Vec<Counter>,
    now_ms: u64,
    /// The clock mostly moves in steps of this size.
    step_ms: u64,
    steps: u64,
    /// Between single hits the clock moves by small steps, except for one step in this many; 0:
    /// always varied.
    calm: u64,
    /// Waits of the last decision: times at which to send requests.
    promised_ms: Vec<u64>,
}

struct Counter {
    name: String,
    spec: LimitSpec,
}

impl SideBySide {
    async fn on(server: &RedisServer) -> Self {
        let redis = store_on(server).await;
        let config = Config::from_url(&server.url()).unwrap();
        let reader = Builder::from_config(config).build().unwrap();
        reader.init().await.unwrap();
        let memory = MemoryStore::new(usize::MAX, Arc::new(FakeClock::at(0)));
        Self { memory, redis, reader, seen: Seen::default() }
    }

    /// Decides in both stores, in Redis in one run, compares, and returns the decisions.
    async fn decide(
        &mut self,
        run: &[Vec<CounterRequest>],
        now_ms: u64,
    ) -> Result<Vec<Decision>, String> {
        let requests: Vec<&[CounterRequest]> = run.iter().map(Vec::as_slice).collect();
        let lua = self.redis.inner().transact_batch(&requests, Some(now_ms)).await;
        let lua = lua.map_err(|error| format!("at {now_ms}, {run:#?}: {error}"))?;
        let mut rust = Vec::new();
        for (counter_requests, lua) in run.iter().zip(&lua) {
            let decision = self.memory.transact(counter_requests, Some(now_ms));
            if decision != *lua {
                let at = rust.len();
                return Err(format!(
                    "at {now_ms}, request {at} of {run:#?}\nRust: {decision:#?}\nLua: {lua:#?}"
                ));
            }
            self.seen.count(counter_requests, &decision);
            rust.push(decision);
        }
        let counter_requests: Vec<&CounterRequest> = run.iter().flatten().collect();
        let keys: Vec<&[u8]> =
            counter_requests.iter().map(|counter_request| counter_request.key.as_bytes()).collect();
        let stored: Vec<Option<Bytes>> = self.reader.mget(keys).await.unwrap();
        for (counter_request, lua) in counter_requests.iter().zip(stored) {
            let rust = self.memory.encoded(&counter_request.key);
            if rust.as_deref() != lua.as_deref() {
                return Err(format!(
                    "stored at {now_ms} by {counter_request:#?} of {run:#?}\nRust: {rust:?}\nLua: {lua:?}"
                ));
            }
            self.seen.count_bytes(counter_request, &rust.unwrap_or_default());
        }
        self.seen.count_run(run);
        Ok(rust)
    }
}

impl Seen {
    fn count(&mut self, counter_requests: &[CounterRequest], decision: &Decision) {
        let (to, statuses) = (u64::from(decision.allowed), &decision.statuses);
        self.allowed += to;
        self.rejected += 1 - to;
        for (counter_request, status) in counter_requests.iter().zip(statuses) {
            self.never += u64::from(!status.within_limit && status.retry_after_ms.is_none());
            self.delayed += u64::from(status.delay_ms > 0);
            let owes = counter_request.limit.overdraft()
                && counter_request.hits > counter_request.limit.capacity();
            self.debts +=
                u64::from(owes && status.reset_after_ms > counter_request.limit.period_ms());
        }
    }

    fn count_run(&mut self, run: &[Vec<CounterRequest>]) {
        let keys: HashSet<_> =
            run.iter().flatten().map(|counter_request| counter_request.key.as_bytes()).collect();
        if keys.len() < run.iter().flatten().count() {
            self.shared += 1;
            self.refunded += u64::from(
                run.iter().flatten().any(|counter_request| counter_request.mode == Mode::Refund),
            );
        }
    }

    fn count_bytes(&mut self, counter_request: &CounterRequest, bytes: &[u8]) {
        if counter_request.limit.algorithm() == Algorithm::SlidingWindowLog {
            self.log_bytes_max = self.log_bytes_max.max(bytes.len());
            // The tag of the record in slot 0.
            self.moving += u64::from(bytes.get(31..34) == Some(&[0xff; 3]));
        }
        let is_bucket = counter_request.limit.algorithm().has_field("burst");
        self.long_debts += u64::from(is_bucket && bytes.len() == DEBT_BYTES);
    }

    /// Fails if a run of thousands of steps lacks one of these cases.
    fn assert_coverage(&self, steps: u64) {
        let some = steps / 100;
        assert!(self.allowed > 10 * some && self.rejected > 10 * some, "{self:?}");
        // Drawn per episode: their number varies widely between seeds.
        assert!(self.never > some / 10 && self.delayed > 0 && self.debts > 0, "{self:?}");
        assert!(self.long_debts > 0, "{self:?}");
        assert!(self.log_bytes_max > 40 * 13, "{self:?}");
        assert!(self.shared > 10 * some && self.refunded > some, "{self:?}");
    }
}

impl Episode {
    fn draw(random: &mut Random, number: u64) -> Self {
        if random.one_in(6) {
            return Self::of_one_long_log(random, number);
        }
        let count = random.within(1..=6);
        let counters = (0..count).map(|at| {
            let algorithm = random.pick(&Algorithm::ALL);
            Counter { name: format!("{number}-{at}"), spec: draw_spec(random, algorithm) }
        });
        let counters: Vec<_> = counters.collect();
        let period_ms = random.within(0..=count - 1);
        let period_ms = counters[usize::try_from(period_ms).unwrap()].spec.period_ms;
        Self::starting(random, counters, (period_ms / 4).max(1), 60)
    }

    /// So many distinct times of hits that the log drops records older than the period.
    fn of_one_long_log(random: &mut Random, number: u64) -> Self {
        let period_ms = random.within(70..=500);
        let spec = LimitSpec {
            algorithm: Algorithm::SlidingWindowLog,
            hits: random.within(60..=1_000),
            period_ms,
            overdraft: random.one_in(3),
            ..LimitSpec::default()
        };
        let counters = vec![Counter { name: format!("{number}-log"), spec }];
        Self { calm: 50, ..Self::starting(random, counters, 2, 400) }
    }

    /// So many records that they are moved to the front in steps.
    fn of_one_log_that_moves(random: &mut Random, number: u64) -> Self {
        let spec = LimitSpec {
            algorithm: Algorithm::SlidingWindowLog,
            hits: random.within(3_000..=6_000),
            period_ms: random.within(800..=1_200),
            overdraft: random.one_in(3),
            ..LimitSpec::default()
        };
        let counters = vec![Counter { name: format!("{number}-moves"), spec }];
        // The first one calm, so that it moves records; the next one varied.
        let calm = if number.is_multiple_of(2) { 1 << 40 } else { 1_000 };
        // At the latest possible time, hits cannot have distinct times.
        let now_ms = 1_700_000_000_000;
        Self { calm, now_ms, ..Self::starting(random, counters, 2, 3_000) }
    }

    fn starting(random: &mut Random, counters: Vec<Counter>, step_ms: u64, steps: u64) -> Self {
        let now_ms = match random.within(0..=5) {
            0 => random.within(0..=100),
            1 => MOMENT_MAX_MS - random.any_size(PERIOD_MAX_MS),
            _ => 1_700_000_000_000 + random.within(0..=100_000_000_000),
        };
        Self { counters, now_ms, step_ms, steps, calm: 0, promised_ms: Vec::new() }
    }

    fn is_calm(&self, random: &mut Random) -> bool {
        self.calm > 0 && !random.one_in(self.calm)
    }

    fn any_counter(&self, random: &mut Random) -> usize {
        usize::try_from(random.within(0..=self.counters.len() as u64 - 1)).unwrap()
    }

    fn move_the_clock(&mut self, random: &mut Random) {
        if self.is_calm(random) {
            self.now_ms = (self.now_ms + random.within(0..=self.step_ms)).min(MOMENT_MAX_MS);
            return;
        }
        let spec = &self.counters[self.any_counter(random)].spec;
        let period_ms = spec.period_ms;
        let window_ms = period_ms / u64::from(spec.sub_windows.unwrap_or(1));
        let now_ms = self.now_ms;
        let turned_ms = match random.within(0..=23) {
            0..=3 => now_ms,
            4..=12 => now_ms + random.within(0..=self.step_ms),
            13 => now_ms + 1,
            14 => now_ms + random.within(0..=period_ms),
            15..=16 => now_ms - now_ms % window_ms + window_ms - random.within(0..=1),
            17..=19 if !self.promised_ms.is_empty() => {
                (now_ms + random.pick(&self.promised_ms)).saturating_sub(random.within(0..=1))
            }
            20 => now_ms.saturating_sub(random.within(0..=self.step_ms)),
            21 => now_ms.saturating_sub(random.within(0..=2 * period_ms)),
            22 if random.one_in(8) => now_ms + random.any_size(2 * period_ms),
            _ => now_ms + random.within(0..=3),
        };
        self.now_ms = turned_ms.min(MOMENT_MAX_MS);
    }

    fn change_a_limit(&mut self, random: &mut Random) {
        let at = self.any_counter(random);
        redraw_numbers(random, &mut self.counters[at].spec);
    }

    /// Requests for one run; a limit may change among them.
    fn draw_run(&mut self, random: &mut Random) -> Vec<Vec<CounterRequest>> {
        let requests = match random.within(0..=9) {
            0..=4 => 1,
            5..=8 => random.within(2..=6),
            _ => random.within(7..=24),
        };
        let requests = (0..requests).map(|_| {
            if random.one_in(self.calm.max(60)) {
                self.change_a_limit(random);
            }
            self.draw_counter_requests(random)
        });
        requests.collect()
    }

    fn draw_counter_requests(&self, random: &mut Random) -> Vec<CounterRequest> {
        let mut left: Vec<&Counter> = self.counters.iter().collect();
        let count = random.within(1..=left.len().min(5) as u64);
        let counter_request = |_| {
            let at = random.within(0..=left.len() as u64 - 1);
            let counter = left.swap_remove(usize::try_from(at).unwrap());
            if self.is_calm(random) {
                return counters::take(&counter.name, &counters::checked(&counter.spec));
            }
            draw_counter_request(random, counter)
        };
        let mut counter_requests: Vec<CounterRequest> = (0..count).map(counter_request).collect();
        number_groups(&mut counter_requests);
        counter_requests
    }
}

/// Renumbers the groups of quotas without gaps.
pub(super) fn number_groups(counter_requests: &mut [CounterRequest]) {
    let mut drawn = Vec::new();
    for counter_request in counter_requests {
        if counter_request.enforcement == Enforcement::Quota {
            let group = counter_request.quota_group;
            let number = drawn.iter().position(|other| *other == group).unwrap_or_else(|| {
                drawn.push(group);
                drawn.len() - 1
            });
            counter_request.quota_group = QuotaGroup::new(number).unwrap();
        }
    }
}

fn draw_counter_request(random: &mut Random, counter: &Counter) -> CounterRequest {
    let mut limit = counters::checked(&counter.spec);
    if random.one_in(8) {
        limit = limit.into_counted();
    }
    let capacity = limit.capacity();
    let hits = match random.within(0..=19) {
        0 => 0,
        1..=11 => 1,
        12..=13 => random.within(0..=5),
        14..=15 => random.within(0..=capacity),
        16 => capacity + 1 - random.within(0..=capacity.min(2)),
        17 => HITS_MAX,
        _ => random.any_size(HITS_MAX),
    };
    let mode = match random.within(0..=9) {
        0 => Mode::Peek,
        1 => Mode::Refund,
        _ => Mode::Take,
    };
    let hits = hits.min(HITS_MAX);
    let (enforcement, quota_group) = match random.within(0..=19) {
        0..=1 => (Enforcement::Shadow, 0),
        2..=7 => (Enforcement::Quota, random.within(0..=2)),
        _ => (Enforcement::Enforced, 0),
    };
    let quota_group = QuotaGroup::new(usize::try_from(quota_group).unwrap()).unwrap();
    CounterRequest { hits, mode, enforcement, quota_group, ..counters::take(&counter.name, &limit) }
}

async fn run(
    both: &mut SideBySide,
    random: &mut Random,
    steps: u64,
    draw: fn(&mut Random, u64) -> Episode,
) -> Result<(), String> {
    let (mut step, mut number) = (0, 0);
    while step < steps {
        let mut episode = draw(random, number);
        number += 1;
        for _ in 0..episode.steps.min(steps - step) {
            step += 1;
            episode.move_the_clock(random);
            if random.one_in(if episode.calm > 0 { 2 * episode.calm } else { 12 }) {
                episode.change_a_limit(random);
            }
            let requests = episode.draw_run(random);
            let decisions = both.decide(&requests, episode.now_ms).await;
            let decisions = decisions.map_err(|error| format!("step {step}: {error}"))?;
            let statuses = decisions.iter().flat_map(|decision| &decision.statuses);
            let waits = statuses.flat_map(|status| {
                [Some(status.reset_after_ms), status.retry_after_ms, Some(status.delay_ms)]
            });
            let waits = waits.flatten().filter(|wait_ms| *wait_ms <= MOMENT_MAX_MS);
            episode.promised_ms = waits.collect();
        }
    }
    Ok(())
}

async fn agree(version: Version, steps: u64) {
    let seen = agree_on(version, steps, Episode::draw).await;
    if steps >= 5_000 {
        seen.assert_coverage(steps);
    }
}

async fn agree_on(version: Version, steps: u64, draw: fn(&mut Random, u64) -> Episode) -> Seen {
    let server = RedisServer::start(version);
    let mut both = SideBySide::on(&server).await;
    let seed = number_from_env("TIDEGATE_PROPERTY_SEED");
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(steps));
    let result = Box::pin(run(&mut both, &mut Random::of_seed(seed), steps, draw)).await;
    if let Err(error) = result {
        panic!("TIDEGATE_PROPERTY_SEED={seed} TIDEGATE_PROPERTY_STEPS={steps}: {error}");
    }
    eprintln!("{version:?}: {steps} steps, {:?}", both.seen);
    both.seen
}

fn steps_or(default: u64) -> u64 {
    number_from_env("TIDEGATE_PROPERTY_STEPS").unwrap_or(default)
}

#[tokio::test]
async fn lua_and_rust_decide_and_store_the_same_on_redis_7_0() {
    Box::pin(agree(Version::Redis70, steps_or(5_000))).await;
}

#[tokio::test]
async fn lua_and_rust_decide_and_store_the_same_on_redis_6_2() {
    Box::pin(agree(Version::Redis62, steps_or(1_000))).await;
}

#[tokio::test]
async fn lua_and_rust_decide_and_store_the_same_on_valkey_9_1() {
    Box::pin(agree(Version::Valkey91, steps_or(1_000))).await;
}

#[tokio::test]
async fn lua_and_rust_move_the_records_of_long_logs_alike() {
    for version in Version::ALL {
        let seen =
            Box::pin(agree_on(version, steps_or(6_000), Episode::of_one_log_that_moves)).await;
        assert!(seen.moving > 0, "{version:?}: {seen:?}");
    }
}

#[test]
fn every_shape_is_drawn() {
    let mut random = Random::of_seed(1);
    let specs: Vec<_> = Algorithm::ALL.iter().map(|a| draw_spec(&mut random, *a)).collect();
    let is_bucket = |spec: &&LimitSpec| spec.algorithm.has_field("burst");
    assert_eq!(specs.iter().filter(is_bucket).count(), 3);
}
