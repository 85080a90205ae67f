//! Random numbers that a seed replays, drawn where limits have their edges.

use std::env;
use std::ops::RangeInclusive;

/// A row of random numbers that its seed replays (`SplitMix64`).
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// The row of `seed`.
    pub const fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range, all about equally often.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let size = u128::from(range.end() - range.start()) + 1;
        let offset = (u128::from(self.next()) * size) >> 64;
        range.start() + u64::try_from(offset).unwrap_or(0)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.within(1..=times) == 1
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        let last = choices.len() as u64 - 1;
        choices[usize::try_from(self.within(0..=last)).unwrap_or(0)]
    }

    /// Up to `most`, of all sizes: as often below 10 as between its last powers of two.
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

/// A number from the environment, such as a seed or how many steps to run.
///
/// # Panics
/// When what stands there is no number.
pub fn number_from_env(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
}
