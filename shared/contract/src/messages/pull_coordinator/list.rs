//! Running and waiting pulls of a node, and counts of those that ended.

use serde::{Deserialize, Serialize};

use super::{OutcomeKind, PullOutcome};
use crate::open::{UnknownText, open_text};
use crate::{ClassCounts, Command, PodRef, Service};

/// Asks for the running and waiting pulls of this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPulls {}

impl Command for ListPulls {
    type Reply = PullList;
    const SERVICE: Service = Service::PullCoordinator;
    const VERB: &'static str = "list";
}

/// The answer to [`ListPulls`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullList {
    /// In the order in which they began, as many as fit into a message; see `left_out`.
    pub pulls: Vec<PullStatus>,
    /// Counts of the requests that were answered since start.
    #[serde(default)]
    pub answered: AnswerCounts,
    /// How many standing pulls there are.
    #[serde(default)]
    pub standing: u64,
    /// How many of them are not among the pulls, because they wait between two attempts.
    #[serde(default)]
    pub resting: u64,
    /// How many more pulls there are.
    #[serde(default)]
    pub left_out: u64,
}

/// Requests since start by outcome; a standing pull without a caller counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerCounts {
    /// The image was pulled.
    pub pulled_total: u64,
    /// The image was there already.
    pub present_total: u64,
    /// It failed; time-outs of callers are not included.
    pub failed_total: u64,
    /// It was too soon after a failure.
    pub backoff_total: u64,
    /// The caller's time-out ended first.
    pub timed_out_total: u64,
    /// The caller was abandoned before there was an answer.
    #[serde(default)]
    pub abandoned_total: u64,
    /// Failures by class.
    #[serde(default)]
    pub failed: ClassCounts,
}

impl AnswerCounts {
    /// Counts one answer. The answer that a standing pull goes on does not count.
    pub fn count(&mut self, outcome: &PullOutcome) {
        let counter = match outcome.outcome {
            _ if outcome.stands => return,
            _ if outcome.timed_out => &mut self.timed_out_total,
            OutcomeKind::Pulled => &mut self.pulled_total,
            OutcomeKind::Present => &mut self.present_total,
            OutcomeKind::Failed => {
                self.failed.count(outcome.class.unwrap_or_default());
                &mut self.failed_total
            }
            OutcomeKind::Backoff => &mut self.backoff_total,
            OutcomeKind::Unknown(_) => return,
        };
        *counter += 1;
    }

    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            pulled_total: self.pulled_total + other.pulled_total,
            present_total: self.present_total + other.present_total,
            failed_total: self.failed_total + other.failed_total,
            backoff_total: self.backoff_total + other.backoff_total,
            timed_out_total: self.timed_out_total + other.timed_out_total,
            abandoned_total: self.abandoned_total + other.abandoned_total,
            failed: self.failed.and(other.failed),
        }
    }
}

/// The most pods of one pull that are listed: nearly as many as kubelet runs on a node (110).
pub const PODS_MOST: usize = 100;

/// The state of one pull.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullStatus {
    /// The image as first asked for.
    pub image: String,
    /// `waiting` or `pulling`.
    pub state: PullState,
    /// For how long it has been in this state.
    pub since_ms: u64,
    /// How many callers wait for it.
    pub callers: u32,
    /// The pods among them, each once; at most [`PODS_MOST`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodRef>,
    /// Bytes fetched so far.
    pub done_bytes: u64,
    /// All bytes; 0: unknown.
    pub total_bytes: u64,
    /// Each layer: digest, fetched bytes, all bytes.
    #[serde(default)]
    pub layers: Vec<LayerStatus>,
}

/// What a pull is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullState {
    /// It waits for a permit.
    Waiting,
    /// The runtime is pulling.
    Pulling,
    /// A state of a newer version.
    Unknown(UnknownText),
}

open_text!(PullState);

impl PullState {
    /// Every state that this version writes.
    pub const ALL: [Self; 2] = [Self::Waiting, Self::Pulling];

    /// The state as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Waiting => "waiting",
            Self::Pulling => "pulling",
            Self::Unknown(text) => text.as_str(),
        }
    }
}

/// The progress of one layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerStatus {
    /// Bytes fetched so far.
    pub digest: String,
    /// All bytes; 0: unknown.
    pub done_bytes: u64,
    /// Bytes in all; 0 while unknown.
    pub total_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_is_counted_once_and_a_time_out_as_nothing_else() {
        let mut counts = AnswerCounts::default();
        for outcome in [OutcomeKind::Pulled, OutcomeKind::Present, OutcomeKind::Failed, OutcomeKind::Backoff] {
            counts.count(&PullOutcome { outcome, ..PullOutcome::default() });
        }
        counts.count(&PullOutcome { timed_out: true, ..PullOutcome::default() });
        assert_eq!(
            counts,
            AnswerCounts {
                pulled_total: 1,
                present_total: 1,
                failed_total: 1,
                backoff_total: 1,
                timed_out_total: 1,
                abandoned_total: 0,
                failed: ClassCounts { unknown: 1, ..ClassCounts::default() }
            }
        );
    }
}
