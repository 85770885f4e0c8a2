//! Counts what a registry served in the last second.

use std::time::Duration;

/// What was served in the last second is counted in this many parts.
const PARTS: usize = 4;
const PART: Duration = Duration::from_millis(250);

/// What was served in the last second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Served {
    /// The newest first.
    parts: [u32; PARTS],
    newest: u128,
}

impl Served {
    pub(super) fn add(&mut self, now: Duration, count: u32) {
        let part = now.as_nanos() / PART.as_nanos();
        let passed = usize::try_from(part.saturating_sub(self.newest)).unwrap_or(PARTS).min(PARTS);
        self.parts.rotate_right(passed);
        self.parts[..passed].fill(0);
        self.newest = part.max(self.newest);
        self.parts[0] = self.parts[0].saturating_add(count);
    }

    pub(super) fn in_a_second(mut self, now: Duration) -> f64 {
        self.add(now, 0);
        f64::from(self.parts.iter().sum::<u32>())
    }
}
