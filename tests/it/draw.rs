//! Random limits, near and far from all their edges.

use tidegate::limit::{Algorithm, HITS_MAX, LOG_HITS_MAX, Limit, LimitSpec, PERIOD_MAX_MS};

use crate::dice::Dice;

/// Draws of a limit's numbers before they are taken for impossible.
const DRAWS_MAX: usize = 10_000;

fn draw_period_ms(dice: &mut Dice) -> u64 {
    match dice.within(0..=9) {
        0 => 1,
        1..=3 => dice.within(1..=50),
        4 => dice.pick(&[7, 1_000, 60_000, 3_600_000, 86_400_000]),
        5..=7 => dice.within(1..=5_000),
        _ => dice.any_size(PERIOD_MAX_MS - 1) + 1,
    }
}

fn draw_hits(dice: &mut Dice, most: u64) -> u64 {
    match dice.within(0..=15) {
        0 => 0,
        1..=8 => dice.within(1..=12),
        9..=10 => dice.within(1..=300),
        11 => most - dice.within(0..=3),
        _ => dice.any_size(most),
    }
}

/// The numbers of a limit that may change while its key stays the same.
fn draw_numbers(dice: &mut Dice, spec: &mut LimitSpec) {
    let log = spec.algorithm == Algorithm::SlidingWindowLog;
    let most = if log { LOG_HITS_MAX } else { HITS_MAX };
    spec.hits = draw_hits(dice, most);
    spec.overdraft = dice.one_in(4);
    match spec.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::Gcra => {
            spec.burst = (!dice.one_in(3)).then(|| draw_hits(dice, HITS_MAX));
        }
        Algorithm::SlidingWindowCounter => {
            spec.weighted = dice.pick(&[None, Some(false), Some(true), Some(true)]);
        }
        Algorithm::FixedWindow | Algorithm::SlidingWindowLog => {}
    }
}

/// Changes a limit's numbers to others that can be.
pub fn redraw_numbers(dice: &mut Dice, spec: &mut LimitSpec) {
    for _ in 0..DRAWS_MAX {
        draw_numbers(dice, spec);
        if Limit::new(spec).is_ok() {
            return;
        }
    }
    panic!("no limit can be like {spec:?}");
}

/// A limit of that algorithm; its numbers may be 0 or close to the most.
pub fn draw_spec(dice: &mut Dice, algorithm: Algorithm) -> LimitSpec {
    let mut spec = LimitSpec { algorithm, period_ms: draw_period_ms(dice), ..LimitSpec::default() };
    if algorithm == Algorithm::SlidingWindowCounter {
        let windows = dice.within(1..=20);
        let length_ms = spec.period_ms.min(PERIOD_MAX_MS / 20);
        (spec.period_ms, spec.sub_windows) = (length_ms * windows, u32::try_from(windows).ok());
    }
    redraw_numbers(dice, &mut spec);
    spec
}
