//! Random limits, near and far from all their bounds.

use tidegate::limit::{Algorithm, HITS_MAX, LOG_HITS_MAX, Limit, LimitSpec, PERIOD_MAX_MS};

use crate::random::Random;

/// Attempts to draw valid numbers before the test fails.
const DRAWS_MAX: usize = 10_000;

fn draw_period_ms(random: &mut Random) -> u64 {
    match random.within(0..=9) {
        0 => 1,
        1..=3 => random.within(1..=50),
        4 => random.pick(&[7, 1_000, 60_000, 3_600_000, 86_400_000]),
        5..=7 => random.within(1..=5_000),
        _ => random.any_size(PERIOD_MAX_MS - 1) + 1,
    }
}

fn draw_hits(random: &mut Random, most: u64) -> u64 {
    match random.within(0..=15) {
        0 => 0,
        1..=8 => random.within(1..=12),
        9..=10 => random.within(1..=300),
        11 => most - random.within(0..=3),
        _ => random.any_size(most),
    }
}

/// Draws the numbers of a limit that may change while its key stays the same.
fn draw_numbers(random: &mut Random, spec: &mut LimitSpec) {
    let log = spec.algorithm == Algorithm::SlidingWindowLog;
    let most = if log { LOG_HITS_MAX } else { HITS_MAX };
    spec.hits = draw_hits(random, most);
    spec.overdraft = random.one_in(4);
    match spec.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra => {
            spec.burst = (!random.one_in(3)).then(|| draw_hits(random, HITS_MAX));
        }
        Algorithm::SlidingWindowCounter => {
            spec.weighted = random.pick(&[None, Some(false), Some(true), Some(true)]);
        }
        Algorithm::FixedWindow | Algorithm::SlidingWindowLog => {}
    }
}

/// Changes a limit's numbers to other valid ones.
pub fn redraw_numbers(random: &mut Random, spec: &mut LimitSpec) {
    for _ in 0..DRAWS_MAX {
        draw_numbers(random, spec);
        if Limit::new(spec).is_ok() {
            return;
        }
    }
    panic!("no limit can be like {spec:?}");
}

/// A limit of that algorithm; its numbers may be 0 or close to the maximum.
pub fn draw_spec(random: &mut Random, algorithm: Algorithm) -> LimitSpec {
    let mut spec =
        LimitSpec { algorithm, period_ms: draw_period_ms(random), ..LimitSpec::default() };
    if algorithm == Algorithm::SlidingWindowCounter {
        let windows = random.within(1..=20);
        let length_ms = spec.period_ms.min(PERIOD_MAX_MS / 20);
        (spec.period_ms, spec.sub_windows) = (length_ms * windows, u32::try_from(windows).ok());
    }
    redraw_numbers(random, &mut spec);
    spec
}
