//! Random latencies, always above zero.

use std::time::Duration;

use clock::Random;

/// A distribution: a least time, an exponentially distributed time beyond it, and a tail of much longer times. Timers have a resolution
/// of 1 ms, so times are rounded up to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    pub least_ms: f64,
    /// The mean of the time beyond the least.
    pub mean_ms: f64,
    /// The factor of a time in the tail.
    pub tail: f64,
    /// The longest time on a node that is not slow.
    pub most_ms: f64,
}

const IN_THE_TAIL: f64 = 0.01;

/// One way between a node and the server in the same data centre.
pub const ONE_WAY: Latency = Latency { least_ms: 0.2, mean_ms: 0.6, tail: 20.0, most_ms: 80.0 };
/// An answer, or a refusal, of the registry.
pub const ANSWER: Latency = Latency { least_ms: 15.0, mean_ms: 35.0, tail: 8.0, most_ms: 1_000.0 };
/// An answer of a slow registry.
pub const SLOW_ANSWER: Latency = Latency { least_ms: 3_000.0, mean_ms: 35.0, tail: 8.0, most_ms: 4_000.0 };
/// The layers of an image. In the tail they take longer than a permit is valid without a renewal.
pub const LAYERS: Latency = Latency { least_ms: 120.0, mean_ms: 180.0, tail: 25.0, most_ms: 8_000.0 };
/// The layers of a large image: most pulls take longer than a permit is valid without a renewal.
pub const LARGE_LAYERS: Latency = Latency { least_ms: 2_000.0, mean_ms: 2_500.0, tail: 2.0, most_ms: 10_000.0 };

impl Latency {
    /// Draws a latency for a node that takes `slowness` times as long as others.
    pub fn draw(&self, random: &mut Random, slowness: f64) -> Duration {
        let beyond = -self.mean_ms * (1.0 - random.fraction()).ln();
        let tail = if random.fraction() < IN_THE_TAIL { self.tail } else { 1.0 };
        let ms = (self.least_ms + beyond * tail).min(self.most_ms) * slowness;
        Duration::from_micros((ms * 1_000.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_is_positive_and_bounded_with_a_tail() {
        let mut random = Random::seeded(1);
        let mut drawn: Vec<Duration> = (0..10_000).map(|_| ONE_WAY.draw(&mut random, 1.0)).collect();
        drawn.sort_unstable();
        assert!(drawn[0] >= Duration::from_micros(200) && drawn[9_999] <= Duration::from_millis(80), "{:?}", drawn[9_999]);
        assert!(drawn[9_990] > 3 * drawn[9_000] && drawn[5_000] < Duration::from_millis(1), "{:?}", drawn[9_990]);
        assert!(ONE_WAY.draw(&mut random, 20.0) >= Duration::from_millis(4), "a slow node");
    }
}
