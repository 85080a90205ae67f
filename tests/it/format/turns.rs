//! Builds of several formats on one Redis, as while replicas are upgraded one after the other: the
//! script of an earlier format and today's take random turns on the same counters, and each decision and
//! the stored bytes are those of one build alone, here the memory store.
//!
//! Where formats differ by design, requests are not drawn: debts stay below 2^53 units and logs below
//! 256 live hits, and no refund is of 0 hits (format 1 tested it as one hit).
//!
//! `TIDEGATE_PROPERTY_SEED` replays a run, `TIDEGATE_PROPERTY_STEPS` makes it longer.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tidegate::clock::FakeClock;
use tidegate::decide::{CounterRequest, Mode};
use tidegate::decision::{Decision, Enforcement, QuotaGroup};
use tidegate::limit::{Algorithm, LimitSpec};
use tidegate::store::memory::MemoryStore;
use tidegate::store::redis::SCRIPT;

use super::formats;
use super::recorded::{self, Script};
use crate::counters::{checked, take};
use crate::lua_and_rust::number_groups;
use crate::random::{Random, number_from_env};
use crate::random_limits::{draw_spec, redraw_numbers};
use crate::support::servers::{RedisServer, Version};

/// The largest limit, burst and number of hits.
const HITS_MAX: u64 = 1_000;

const PERIOD_MAX_MS: u64 = 86_400_000;

/// Steps on the same counters.
const EPISODE_STEPS: u64 = 40;

const START_MS: u64 = 1_700_000_000_000;

struct Counter {
    name: String,
    spec: LimitSpec,
}

/// Two builds on one server, and the memory store.
struct Turns {
    old: Script,
    todays: Script,
    memory: MemoryStore,
    seen: Seen,
}

/// Decisions by kind, so that a run that tests little fails.
#[derive(Debug, Default)]
struct Seen {
    allowed: u64,
    rejected: u64,
    /// Steps that another build took than the one before.
    changes: u64,
    was_old: bool,
}

impl Turns {
    fn between(old: &str, server: &RedisServer) -> Self {
        Self {
            old: Script::load(server, old),
            todays: Script::load(server, SCRIPT),
            memory: MemoryStore::new(usize::MAX, Arc::new(FakeClock::at(0))),
            seen: Seen::default(),
        }
    }

    /// Decides in one run of one of the scripts, and compares.
    fn decide(
        &mut self,
        is_old: bool,
        run: &[Vec<CounterRequest>],
        now_ms: u64,
    ) -> Result<Vec<Decision>, String> {
        let script = if is_old { &mut self.old } else { &mut self.todays };
        let decided = script.decide(run, now_ms);
        let expected = run.iter().map(|request| self.memory.transact(request, Some(now_ms)));
        let expected: Vec<Decision> = expected.collect();
        let builds = if is_old { "the old build" } else { "today's build" };
        if decided != expected {
            return Err(format!(
                "at {now_ms}, {builds}, {run:#?}\ndecided: {decided:#?}\nexpected: {expected:#?}"
            ));
        }
        for counter in run.iter().flatten() {
            let stored = script.stored(counter.key.as_bytes());
            let expected = self.memory.encoded(&counter.key);
            if stored.as_deref() != expected.as_deref() {
                return Err(format!(
                    "at {now_ms}, {builds}, {counter:#?}\nstored: {stored:?}\nexpected: {expected:?}"
                ));
            }
        }
        self.seen.count(is_old, &decided);
        Ok(decided)
    }
}

impl Seen {
    fn count(&mut self, is_old: bool, decided: &[Decision]) {
        self.changes += u64::from(is_old != self.was_old);
        self.was_old = is_old;
        for decision in decided {
            self.allowed += u64::from(decision.allowed);
            self.rejected += u64::from(!decision.allowed);
        }
    }

    fn assert_of_all_kinds(&self, steps: u64) {
        assert!(self.allowed > steps / 5 && self.rejected > steps / 5, "{self:?}");
        assert!(self.changes > steps / 4, "{self:?}");
    }
}

fn is_small(spec: &LimitSpec) -> bool {
    spec.hits.max(spec.burst.unwrap_or(0)) <= HITS_MAX && spec.period_ms <= PERIOD_MAX_MS
}

fn draw_counter(random: &mut Random, name: String) -> Counter {
    loop {
        let algorithm = random.pick(&Algorithm::ALL);
        let spec = draw_spec(random, algorithm);
        if is_small(&spec) {
            return Counter { name, spec };
        }
    }
}

fn change_a_limit(random: &mut Random, counters: &mut [Counter]) {
    let at = index(random, counters.len());
    loop {
        let mut spec = counters[at].spec.clone();
        redraw_numbers(random, &mut spec);
        if is_small(&spec) {
            counters[at].spec = spec;
            return;
        }
    }
}

fn index(random: &mut Random, len: usize) -> usize {
    usize::try_from(random.within(0..=len as u64 - 1)).unwrap()
}

fn draw_run(random: &mut Random, counters: &mut [Counter]) -> Vec<Vec<CounterRequest>> {
    let requests = (0..random.within(1..=4)).map(|_| {
        if random.one_in(20) {
            change_a_limit(random, counters);
        }
        let mut left: Vec<&Counter> = counters.iter().collect();
        let requests = (0..random.within(1..=left.len().min(4) as u64)).map(|_| {
            let at = index(random, left.len());
            draw_request(random, left.swap_remove(at))
        });
        let mut requests: Vec<CounterRequest> = requests.collect();
        number_groups(&mut requests);
        requests
    });
    requests.collect()
}

fn draw_request(random: &mut Random, counter: &Counter) -> CounterRequest {
    let mut limit = checked(&counter.spec);
    if random.one_in(8) {
        limit = limit.into_counted();
    }
    let mode = match random.within(0..=9) {
        0 => Mode::Peek,
        1 => Mode::Refund,
        _ => Mode::Take,
    };
    let hits = match random.within(0..=9) {
        0 if mode != Mode::Refund => 0,
        0..=5 => 1,
        6..=7 => random.within(1..=5),
        8 => random.within(1..=limit.capacity().max(1)),
        _ => limit.capacity() + 1,
    };
    let (enforcement, quota_group) = match random.within(0..=19) {
        0..=1 => (Enforcement::Shadow, 0),
        2..=5 => (Enforcement::Quota, random.within(0..=2)),
        _ => (Enforcement::Enforced, 0),
    };
    let quota_group = QuotaGroup::new(usize::try_from(quota_group).unwrap()).unwrap();
    CounterRequest { hits, mode, enforcement, quota_group, ..take(&counter.name, &limit) }
}

/// The next moment: often when something ends, and sometimes before the last one.
fn draw_moment_ms(
    random: &mut Random,
    counters: &[Counter],
    decided: &[Decision],
    now_ms: u64,
) -> u64 {
    let statuses = decided.iter().flat_map(|decision| &decision.statuses);
    let waits = statuses.flat_map(|status| [Some(status.reset_after_ms), status.retry_after_ms]);
    let waits: Vec<u64> = waits.flatten().collect();
    let period_ms = counters[0].spec.period_ms;
    now_ms
        + match random.within(0..=6) {
            0..=1 => 0,
            2 => random.within(0..=3),
            3 => random.within(0..=period_ms / 2),
            4 if !waits.is_empty() => random.pick(&waits).saturating_sub(random.within(0..=1)),
            5 if random.one_in(2) => return now_ms - random.within(0..=period_ms),
            _ => random.within(0..=period_ms / 8),
        }
}

fn take_turns(turns: &mut Turns, random: &mut Random, steps: u64) -> Result<(), String> {
    let (mut now_ms, mut counters) = (START_MS, vec![]);
    for step in 0..steps {
        if step % EPISODE_STEPS == 0 {
            let count = random.within(2..=5);
            counters = (0..count).map(|at| draw_counter(random, format!("{step}-{at}"))).collect();
        }
        let run = draw_run(random, &mut counters);
        let decided = turns.decide(random.one_in(2), &run, now_ms);
        let decided = decided.map_err(|error| format!("step {step}: {error}"))?;
        now_ms = draw_moment_ms(random, &counters, &decided, now_ms);
    }
    Ok(())
}

#[test]
fn builds_of_every_format_that_take_turns_on_one_redis_decide_as_one() {
    let steps = number_from_env("TIDEGATE_PROPERTY_STEPS").unwrap_or(1_000);
    let seed = number_from_env("TIDEGATE_PROPERTY_SEED");
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(steps));
    for (format, version) in formats().zip(Version::ALL.into_iter().cycle()) {
        let server = RedisServer::start(version);
        let mut turns = Turns::between(&recorded::script(format), &server);
        if let Err(error) = take_turns(&mut turns, &mut Random::of_seed(seed), steps) {
            panic!(
                "TIDEGATE_PROPERTY_SEED={seed} TIDEGATE_PROPERTY_STEPS={steps}: format {format} on \
                 {version:?}: {error}"
            );
        }
        eprintln!("format {format} on {version:?}: {steps} steps, {:?}", turns.seen);
        turns.seen.assert_of_all_kinds(steps);
    }
}
