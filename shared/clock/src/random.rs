//! Chance, from the operating system or from a seed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A source of random numbers that is passed in, so that a seed repeats a run.
#[derive(Debug)]
pub struct Random(StdRng);

impl Random {
    /// Seeded by the operating system.
    #[must_use]
    pub fn from_system() -> Self {
        Self(StdRng::from_os_rng())
    }

    /// The same numbers for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// Uniform in `[0, 1)`.
    pub fn fraction(&mut self) -> f64 {
        self.0.random()
    }

    /// 128 random bits, for ids.
    pub fn id(&mut self) -> u128 {
        self.0.random()
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0.random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers() {
        let (mut one, mut two) = (Random::seeded(7), Random::seeded(7));
        assert_eq!((one.id(), one.word()), (two.id(), two.word()));
        assert_ne!(Random::seeded(8).id(), Random::seeded(7).id());
        assert!((0.0..1.0).contains(&one.fraction()));
    }
}
