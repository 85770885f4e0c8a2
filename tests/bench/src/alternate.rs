//! Measures both sides in turn, so that other load of the machine affects both.

use std::time::Duration;

use anyhow::Result;
use clock::Clock;

/// The durations of all calls.
#[derive(Debug, Default)]
pub(crate) struct Sides {
    ours: Vec<Duration>,
    reference: Vec<Duration>,
}

/// The number of measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) rounds: usize,
    /// Calls of one side in a row.
    pub(crate) calls: usize,
    /// The pause before each call; zero: each call follows the one before at once.
    pub(crate) pause: Duration,
}

impl Rounds {
    /// Measures single calls of both sides, a row of one and then a row of the other. The first round is ignored.
    pub(crate) async fn measure(
        self,
        clock: &Clock,
        mut ours: impl AsyncFnMut() -> Result<()>,
        mut reference: impl AsyncFnMut() -> Result<()>,
    ) -> Result<Sides> {
        let mut sides = Sides::default();
        for round in 0..=self.rounds {
            for _ in 0..self.calls {
                self.pause().await;
                sides.ours.push(timed(clock, &mut ours).await?);
            }
            for _ in 0..self.calls {
                self.pause().await;
                sides.reference.push(timed(clock, &mut reference).await?);
            }
            if round == 0 {
                sides = Sides::default();
            }
        }
        Ok(sides)
    }

    async fn pause(self) {
        if !self.pause.is_zero() {
            tokio::time::sleep(self.pause).await;
        }
    }
}

impl Sides {
    /// The median of Fleetpull's side, in microseconds.
    pub(crate) fn ours_us(self: &Sides) -> f64 {
        microseconds(median(&self.ours))
    }

    /// The median of the reference, in microseconds.
    pub(crate) fn reference_us(&self) -> f64 {
        microseconds(median(&self.reference))
    }
}

/// How long one call takes.
pub(crate) async fn timed(clock: &Clock, call: &mut impl AsyncFnMut() -> Result<()>) -> Result<Duration> {
    let start = clock.now().monotonic;
    call().await?;
    Ok(clock.now().monotonic.saturating_sub(start))
}

/// The median; the default for an empty list.
pub(crate) fn median<T: Copy + Ord + Default>(values: &[T]) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(crate) fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median::<u32>(&[]), 0);
        assert_eq!(median(&[9, 1, 5]), 5);
    }
}
