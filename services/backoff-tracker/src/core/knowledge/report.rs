//! A node's report on a back-off key.

use std::sync::Arc;
use std::time::Duration;

use contract::{AttemptId, NodeName, TraceContext};

use super::backoff_key::BackoffKey;
use super::replica::{KEPT_FOR, OLDEST};

/// The most bytes of a message that are shared; the reporter's own node keeps all of it.
pub const MAX_MESSAGE_BYTES: usize = 1_024;
/// The highest step that a report may claim; delays stop growing long before.
const MAX_STEP: u32 = 1_000_000;

/// A node's last report on a back-off key. A node can write under its own name only, so the bus vouches for `reporter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The reporting node.
    pub reporter: NodeName,
    /// The key.
    pub backoff_key: Arc<BackoffKey>,
    /// The attempt.
    pub attempt: AttemptId,
    /// The span of that attempt.
    pub trace: Option<TraceContext>,
    /// What the attempt showed.
    pub finding: Finding,
}

/// What an attempt showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The attempt succeeded. Dated when the registry answered.
    Succeeded,
    /// The attempt failed. Dated when it began, because that is when the registry was asked.
    Failed(FailureDetails),
    /// The attempt continues, but has had no answer for `DEADLINES.unanswered_after`. Dated when it began.
    Unanswered(FailureDetails),
}

/// The failure of a back-off key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureDetails {
    /// `<reason>: <message>`, at most [`MAX_MESSAGE_BYTES`].
    pub message: String,
    /// Which failure in a row this is, by what the reporter knew; 1 is the first.
    pub step: u32,
    /// The registry's `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The repository, for keys that count distinct repositories.
    pub repository: String,
    /// How often in a row this node has failed, with no known success in between; 1 is the first.
    pub in_a_row: u32,
    /// The time since this node's first failure without a success of its own in between; zero: this is the first.
    pub failing_for: Duration,
    /// How long before this failure the node's last failing attempt for all nodes (one with a lease) was, or its first failure if it made
    /// none; zero: this is that attempt. Only such attempts postpone the next one.
    pub for_all_ago: Duration,
    /// How long before this failure the node's last success was, if it is kept. Otherwise this report, which replaces that of the success,
    /// would hide from other nodes that the registry still serves.
    pub succeeded_ago: Option<Duration>,
}

impl FailureDetails {
    /// Within its bounds: message shortened, step clamped.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        for text in [&mut self.message, &mut self.repository] {
            shorten(text, MAX_MESSAGE_BYTES);
        }
        self.step = self.step.clamp(1, MAX_STEP);
        self.in_a_row = self.in_a_row.clamp(1, MAX_STEP);
        self.failing_for = self.failing_for.min(OLDEST);
        self.for_all_ago = self.for_all_ago.min(self.failing_for);
        self.succeeded_ago = self.succeeded_ago.map(|ago| ago.max(self.failing_for)).filter(|ago| *ago <= KEPT_FOR);
        self
    }
}

/// Shortens a text to at most this many bytes, at the boundary of a character.
pub(super) fn shorten(text: &mut String, most_bytes: usize) {
    if text.len() > most_bytes {
        let end = (0..=most_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

impl Finding {
    /// The failure, finished or not.
    #[must_use]
    pub fn details(&self) -> Option<&FailureDetails> {
        match self {
            Self::Failed(details) | Self::Unanswered(details) => Some(details),
            Self::Succeeded => None,
        }
    }

    /// Of two findings of the same date, the one with the higher weight counts.
    pub(super) fn weight(&self) -> u8 {
        match self {
            Self::Unanswered(_) => 0,
            Self::Failed(_) => 1,
            Self::Succeeded => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_bounded() {
        let details = FailureDetails { message: "é".repeat(2_000), step: u32::MAX, ..FailureDetails::default() }.bounded();
        assert_eq!((details.message.len(), details.step), (1_024, MAX_STEP));
        assert_eq!(FailureDetails::default().bounded().step, 1, "no failure is the zeroth");
        let succeeded = |failing_s, ago_s| {
            let [failing_for, ago] = [failing_s, ago_s].map(Duration::from_secs);
            FailureDetails { failing_for, succeeded_ago: Some(ago), ..FailureDetails::default() }.bounded().succeeded_ago
        };
        let claims = [(5, 7), (5, 3), (5, 601), (601, 7)].map(|(failing_s, ago_s)| succeeded(failing_s, ago_s).map(|ago| ago.as_secs()));
        assert_eq!(claims, [Some(7), Some(5), None, None], "before all failures since, and no longer ago than a success is kept");
    }
}
