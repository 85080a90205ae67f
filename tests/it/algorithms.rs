//! The guarantees of every algorithm, for random arrivals: no more than the limit in any period, an
//! exact wait, and rejections and reads that change nothing.

use std::hash::{BuildHasher, RandomState};

use tidegate::algorithm::State;
use tidegate::clock::MOMENT_MAX_MS;
use tidegate::decide::{CounterRequest, Mode, Outcome};
use tidegate::decision::Status;
use tidegate::limit::{Algorithm, HITS_MAX, Limit, LimitSpec};

use crate::counters::{checked, refund, take};
use crate::random::{Random, number_from_env};
use crate::random_limits::draw_spec;

/// A time in 2023.
const START_MS: u64 = 1_700_000_000_000;

/// Runs `test` with random numbers, and prints the seed if it fails.
fn with_seed(test: impl Fn(&mut Random) -> Result<(), String>) {
    let seed = number_from_env("TIDEGATE_PROPERTY_SEED");
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(START_MS));
    if let Err(error) = test(&mut Random::of_seed(seed)) {
        panic!("TIDEGATE_PROPERTY_SEED={seed}: {error}");
    }
}

fn one(request: &CounterRequest, state: &mut State, now_ms: u64) -> (bool, Status) {
    let states = std::slice::from_mut(state);
    let (allowed, statuses) = decide(std::slice::from_ref(request), states, now_ms);
    (allowed, statuses[0])
}

/// The most hits in any interval of one period, ends excluded or included alike.
fn most_in_a_period(admitted: &[(u64, u64)], period_ms: u64) -> u64 {
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for (at_ms, hits) in admitted {
        sum += hits;
        while admitted[first].0 + period_ms <= *at_ms {
            sum -= admitted[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

fn admit_random_arrivals(random: &mut Random, limit: &Limit) -> Vec<(u64, u64)> {
    let (mut state, mut now_ms, mut admitted) = (State::Fresh, START_MS, Vec::new());
    // From far under the limit to far over it, in bursts and alone.
    let gap_ms = (limit.period_ms() / limit.hits().max(1)).max(1);
    for _ in 0..4_000 {
        now_ms += match random.within(0..=9) {
            0..=3 => 0,
            4..=8 => random.within(0..=gap_ms),
            _ => random.within(0..=limit.period_ms()),
        };
        let hits = random.within(1..=limit.hits().min(3));
        if one(&CounterRequest { hits, ..take("arrivals", limit) }, &mut state, now_ms).0 {
            admitted.push((now_ms, hits));
        }
    }
    admitted
}

fn no_period_admits_more(draw: impl Fn(&mut Random) -> LimitSpec) {
    with_seed(|random| {
        let mut full = 0;
        for _ in 0..40 {
            let spec = draw(random);
            let admitted = admit_random_arrivals(random, &checked(&spec));
            let most = most_in_a_period(&admitted, spec.period_ms);
            full += u32::from(most == spec.hits);
            if most > spec.hits {
                return Err(format!("{most} hits in one period of {spec:?}"));
            }
        }
        if full < 10 { Err(format!("only {full} of 40 were used in full")) } else { Ok(()) }
    });
}

#[test]
fn no_period_of_a_log_admits_more_than_the_limit() {
    no_period_admits_more(|random| LimitSpec {
        algorithm: Algorithm::SlidingWindowLog,
        hits: random.within(1..=60),
        period_ms: random.within(1..=2_000),
        ..LimitSpec::default()
    });
}

#[test]
fn no_period_of_a_strict_counter_admits_more_than_the_limit() {
    no_period_admits_more(|random| {
        let windows = random.within(1..=20);
        LimitSpec {
            algorithm: Algorithm::SlidingWindowCounter,
            hits: random.within(1..=60),
            period_ms: windows * random.within(1..=100),
            sub_windows: u32::try_from(windows).ok(),
            ..LimitSpec::default()
        }
    });
}

/// Draws limits of all algorithms, runs random requests on each with a clock that only goes
/// forward, and calls `test` before each request.
fn at_random_moments(test: impl Fn(&Limit, &State, &CounterRequest, u64) -> Result<(), String>) {
    with_seed(|random| {
        for round in 0..1_200 {
            let spec = draw_spec(random, Algorithm::ALL[round % Algorithm::ALL.len()]);
            let limit = checked(&spec);
            let (mut state, mut now_ms) = (State::Fresh, START_MS + random.within(0..=1 << 30));
            for _ in 0..40 {
                now_ms = (now_ms + draw_step_ms(random, &limit)).min(MOMENT_MAX_MS);
                let request = draw_request(random, &limit);
                test(&limit, &state, &request, now_ms).map_err(|error| {
                    format!("{spec:?} at {now_ms}, {request:?}, {state:?}: {error}")
                })?;
                one(&request, &mut state, now_ms);
            }
        }
        Ok(())
    });
}

fn draw_step_ms(random: &mut Random, limit: &Limit) -> u64 {
    match random.within(0..=9) {
        0..=2 => 0,
        3..=7 => random.within(0..=limit.period_ms() / 8 + 1),
        _ => random.within(0..=limit.period_ms()),
    }
}

fn draw_request(random: &mut Random, limit: &Limit) -> CounterRequest {
    let hits = match random.within(0..=9) {
        0..=4 => 1,
        5..=7 => random.within(0..=limit.capacity()),
        8 => limit.capacity(),
        _ => random.any_size(HITS_MAX),
    };
    let mode = if random.one_in(10) { Mode::Refund } else { Mode::Take };
    CounterRequest { hits, mode, ..take("random", limit) }
}

/// Whether a wait is 285,000 years or more: the longest that is counted, for any debt.
const fn is_longest(wait_ms: u64) -> bool {
    wait_ms == HITS_MAX
}

fn expect(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

#[test]
fn hits_fit_exactly_when_the_reported_wait_is_over() {
    at_random_moments(|limit, state, request, now_ms| {
        let hits = if limit.overdraft() { 1 } else { request.hits.max(1) };
        if limit.admits(state, now_ms, hits) {
            return Ok(());
        }
        let Some(wait_ms) = limit.retry_after_ms(state, now_ms, hits) else {
            return expect(hits > limit.capacity(), "a fitting request is told never");
        };
        if is_longest(wait_ms) {
            return Ok(());
        }
        expect(wait_ms >= 1, "no wait")?;
        let fits_after = |wait_ms| limit.admits(&state.clone(), now_ms + wait_ms, hits);
        expect(!fits_after(wait_ms - 1), &format!("fits before {wait_ms} ms"))?;
        expect(fits_after(wait_ms), &format!("does not fit after {wait_ms} ms"))
    });
}

#[test]
fn a_limit_is_full_again_exactly_at_the_reported_reset() {
    at_random_moments(|limit, state, _, now_ms| {
        let reset_ms = limit.reset_after_ms(state, now_ms);
        if is_longest(reset_ms) {
            return Ok(());
        }
        let left = |ms| limit.remaining(state, now_ms + ms);
        expect(left(reset_ms) == limit.capacity(), &format!("not full after {reset_ms} ms"))?;
        // A bucket counts whole hits: the last fractions may drain before the last hit is whole.
        let early = reset_ms > 0 && left(reset_ms - 1) == limit.capacity();
        // Maximum debt takes no more hits, but the time of the last one counts.
        let always = limit.overdraft()
            || limit.capacity() == 0
            || limit.algorithm() == Algorithm::FixedWindow;
        expect(always || !early, &format!("full before {reset_ms} ms"))
    });
}

#[test]
fn a_rejected_request_takes_nothing() {
    at_random_moments(|limit, state, request, now_ms| {
        let mut after = state.clone();
        let (allowed, _) = one(request, &mut after, now_ms);
        let same = after == *state && after.encode() == state.encode();
        expect(allowed || limit.overdraft() || same, "a rejected request moved the state")
    });
}

#[test]
fn no_counter_changes_if_a_limit_without_overdraft_rejects() {
    at_random_moments(|_, state, request, now_ms| {
        let closed = checked(&LimitSpec { hits: 0, period_ms: 1, ..LimitSpec::default() });
        let mut states = [state.clone(), State::Fresh];
        let requests = [request.clone(), take("closed", &closed)];
        let (allowed, _) = decide(&requests, &mut states, now_ms);
        expect(!allowed && states == [state.clone(), State::Fresh], "a state moved")
    });
}

#[test]
fn a_read_changes_nothing() {
    at_random_moments(|_, state, request, now_ms| {
        for read in [
            CounterRequest { mode: Mode::Peek, ..request.clone() },
            CounterRequest { hits: 0, ..request.clone() },
        ] {
            let mut after = state.clone();
            one(&read, &mut after, now_ms);
            expect(after == *state && after.encode() == state.encode(), "a read moved the state")?;
        }
        Ok(())
    });
}

#[test]
fn hits_taken_and_given_back_count_as_unused() {
    at_random_moments(|limit, state, request, now_ms| {
        let (mut after, before) = (state.clone(), limit.remaining(state, now_ms));
        let taking = CounterRequest { mode: Mode::Take, ..request.clone() };
        // Debt saturates at the maximum; hits beyond it cannot be given back.
        if request.hits > 1_000_000 || limit.overdraft() || !one(&taking, &mut after, now_ms).0 {
            return Ok(());
        }
        one(&refund("random", limit, request.hits), &mut after, now_ms);
        expect(limit.remaining(&after, now_ms) == before, "not all came back")
    });
}

#[test]
fn giving_all_hits_back_leaves_an_empty_state() {
    at_random_moments(|limit, state, _, now_ms| {
        // Debts of several sub-windows may exceed the hits that one request gives back.
        if limit.overdraft() || limit.hits() > HITS_MAX / 1_000 {
            return Ok(());
        }
        let mut after = state.clone();
        one(&refund("random", limit, HITS_MAX), &mut after, now_ms);
        let unused = limit.remaining(state, now_ms) == limit.capacity();
        expect(after == State::Fresh || (unused && after == *state), &format!("left: {after:?}"))
    });
}

#[test]
fn an_expired_state_equals_an_empty_one() {
    at_random_moments(|limit, state, request, now_ms| {
        let reset_ms = limit.reset_after_ms(state, now_ms);
        if is_longest(reset_ms) {
            return Ok(());
        }
        let late_ms = now_ms + reset_ms;
        let (mut old, mut fresh) = (state.clone(), State::Fresh);
        let same = one(request, &mut old, late_ms) == one(request, &mut fresh, late_ms);
        expect(same, "another answer")?;
        // An unused state may stay unchanged until the next hit.
        expect(old == fresh || (fresh == State::Fresh && old == *state), "another state")
    });
}

#[test]
fn a_state_expires_within_a_period_after_its_reset() {
    at_random_moments(|limit, state, _, now_ms| {
        let (reset_ms, keep_ms) =
            (limit.reset_after_ms(state, now_ms), limit.keep_ms(state, now_ms));
        let most_ms = reset_ms + limit.period_ms().max(60_000);
        expect((reset_ms..=most_ms).contains(&keep_ms), &format!("{keep_ms} for {reset_ms} ms"))
    });
}

/// Decides `requests` on their `states`, which have the same order.
fn decide(requests: &[CounterRequest], states: &mut [State], now_ms: u64) -> (bool, Vec<Status>) {
    let mut outcome = Outcome::default();
    let mut within = Vec::with_capacity(requests.len());
    for (request, state) in requests.iter().zip(states.iter()) {
        let fits = request.fits(state, now_ms);
        outcome.count(request, fits);
        within.push(fits);
    }
    let settle = |((request, state), within): ((&CounterRequest, &mut State), bool)| {
        request.apply(state, now_ms, within, outcome)
    };
    let statuses = requests.iter().zip(states).zip(within).map(settle).collect();
    (outcome.allowed(), statuses)
}
