//! Random numbers that a seed replays, with a preference for the edges of limits.

use std::env;
use std::ops::RangeInclusive;

use fastrand::Rng;

/// A random sequence, which its seed replays.
#[derive(Debug)]
pub struct Random(Rng);

impl Random {
    /// The sequence of `seed`.
    pub fn of_seed(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// A number of the range, uniformly distributed.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.u64(range)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.within(1..=times) == 1
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        *self.0.choice(choices).expect("choices to pick from")
    }

    /// Up to `most`, of all magnitudes: as often below 10 as between its last powers of two.
    pub fn any_size(&mut self, most: u64) -> u64 {
        let bits = self.within(0..=u64::from(u64::BITS - most.leading_zeros()));
        let near = 1_u64.checked_shl(u32::try_from(bits).unwrap_or(0)).unwrap_or(u64::MAX);
        match self.within(0..=3) {
            0 => near.saturating_sub(1).min(most),
            1 => near.min(most),
            _ => self.within(0..=near.min(most)),
        }
    }
}

/// A number from the environment, such as a seed or a number of steps.
///
/// # Panics
/// If the variable is set and not a number.
pub fn number_from_env(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}
