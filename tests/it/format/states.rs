//! Stored states: those that every earlier format wrote are read by today's script, which decides on
//! them as the script that wrote them.

use serde_json::{Value, json};
use tidegate::algorithm::FORMAT;
use tidegate::decide::{CounterRequest, Mode};
use tidegate::decision::Status;
use tidegate::limit::{Algorithm, Limit, LimitSpec};
use tidegate::store::redis::SCRIPT;

use super::formats;
use super::recorded::{self, Script, bytes, hex};
use crate::counters::{checked, key, take};
use crate::support::servers::{RedisServer, Version};

/// A moment in 2023, at which a minute begins.
const START_MS: u64 = 1_699_999_980_000;

const MINUTE_MS: u64 = 60_000;

/// How one recorded state comes to be, and how it is read.
struct Case {
    name: &'static str,
    spec: LimitSpec,
    history: Vec<Hits>,
    /// The limit with which it is read, if that is another.
    changed_to: Option<LimitSpec>,
    /// Whether hits are taken in the steps after it.
    takes: bool,
}

/// The same number of hits `times`, one `every_ms`.
struct Hits {
    hits: u64,
    times: u64,
    every_ms: u64,
}

fn case(name: &'static str, spec: LimitSpec, history: &[(u64, u64, u64)]) -> Case {
    let hits = |&(hits, times, every_ms): &_| Hits { hits, times, every_ms };
    let history = history.iter().map(hits).collect();
    Case { name, spec, history, changed_to: None, takes: true }
}

fn minutely(algorithm: Algorithm, hits: u64) -> LimitSpec {
    LimitSpec { algorithm, hits, period_ms: MINUTE_MS, ..LimitSpec::default() }
}

/// Hits, times and milliseconds between them, of states of every kind.
fn cases() -> Vec<Case> {
    use Algorithm::{
        FixedWindow, Gcra, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
    };
    let overdraft = |spec| LimitSpec { overdraft: true, ..spec };
    let weighted = LimitSpec {
        sub_windows: Some(1),
        weighted: Some(true),
        ..minutely(SlidingWindowCounter, 20)
    };
    let many = LimitSpec { sub_windows: Some(60), ..minutely(SlidingWindowCounter, 1_000) };
    let burst = |spec| LimitSpec { burst: Some(12), ..spec };
    let by_the_month = LimitSpec {
        period_ms: 30 * 86_400_000,
        hits: 1_000_003,
        ..overdraft(minutely(TokenBucket, 1))
    };
    vec![
        case("fixed window", minutely(FixedWindow, 10), &[(3, 2, 10)]),
        case("fixed window in debt", overdraft(minutely(FixedWindow, 10)), &[(40, 1, 10)]),
        case("log of a few hits", minutely(SlidingWindowLog, 10), &[(1, 5, 7_000)]),
        case("log that is not read whole", minutely(SlidingWindowLog, 50), &[(1, 40, 500)]),
        case("log that dropped hits", minutely(SlidingWindowLog, 500), &[(1, 300, 500)]),
        // Format 2 is moving its records then.
        case("long log", minutely(SlidingWindowLog, 1_000), &[(1, 499, 150), (2, 2, 150)]),
        case("log in debt", overdraft(minutely(SlidingWindowLog, 10)), &[(1, 3, 100), (50, 1, 1)]),
        case("counter", minutely(SlidingWindowCounter, 20), &[(1, 7, 5_000)]),
        case("weighted counter", weighted, &[(2, 6, 9_000)]),
        case("counter of many sub-windows", many, &[(1, 100, 900)]),
        case("token bucket", minutely(TokenBucket, 7), &[(1, 5, 100)]),
        case("token bucket in debt", overdraft(minutely(TokenBucket, 7)), &[(30, 1, 10)]),
        case("leaky bucket", minutely(LeakyBucket, 7), &[(1, 4, 100)]),
        case("gcra", burst(minutely(Gcra, 7)), &[(5, 2, 100)]),
        Case {
            changed_to: Some(burst(minutely(TokenBucket, 11))),
            ..case("token bucket of another limit", minutely(TokenBucket, 7), &[(1, 5, 100)])
        },
        // The next hit is where formats 1 and 2 differ: `differences` tests that.
        Case { takes: false, ..case("largest debt", by_the_month, &[(30_000_000, 1, 1)]) },
    ]
}

fn request(name: &str, limit: &Limit, mode: Mode, hits: u64) -> Vec<Vec<CounterRequest>> {
    vec![vec![CounterRequest { mode, hits, ..take(name, limit) }]]
}

impl Case {
    /// Takes the hits of the history; returns the moment of the last.
    fn write(&self, script: &mut Script) -> u64 {
        let limit = checked(&self.spec);
        let mut at_ms = START_MS;
        for Hits { hits, times, every_ms } in &self.history {
            for _ in 0..*times {
                at_ms += every_ms;
                script.decide(&request(self.name, &limit, Mode::Take, *hits), at_ms);
            }
        }
        at_ms
    }

    /// Steps after the state was written: the moment, the mode and the hits.
    fn steps(&self, at_ms: u64) -> Vec<(u64, Mode, u64)> {
        let capacity = checked(self.changed_to.as_ref().unwrap_or(&self.spec)).capacity();
        let part_ms = self.spec.period_ms / 4;
        let mut steps = vec![
            // The clock of another server is behind.
            (at_ms - 20, Mode::Peek, 1),
            (at_ms, Mode::Peek, 1),
            (at_ms + 1, Mode::Peek, capacity),
            (at_ms + part_ms, Mode::Peek, capacity),
            (at_ms + part_ms, Mode::Refund, 2),
        ];
        if self.takes {
            steps.push((at_ms + 2 * part_ms, Mode::Take, 1));
            steps.push((at_ms + 3 * part_ms, Mode::Take, 2));
        }
        steps.push((at_ms + 4 * part_ms + 1, Mode::Peek, capacity));
        steps.push((at_ms + 8 * part_ms + 1, Mode::Refund, 1_000));
        steps
    }

    /// The state that a script writes, and what it decides on it.
    fn record(&self, script: &mut Script) -> Value {
        let at_ms = self.write(script);
        let limit = checked(self.changed_to.as_ref().unwrap_or(&self.spec));
        let key = key(self.name, &limit);
        let state = script.stored(key.as_bytes()).expect("a state");
        let steps = self.steps(at_ms).into_iter().map(|(at_ms, mode, hits)| {
            let decisions = script.decide(&request(self.name, &limit, mode, hits), at_ms);
            let (mode, status) = (mode_name(mode), spell(&decisions[0].statuses[0]));
            json!({ "at_ms": at_ms, "mode": mode, "hits": hits, "status": status })
        });
        let steps: Vec<Value> = steps.collect();
        let limit = spell_limit(self.changed_to.as_ref().unwrap_or(&self.spec));
        json!({ "name": self.name, "limit": limit, "state": hex(&state), "steps": steps })
    }
}

const MODES: [(Mode, &str); 3] =
    [(Mode::Take, "take"), (Mode::Peek, "peek"), (Mode::Refund, "refund")];

fn mode_name(mode: Mode) -> &'static str {
    MODES.iter().find(|(other, _)| *other == mode).unwrap().1
}

fn mode_of(name: &Value) -> Mode {
    MODES.iter().find(|(_, other)| name == other).unwrap().0
}

fn spell(status: &Status) -> Value {
    json!({
        "within_limit": status.within_limit,
        "remaining": status.remaining,
        "reset_after_ms": status.reset_after_ms,
        "retry_after_ms": status.retry_after_ms,
        "delay_ms": status.delay_ms,
    })
}

fn spell_limit(spec: &LimitSpec) -> Value {
    json!({
        "algorithm": spec.algorithm.name(),
        "hits": spec.hits,
        "period_ms": spec.period_ms,
        "burst": spec.burst,
        "sub_windows": spec.sub_windows,
        "weighted": spec.weighted,
        "overdraft": spec.overdraft,
    })
}

fn read_limit(limit: &Value) -> Limit {
    checked(&LimitSpec {
        algorithm: Algorithm::from_name(limit["algorithm"].as_str().unwrap()).unwrap(),
        hits: limit["hits"].as_u64().unwrap(),
        period_ms: limit["period_ms"].as_u64().unwrap(),
        burst: limit["burst"].as_u64(),
        sub_windows: limit["sub_windows"].as_u64().map(|count| u32::try_from(count).unwrap()),
        weighted: limit["weighted"].as_bool(),
        overdraft: limit["overdraft"].as_bool().unwrap(),
    })
}

/// The recorded states of a format, with what its own script decides on them.
fn of_format(format: u32) -> Vec<Value> {
    recorded::lines(format, "states.jsonl", || {
        let server = RedisServer::start(Version::Redis70);
        let mut script = Script::load(&server, &recorded::script(format));
        cases().iter().map(|case| case.record(&mut script)).collect()
    })
}

/// Stores a recorded state, and decides on it as recorded.
fn check(script: &mut Script, state: &Value, what: &str) {
    let (name, limit) = (state["name"].as_str().unwrap(), read_limit(&state["limit"]));
    script.store(key(name, &limit).as_bytes(), &bytes(state["state"].as_str().unwrap()));
    for step in state["steps"].as_array().unwrap() {
        let (mode, hits) = (mode_of(&step["mode"]), step["hits"].as_u64().unwrap());
        let at_ms = step["at_ms"].as_u64().unwrap();
        let decisions = script.decide(&request(name, &limit, mode, hits), at_ms);
        assert_eq!(spell(&decisions[0].statuses[0]), step["status"], "{what}, {name}: {step}");
    }
}

#[test]
fn states_of_every_format_are_read_by_todays_script_on_every_server() {
    for version in Version::ALL {
        let server = RedisServer::start(version);
        let mut script = Script::load(&server, SCRIPT);
        for format in formats() {
            for state in of_format(format) {
                check(&mut script, &state, &format!("{version:?}, format {format}"));
            }
        }
    }
}

/// Fails where a change of the script writes other bytes, which is a new format.
#[test]
fn todays_script_writes_the_states_that_are_recorded_for_todays_format() {
    let recorded = of_format(FORMAT);
    let server = RedisServer::start(Version::Redis70);
    let mut script = Script::load(&server, SCRIPT);
    for case in cases() {
        let written = case.record(&mut script);
        let same = recorded.iter().find(|state| state["name"] == case.name);
        assert_eq!(Some(&written), same, "{}: raise FORMAT and record it", case.name);
    }
}

#[test]
fn the_recorded_states_are_of_every_kind() {
    // Whether some state is a debt of 32 bytes, and whether some has the tag of a moves record.
    let kinds = |format| {
        let states = of_format(format);
        let is =
            |is: fn(&str) -> bool| states.iter().any(|state| is(state["state"].as_str().unwrap()));
        [is(|state| state.len() == 2 * 32), is(|state| state.get(62..68) == Some("ffffff"))]
    };
    assert_eq!(kinds(1), [false, false]);
    assert_eq!(kinds(2), [true, true]);
}
