//! What the demo says.

use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome};

use crate::output::{self, units};

/// What one step came to.
pub(super) struct Told {
    pub(super) node: String,
    pub(super) what: String,
    pub(super) outcome: String,
    pub(super) counts: StepCounts,
}

/// What a step cost the registry, by its own count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepCounts {
    pub(super) requests: u64,
    pub(super) failing: u64,
}

impl Told {
    pub(super) fn new(node: &str, what: &str, last: &PullOutcome, counts: StepCounts) -> Self {
        let outcome = match last.outcome {
            OutcomeKind::Pulled => "Pulled".to_owned(),
            OutcomeKind::Present => "already present".to_owned(),
            OutcomeKind::Failed | OutcomeKind::Backoff => last.reason.map(|reason| reason.to_string()).unwrap_or_default(),
        };
        Self { node: node.to_owned(), what: what.to_owned(), outcome, counts }
    }

    pub(super) fn row(&self) -> Vec<String> {
        vec![self.node.clone(), self.what.clone(), self.outcome.clone(), self.counts.requests.to_string(), self.counts.failing.to_string()]
    }
}

/// An answer in kubelet's words, with what only Fleetpull says.
pub(super) fn outcome(outcome: &PullOutcome) -> String {
    let reason = outcome.reason.map(|reason| format!("{reason}: ")).unwrap_or_default();
    let next = outcome.next_try_ms.map(|left| format!("; next try in {}", units::milliseconds(left))).unwrap_or_default();
    format!("{reason}{}{next}", outcome.message)
}

pub(super) fn title(text: &str) {
    output::fact("");
    output::fact(text);
}

pub(super) fn line(text: &str) {
    output::fact(text);
}
