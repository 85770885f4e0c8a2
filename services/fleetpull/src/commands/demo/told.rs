//! What the demo says.

use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome};

use crate::output::{self, units};

/// Where a fact comes from. Every line of a scene says it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// Really run, and counted by a registry or said by a node.
    Measured,
    /// The same cores on simulated time.
    Simulated,
    /// Really run, in less time than it lasts elsewhere.
    Shortened,
}

impl Source {
    const fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Simulated => "simulated",
            Self::Shortened => "shortened",
        }
    }
}

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
        let counts = [self.counts.requests, self.counts.failing].map(|count| count.to_string());
        let told = [self.node.clone(), self.what.clone(), self.outcome.clone()];
        told.into_iter().chain(counts).chain([Source::Measured.word().to_owned()]).collect()
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

pub(super) fn measured(text: &str) {
    fact(Source::Measured, text);
}

pub(super) fn simulated(text: &str) {
    fact(Source::Simulated, text);
}

pub(super) fn shortened(text: &str) {
    fact(Source::Shortened, text);
}

/// A fact of a scene.
fn fact(source: Source, text: &str) {
    output::fact(&format!("   {:<9}  {text}", source.word()));
}

/// What is no fact of a scene.
pub(super) fn line(text: &str) {
    output::fact(text);
}
