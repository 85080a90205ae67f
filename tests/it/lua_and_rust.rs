//! The script in Redis and the arithmetic in Rust are the same: random requests run through both
//! at the same moments, and after each run the decisions and the stored bytes are equal. Runs
//! have one request or several on the same few counters, which Rust decides one after the other.
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
use tidegate::limit::{Algorithm, HITS_MAX, LimitSpec, PERIOD_MAX_MS, Shape};
use tidegate::store::memory::MemoryStore;
use tidegate::store::redis::RedisStore;

use crate::asks;
use crate::dice::{Dice, number_from_env};
use crate::draw::{draw_spec, redraw_numbers};
use crate::support::servers::{RedisServer, Version};
use crate::support::stores::store_on;

/// What a bucket takes that owes more than 2^53 units; any other takes 19.
const DEBT_BYTES: usize = 32;

/// Both stores, and what the run has met so far.
struct SideBySide {
    memory: MemoryStore,
    redis: RedisStore,
    /// Reads the stored bytes.
    reader: Client,
    seen: Seen,
}

/// That a run met something, and was not all of one kind.
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
    /// Logs seen whose records were being moved to the front.
    moving: u64,
    /// Runs in which a counter was asked more than once.
    shared: u64,
    /// Of those, runs in which one gave hits back.
    refunded: u64,
}

/// A few counters that requests ask about for a while.
struct Episode {
    counters: Vec<Counter>,
    now_ms: u64,
    /// The clock goes in steps of this size, mostly.
    step_ms: u64,
    steps: u64,
    /// Single hits at small steps of the clock, but for one step in so many; 0: no such calm.
    calm: u64,
    /// Waits that the last decision promised: moments that deserve a look.
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

    /// Decides in both stores, in Redis in one run, compares, and returns what both said.
    async fn decide(
        &mut self,
        run: &[Vec<CounterRequest>],
        now_ms: u64,
    ) -> Result<Vec<Decision>, String> {
        let requests: Vec<&[CounterRequest]> = run.iter().map(Vec::as_slice).collect();
        let lua = self.redis.transact_batch(&requests, Some(now_ms)).await;
        let lua = lua.map_err(|error| format!("at {now_ms}, {run:#?}: {error}"))?;
        let mut rust = Vec::new();
        for (asks, lua) in run.iter().zip(&lua) {
            let decision = self.memory.transact(asks, Some(now_ms));
            if decision != *lua {
                let at = rust.len();
                return Err(format!(
                    "at {now_ms}, request {at} of {run:#?}\nRust: {decision:#?}\nLua: {lua:#?}"
                ));
            }
            self.seen.count(asks, &decision);
            rust.push(decision);
        }
        let asks: Vec<&CounterRequest> = run.iter().flatten().collect();
        let keys: Vec<&[u8]> = asks.iter().map(|ask| ask.key.as_bytes()).collect();
        let stored: Vec<Option<Bytes>> = self.reader.mget(keys).await.unwrap();
        for (ask, lua) in asks.iter().zip(stored) {
            let rust = self.memory.encoded(&ask.key);
            if rust.as_deref() != lua.as_deref() {
                return Err(format!(
                    "stored at {now_ms} by {ask:#?} of {run:#?}\nRust: {rust:?}\nLua: {lua:?}"
                ));
            }
            self.seen.count_bytes(ask, &rust.unwrap_or_default());
        }
        self.seen.count_run(run);
        Ok(rust)
    }
}

impl Seen {
    fn count(&mut self, asks: &[CounterRequest], decision: &Decision) {
        let (to, statuses) = (u64::from(decision.allowed), &decision.statuses);
        self.allowed += to;
        self.rejected += 1 - to;
        for (ask, status) in asks.iter().zip(statuses) {
            self.never += u64::from(!status.within_limit && status.retry_after_ms.is_none());
            self.delayed += u64::from(status.delay_ms > 0);
            let owes = ask.limit.overdraft() && ask.hits > ask.limit.capacity();
            self.debts += u64::from(owes && status.reset_after_ms > ask.limit.period_ms());
        }
    }

    fn count_run(&mut self, run: &[Vec<CounterRequest>]) {
        let keys: HashSet<_> = run.iter().flatten().map(|ask| ask.key.as_bytes()).collect();
        if keys.len() < run.iter().flatten().count() {
            self.shared += 1;
            self.refunded += u64::from(run.iter().flatten().any(|ask| ask.mode == Mode::Refund));
        }
    }

    fn count_bytes(&mut self, ask: &CounterRequest, bytes: &[u8]) {
        if ask.limit.algorithm() == Algorithm::SlidingWindowLog {
            self.log_bytes_max = self.log_bytes_max.max(bytes.len());
            // The tag of the record in slot 0.
            self.moving += u64::from(bytes.get(31..34) == Some(&[0xff; 3]));
        }
        let is_bucket = matches!(ask.limit.shape(), Shape::Bucket(_));
        self.long_debts += u64::from(is_bucket && bytes.len() == DEBT_BYTES);
    }

    /// A run of thousands of steps that lacks one of these tests less than it claims.
    fn assert_of_all_kinds(&self, steps: u64) {
        let some = steps / 100;
        assert!(self.allowed > 10 * some && self.rejected > 10 * some, "{self:?}");
        // Drawn in episodes: their number varies widely from seed to seed.
        assert!(self.never > some / 10 && self.delayed > 0 && self.debts > 0, "{self:?}");
        assert!(self.long_debts > 0, "{self:?}");
        assert!(self.log_bytes_max > 40 * 13, "{self:?}");
        assert!(self.shared > 10 * some && self.refunded > some, "{self:?}");
    }
}

impl Episode {
    fn draw(dice: &mut Dice, number: u64) -> Self {
        if dice.one_in(6) {
            return Self::of_one_long_log(dice, number);
        }
        let count = dice.within(1..=6);
        let counters = (0..count).map(|at| {
            let algorithm = dice.pick(&Algorithm::ALL);
            Counter { name: format!("{number}-{at}"), spec: draw_spec(dice, algorithm) }
        });
        let counters: Vec<_> = counters.collect();
        let period_ms = dice.within(0..=count - 1);
        let period_ms = counters[usize::try_from(period_ms).unwrap()].spec.period_ms;
        Self::starting(dice, counters, (period_ms / 4).max(1), 60)
    }

    /// Hits at so many moments that the log drops what has left the period.
    fn of_one_long_log(dice: &mut Dice, number: u64) -> Self {
        let period_ms = dice.within(70..=500);
        let spec = LimitSpec {
            algorithm: Algorithm::SlidingWindowLog,
            hits: dice.within(60..=1_000),
            period_ms,
            overdraft: dice.one_in(3),
            ..LimitSpec::default()
        };
        let counters = vec![Counter { name: format!("{number}-log"), spec }];
        Self { calm: 50, ..Self::starting(dice, counters, 2, 400) }
    }

    /// So many records that they are moved to the front in steps.
    fn of_one_log_that_moves(dice: &mut Dice, number: u64) -> Self {
        let spec = LimitSpec {
            algorithm: Algorithm::SlidingWindowLog,
            hits: dice.within(3_000..=6_000),
            period_ms: dice.within(800..=1_200),
            overdraft: dice.one_in(3),
            ..LimitSpec::default()
        };
        let counters = vec![Counter { name: format!("{number}-moves"), spec }];
        // The first in peace, so that it moves records; the next one with surprises.
        let calm = if number.is_multiple_of(2) { 1 << 40 } else { 1_000 };
        // Where the clock is at its end, no hit has a moment of its own.
        let now_ms = 1_700_000_000_000;
        Self { calm, now_ms, ..Self::starting(dice, counters, 2, 3_000) }
    }

    fn starting(dice: &mut Dice, counters: Vec<Counter>, step_ms: u64, steps: u64) -> Self {
        let now_ms = match dice.within(0..=5) {
            0 => dice.within(0..=100),
            1 => MOMENT_MAX_MS - dice.any_size(PERIOD_MAX_MS),
            _ => 1_700_000_000_000 + dice.within(0..=100_000_000_000),
        };
        Self { counters, now_ms, step_ms, steps, calm: 0, promised_ms: Vec::new() }
    }

    fn is_calm(&self, dice: &mut Dice) -> bool {
        self.calm > 0 && !dice.one_in(self.calm)
    }

    fn any_counter(&self, dice: &mut Dice) -> usize {
        usize::try_from(dice.within(0..=self.counters.len() as u64 - 1)).unwrap()
    }

    fn turn_the_clock(&mut self, dice: &mut Dice) {
        if self.is_calm(dice) {
            self.now_ms = (self.now_ms + dice.within(0..=self.step_ms)).min(MOMENT_MAX_MS);
            return;
        }
        let spec = &self.counters[self.any_counter(dice)].spec;
        let period_ms = spec.period_ms;
        let window_ms = period_ms / u64::from(spec.sub_windows.unwrap_or(1));
        let now_ms = self.now_ms;
        let turned_ms = match dice.within(0..=23) {
            0..=3 => now_ms,
            4..=12 => now_ms + dice.within(0..=self.step_ms),
            13 => now_ms + 1,
            14 => now_ms + dice.within(0..=period_ms),
            15..=16 => now_ms - now_ms % window_ms + window_ms - dice.within(0..=1),
            17..=19 if !self.promised_ms.is_empty() => {
                (now_ms + dice.pick(&self.promised_ms)).saturating_sub(dice.within(0..=1))
            }
            20 => now_ms.saturating_sub(dice.within(0..=self.step_ms)),
            21 => now_ms.saturating_sub(dice.within(0..=2 * period_ms)),
            22 if dice.one_in(8) => now_ms + dice.any_size(2 * period_ms),
            _ => now_ms + dice.within(0..=3),
        };
        self.now_ms = turned_ms.min(MOMENT_MAX_MS);
    }

    fn change_a_limit(&mut self, dice: &mut Dice) {
        let at = self.any_counter(dice);
        redraw_numbers(dice, &mut self.counters[at].spec);
    }

    /// Requests for one run, among which a limit may change.
    fn draw_run(&mut self, dice: &mut Dice) -> Vec<Vec<CounterRequest>> {
        let requests = match dice.within(0..=9) {
            0..=4 => 1,
            5..=8 => dice.within(2..=6),
            _ => dice.within(7..=24),
        };
        let requests = (0..requests).map(|_| {
            if dice.one_in(self.calm.max(60)) {
                self.change_a_limit(dice);
            }
            self.draw_asks(dice)
        });
        requests.collect()
    }

    fn draw_asks(&self, dice: &mut Dice) -> Vec<CounterRequest> {
        let mut left: Vec<&Counter> = self.counters.iter().collect();
        let count = dice.within(1..=left.len().min(5) as u64);
        let ask = |_| {
            let at = dice.within(0..=left.len() as u64 - 1);
            let counter = left.swap_remove(usize::try_from(at).unwrap());
            if self.is_calm(dice) {
                return asks::take(&counter.name, &asks::checked(&counter.spec));
            }
            draw_ask(dice, counter)
        };
        let mut asks: Vec<CounterRequest> = (0..count).map(ask).collect();
        number_groups(&mut asks);
        asks
    }
}

/// Numbers the groups of quotas anew, without gaps.
pub(super) fn number_groups(asks: &mut [CounterRequest]) {
    let mut drawn = Vec::new();
    for ask in asks {
        if ask.enforcement == Enforcement::Quota {
            let group = ask.quota_group;
            let number = drawn.iter().position(|other| *other == group).unwrap_or_else(|| {
                drawn.push(group);
                drawn.len() - 1
            });
            ask.quota_group = QuotaGroup::new(number).unwrap();
        }
    }
}

fn draw_ask(dice: &mut Dice, counter: &Counter) -> CounterRequest {
    let mut limit = asks::checked(&counter.spec);
    if dice.one_in(8) {
        limit = limit.into_counted();
    }
    let capacity = limit.capacity();
    let hits = match dice.within(0..=19) {
        0 => 0,
        1..=11 => 1,
        12..=13 => dice.within(0..=5),
        14..=15 => dice.within(0..=capacity),
        16 => capacity + 1 - dice.within(0..=capacity.min(2)),
        17 => HITS_MAX,
        _ => dice.any_size(HITS_MAX),
    };
    let mode = match dice.within(0..=9) {
        0 => Mode::Peek,
        1 => Mode::Refund,
        _ => Mode::Take,
    };
    let hits = hits.min(HITS_MAX);
    let (enforcement, quota_group) = match dice.within(0..=19) {
        0..=1 => (Enforcement::Shadow, 0),
        2..=7 => (Enforcement::Quota, dice.within(0..=2)),
        _ => (Enforcement::Enforced, 0),
    };
    let quota_group = QuotaGroup::new(usize::try_from(quota_group).unwrap()).unwrap();
    CounterRequest { hits, mode, enforcement, quota_group, ..asks::take(&counter.name, &limit) }
}

async fn run(
    both: &mut SideBySide,
    dice: &mut Dice,
    steps: u64,
    draw: fn(&mut Dice, u64) -> Episode,
) -> Result<(), String> {
    let (mut step, mut number) = (0, 0);
    while step < steps {
        let mut episode = draw(dice, number);
        number += 1;
        for _ in 0..episode.steps.min(steps - step) {
            step += 1;
            episode.turn_the_clock(dice);
            if dice.one_in(if episode.calm > 0 { 2 * episode.calm } else { 12 }) {
                episode.change_a_limit(dice);
            }
            let requests = episode.draw_run(dice);
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
        seen.assert_of_all_kinds(steps);
    }
}

async fn agree_on(version: Version, steps: u64, draw: fn(&mut Dice, u64) -> Episode) -> Seen {
    let server = RedisServer::start(version);
    let mut both = SideBySide::on(&server).await;
    let seed = number_from_env("TIDEGATE_PROPERTY_SEED");
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(steps));
    let result = Box::pin(run(&mut both, &mut Dice::of_seed(seed), steps, draw)).await;
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
async fn lua_and_rust_move_the_records_of_long_logs_the_same() {
    for version in Version::ALL {
        let seen =
            Box::pin(agree_on(version, steps_or(6_000), Episode::of_one_log_that_moves)).await;
        assert!(seen.moving > 0, "{version:?}: {seen:?}");
    }
}

#[test]
fn every_shape_is_drawn() {
    let mut dice = Dice::of_seed(1);
    let specs: Vec<_> = Algorithm::ALL.iter().map(|a| draw_spec(&mut dice, *a)).collect();
    let is_bucket = |spec: &&LimitSpec| matches!(asks::checked(spec).shape(), Shape::Bucket(_));
    assert_eq!(specs.iter().filter(is_bucket).count(), 3);
}
