//! Random numbers, from the operating system or from a seed.

use std::cell::RefCell;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

thread_local! {
    /// Replaces the operating system as the source of seeds on this thread, if set.
    static REPEATED: RefCell<Option<StdRng>> = const { RefCell::new(None) };
}

/// A source of random numbers that is passed in, so that a seed repeats a run.
#[derive(Debug)]
pub struct Random(StdRng);

impl Random {
    /// Seeded by the operating system, or on a repeatable thread by that thread's seed.
    #[must_use]
    pub fn from_system() -> Self {
        let repeated = REPEATED.with_borrow_mut(|seeds| seeds.as_mut().map(|seeds| StdRng::seed_from_u64(seeds.random())));
        Self(repeated.unwrap_or_else(StdRng::from_os_rng))
    }

    /// Makes all random numbers on this thread follow from a seed, for simulations of whole services whose parts make their own sources.
    pub fn repeat_on_this_thread(seed: u64) {
        REPEATED.set(Some(StdRng::seed_from_u64(seed)));
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

    #[test]
    fn a_thread_that_is_seeded_repeats_itself_and_no_other_does() {
        let drawn = |seed: Option<u64>| {
            let draw = move || {
                if let Some(seed) = seed {
                    Random::repeat_on_this_thread(seed);
                }
                [Random::from_system().id(), Random::from_system().id()]
            };
            std::thread::spawn(draw).join().unwrap_or_default()
        };
        assert_eq!(drawn(Some(5)), drawn(Some(5)));
        assert_ne!(drawn(Some(5)), drawn(Some(6)));
        assert_ne!(drawn(Some(5))[0], drawn(Some(5))[1]);
        assert_ne!(drawn(None), drawn(None));
    }
}
