//! What every algorithm promises, whatever comes when: no more than the limit in any period, a
//! wait that is exact, and rejections and reads that leave no trace.

use std::hash::{BuildHasher, RandomState};

use tidegate::algorithm::State;
use tidegate::clock::MOMENT_MAX_MS;
use tidegate::decide::{CounterRequest, Mode, Outcome};
use tidegate::decision::Status;
use tidegate::limit::{Algorithm, HITS_MAX, Limit, LimitSpec};

use crate::asks::{checked, refund, take};
use crate::dice::{Dice, number_from_env};
use crate::draw::draw_spec;

/// A moment in 2023.
const START_MS: u64 = 1_700_000_000_000;

/// Runs `test` with dice whose seed stands in the message where it fails.
fn with_dice(test: impl Fn(&mut Dice) -> Result<(), String>) {
    let seed = number_from_env("TIDEGATE_PROPERTY_SEED");
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(START_MS));
    if let Err(error) = test(&mut Dice::of_seed(seed)) {
        panic!("TIDEGATE_PROPERTY_SEED={seed}: {error}");
    }
}

fn one(ask: &CounterRequest, state: &mut State, now_ms: u64) -> (bool, Status) {
    let states = std::slice::from_mut(state);
    let (allowed, statuses) = decide(std::slice::from_ref(ask), states, now_ms);
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

fn admit_random_arrivals(dice: &mut Dice, limit: &Limit) -> Vec<(u64, u64)> {
    let (mut state, mut now_ms, mut admitted) = (State::Fresh, START_MS, Vec::new());
    // From far under the limit to far over it, in bursts and alone.
    let gap_ms = (limit.period_ms() / limit.hits().max(1)).max(1);
    for _ in 0..4_000 {
        now_ms += match dice.within(0..=9) {
            0..=3 => 0,
            4..=8 => dice.within(0..=gap_ms),
            _ => dice.within(0..=limit.period_ms()),
        };
        let hits = dice.within(1..=limit.hits().min(3));
        if one(&CounterRequest { hits, ..take("arrivals", limit) }, &mut state, now_ms).0 {
            admitted.push((now_ms, hits));
        }
    }
    admitted
}

fn no_period_admits_more(draw: impl Fn(&mut Dice) -> LimitSpec) {
    with_dice(|dice| {
        let mut full = 0;
        for _ in 0..40 {
            let spec = draw(dice);
            let admitted = admit_random_arrivals(dice, &checked(&spec));
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
    no_period_admits_more(|dice| LimitSpec {
        algorithm: Algorithm::SlidingWindowLog,
        hits: dice.within(1..=60),
        period_ms: dice.within(1..=2_000),
        ..LimitSpec::default()
    });
}

#[test]
fn no_period_of_a_strict_counter_admits_more_than_the_limit() {
    no_period_admits_more(|dice| {
        let windows = dice.within(1..=20);
        LimitSpec {
            algorithm: Algorithm::SlidingWindowCounter,
            hits: dice.within(1..=60),
            period_ms: windows * dice.within(1..=100),
            sub_windows: u32::try_from(windows).ok(),
            ..LimitSpec::default()
        }
    });
}

/// Draws limits of all algorithms, runs random requests on each with a clock that goes forward,
/// and lets `test` look at every moment before a request.
fn at_random_moments(test: impl Fn(&Limit, &State, &CounterRequest, u64) -> Result<(), String>) {
    with_dice(|dice| {
        for round in 0..1_200 {
            let spec = draw_spec(dice, Algorithm::ALL[round % Algorithm::ALL.len()]);
            let limit = checked(&spec);
            let (mut state, mut now_ms) = (State::Fresh, START_MS + dice.within(0..=1 << 30));
            for _ in 0..40 {
                now_ms = (now_ms + draw_step_ms(dice, &limit)).min(MOMENT_MAX_MS);
                let ask = draw_ask(dice, &limit);
                test(&limit, &state, &ask, now_ms).map_err(|error| {
                    format!("{spec:?} at {now_ms}, {ask:?}, {state:?}: {error}")
                })?;
                one(&ask, &mut state, now_ms);
            }
        }
        Ok(())
    });
}

fn draw_step_ms(dice: &mut Dice, limit: &Limit) -> u64 {
    match dice.within(0..=9) {
        0..=2 => 0,
        3..=7 => dice.within(0..=limit.period_ms() / 8 + 1),
        _ => dice.within(0..=limit.period_ms()),
    }
}

fn draw_ask(dice: &mut Dice, limit: &Limit) -> CounterRequest {
    let hits = match dice.within(0..=9) {
        0..=4 => 1,
        5..=7 => dice.within(0..=limit.capacity()),
        8 => limit.capacity(),
        _ => dice.any_size(HITS_MAX),
    };
    let mode = if dice.one_in(10) { Mode::Refund } else { Mode::Take };
    CounterRequest { hits, mode, ..take("random", limit) }
}

/// Of a wait of 285,000 years or more: the longest that is counted, whatever the debt.
const fn is_longest(wait_ms: u64) -> bool {
    wait_ms == HITS_MAX
}

fn expect(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

#[test]
fn the_same_hits_fit_exactly_when_the_promised_wait_is_over() {
    at_random_moments(|limit, state, ask, now_ms| {
        let hits = if limit.overdraft() { 1 } else { ask.hits.max(1) };
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
fn the_limit_is_full_again_exactly_when_the_promised_reset_comes() {
    at_random_moments(|limit, state, _, now_ms| {
        let reset_ms = limit.reset_after_ms(state, now_ms);
        if is_longest(reset_ms) {
            return Ok(());
        }
        let left = |ms| limit.remaining(state, now_ms + ms);
        expect(left(reset_ms) == limit.capacity(), &format!("not full after {reset_ms} ms"))?;
        // A bucket counts whole hits: its last drops may leave while the last hit is not whole.
        let early = reset_ms > 0 && left(reset_ms - 1) == limit.capacity();
        // Debt at its most takes no more hits, yet the last one's moment counts.
        let always = limit.overdraft()
            || limit.capacity() == 0
            || limit.algorithm() == Algorithm::FixedWindow;
        expect(always || !early, &format!("full before {reset_ms} ms"))
    });
}

#[test]
fn a_rejected_request_takes_nothing() {
    at_random_moments(|limit, state, ask, now_ms| {
        let mut after = state.clone();
        let (allowed, _) = one(ask, &mut after, now_ms);
        let same = after == *state && after.encode() == state.encode();
        expect(allowed || limit.overdraft() || same, "a rejected request moved the state")
    });
}

#[test]
fn nobody_takes_where_a_limit_without_overdraft_rejects() {
    at_random_moments(|_, state, ask, now_ms| {
        let closed = checked(&LimitSpec { hits: 0, period_ms: 1, ..LimitSpec::default() });
        let mut states = [state.clone(), State::Fresh];
        let asks = [ask.clone(), take("closed", &closed)];
        let (allowed, _) = decide(&asks, &mut states, now_ms);
        expect(!allowed && states == [state.clone(), State::Fresh], "a state moved")
    });
}

#[test]
fn a_read_leaves_no_trace() {
    at_random_moments(|_, state, ask, now_ms| {
        for read in [
            CounterRequest { mode: Mode::Peek, ..ask.clone() },
            CounterRequest { hits: 0, ..ask.clone() },
        ] {
            let mut after = state.clone();
            one(&read, &mut after, now_ms);
            expect(after == *state && after.encode() == state.encode(), "a read moved the state")?;
        }
        Ok(())
    });
}

#[test]
fn what_was_taken_and_given_back_was_not_used() {
    at_random_moments(|limit, state, ask, now_ms| {
        let (mut after, before) = (state.clone(), limit.remaining(state, now_ms));
        let taking = CounterRequest { mode: Mode::Take, ..ask.clone() };
        // Debt saturates at the most; what came over it is not there to be given back.
        if ask.hits > 1_000_000 || limit.overdraft() || !one(&taking, &mut after, now_ms).0 {
            return Ok(());
        }
        one(&refund("random", limit, ask.hits), &mut after, now_ms);
        expect(limit.remaining(&after, now_ms) == before, "not all came back")
    });
}

#[test]
fn all_hits_given_back_leave_a_fresh_state() {
    at_random_moments(|limit, state, _, now_ms| {
        // Debts of several sub-windows can come to more than one request gives back.
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
fn a_limit_that_expired_equals_a_fresh_one() {
    at_random_moments(|limit, state, ask, now_ms| {
        let reset_ms = limit.reset_after_ms(state, now_ms);
        if is_longest(reset_ms) {
            return Ok(());
        }
        let late_ms = now_ms + reset_ms;
        let (mut old, mut fresh) = (state.clone(), State::Fresh);
        let same = one(ask, &mut old, late_ms) == one(ask, &mut fresh, late_ms);
        expect(same, "another answer")?;
        // An unused state may stay as it is until a hit moves it.
        expect(old == fresh || (fresh == State::Fresh && old == *state), "another state")
    });
}

#[test]
fn a_state_is_kept_until_its_reset_and_not_a_period_longer() {
    at_random_moments(|limit, state, _, now_ms| {
        let (reset_ms, keep_ms) =
            (limit.reset_after_ms(state, now_ms), limit.keep_ms(state, now_ms));
        let most_ms = reset_ms + limit.period_ms().max(60_000);
        expect((reset_ms..=most_ms).contains(&keep_ms), &format!("{keep_ms} for {reset_ms} ms"))
    });
}

/// Decides over `asks` and their `states`, both in the same order.
fn decide(asks: &[CounterRequest], states: &mut [State], now_ms: u64) -> (bool, Vec<Status>) {
    let mut outcome = Outcome::default();
    let mut within = Vec::with_capacity(asks.len());
    for (ask, state) in asks.iter().zip(states.iter()) {
        let fits = ask.fits(state, now_ms);
        outcome.count(ask, fits);
        within.push(fits);
    }
    let settle = |((ask, state), within): ((&CounterRequest, &mut State), bool)| {
        ask.apply(state, now_ms, within, outcome)
    };
    let statuses = asks.iter().zip(states).zip(within).map(settle).collect();
    (outcome.allowed(), statuses)
}
