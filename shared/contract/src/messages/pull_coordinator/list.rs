//! Pulls that run and wait on a node, and how those that ended did.

use serde::{Deserialize, Serialize};

use super::{OutcomeKind, PullOutcome};
use crate::open::{UnknownText, open_text};
use crate::{ClassCounts, Command, PodRef, Service};

/// What is in flight and queued on this node.
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
    /// In the order in which they began.
    pub pulls: Vec<PullStatus>,
    /// How the requests ended that were answered since start.
    #[serde(default)]
    pub answered: AnswerCounts,
    /// How many standing pulls there are.
    #[serde(default)]
    pub standing: u64,
}

/// How many requests ended in which way since start; a standing pull that nobody waits for any more counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerCounts {
    /// The image was pulled.
    pub pulled_total: u64,
    /// It was there already.
    pub present_total: u64,
    /// It failed, the caller's time-out aside.
    pub failed_total: u64,
    /// It was too soon after a failure.
    pub backoff_total: u64,
    /// The caller's time was over first.
    pub timed_out_total: u64,
    /// The caller had gone before there was an answer.
    #[serde(default)]
    pub abandoned_total: u64,
    /// Of those that failed, by class.
    #[serde(default)]
    pub failed: ClassCounts,
}

impl AnswerCounts {
    /// Counts one answer; that a standing pull goes on is none yet.
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

    /// These and those.
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

/// The most pods of one pull that are named: nearly as many as kubelet runs on a node (110).
pub const PODS_MOST: usize = 100;

/// How far one pull is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullStatus {
    /// The image as first asked for.
    pub image: String,
    /// `waiting` for its turn or `pulling`.
    pub state: PullState,
    /// For how long it is in this state.
    pub since_ms: u64,
    /// How many callers wait for it.
    pub callers: u32,
    /// The pods among them, each once; at most [`PODS_MOST`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodRef>,
    /// Bytes there by now.
    pub done_bytes: u64,
    /// Bytes in all; 0 while unknown.
    pub total_bytes: u64,
    /// Each layer: digest, bytes there, bytes in all.
    #[serde(default)]
    pub layers: Vec<LayerStatus>,
}

/// What a pull is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullState {
    /// It waits for its turn.
    Waiting,
    /// The runtime is at work.
    Pulling,
    /// What a newer version does.
    Unknown(UnknownText),
}

open_text!(PullState);

impl PullState {
    /// Every state that this version writes.
    pub const ALL: [Self; 2] = [Self::Waiting, Self::Pulling];

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Waiting => "waiting",
            Self::Pulling => "pulling",
            Self::Unknown(text) => text.as_str(),
        }
    }
}

/// How far one layer is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerStatus {
    /// Its digest.
    pub digest: String,
    /// Bytes there by now.
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
