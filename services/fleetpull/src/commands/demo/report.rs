//! The output of the demo: scenes yield facts, which are written as text or as JSON.

use std::cell::Cell;

use contract::Reason;
use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{OutputArgs, OutputFormat};
use crate::output::refusal::next_attempt;
use crate::output::{self, table};

/// The origin of a fact.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Really run, and counted by a registry or reported by a node.
    Measured,
    /// The same cores on simulated time.
    Simulated,
    /// Really run, in less time than in production.
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

/// A fact in JSON. The names and their meaning are an interface.
#[derive(Serialize)]
struct JsonFact<'a> {
    /// The scene's number. 0 outside of scenes.
    scene: u8,
    /// The subject in one word. Facts with the same word have the same figures.
    what: &'a str,
    /// `measured`, `simulated` or `shortened`.
    source: &'static str,
    /// The figures by name.
    #[serde(flatten)]
    figures: &'a Value,
    /// The fact as text.
    text: &'a str,
}

/// Writes facts to stdout as they come.
#[derive(Clone)]
pub(super) struct Printer {
    output: OutputArgs,
    /// The number of the current scene.
    scene: Cell<u8>,
}

impl Printer {
    pub(super) fn new(output: OutputArgs) -> Self {
        Self { output, scene: Cell::new(0) }
    }

    /// Starts a scene.
    pub(super) fn scene(&self, number: u8, title: &str) {
        self.scene.set(number);
        self.line("");
        self.line(&format!("{number}. {title}"));
    }

    pub(super) fn measured(&self, what: &str, figures: Value, text: &str) {
        self.fact(Source::Measured, what, &figures, text);
    }

    pub(super) fn simulated(&self, what: &str, figures: Value, text: &str) {
        self.fact(Source::Simulated, what, &figures, text);
    }

    pub(super) fn shortened(&self, what: &str, figures: Value, text: &str) {
        self.fact(Source::Shortened, what, &figures, text);
    }

    fn fact(&self, source: Source, what: &str, figures: &Value, text: &str) {
        match self.output.format {
            OutputFormat::Text => output::fact(&format!("   {:<9}  {text}", source.word())),
            OutputFormat::Json => {
                output::json(&JsonFact { scene: self.scene.get(), what, source: source.word(), figures, text: text.trim_start() });
            }
        }
    }

    /// Writes a line that is not a fact. It is left out of JSON.
    pub(super) fn line(&self, text: &str) {
        if self.output.format == OutputFormat::Text {
            output::fact(text);
        }
    }

    /// Writes what to do next, unless the user asked for facts alone.
    pub(super) fn hint(&self, text: &str) {
        if !self.output.quiet {
            self.line(text);
        }
    }

    /// Writes the results of all steps.
    pub(super) fn steps(&self, steps: &[StepResult]) {
        self.line("");
        let rows: Vec<Vec<String>> = steps.iter().map(StepResult::row).collect();
        table::columns(&["NODE", "WHAT", "OUTCOME", "REQUESTS", "FAILING", "FIGURES"], &rows).iter().for_each(|row| self.line(row));
        if self.output.format == OutputFormat::Json {
            for StepResult { scene, node, what, outcome, counts: StepCounts { requests, failing } } in steps {
                self.scene.set(*scene);
                let figures = json!({ "node": node, "step": what, "outcome": outcome, "requests": requests, "failing": failing });
                self.measured("step", figures, &format!("{node}, {what}: {outcome}"));
            }
        }
    }

    /// Writes where the stores are, and a command that reads one.
    pub(super) fn kept(&self, stores: &str, command: &str) {
        let text = format!("The stores are kept in {stores}. To read one:");
        self.line("");
        self.line(&text);
        self.line(&format!("  {command}"));
        if self.output.format == OutputFormat::Json {
            self.scene.set(0);
            self.measured("kept", json!({ "stores": stores, "command": command }), &text);
        }
    }
}

/// The result of one step.
pub(super) struct StepResult {
    /// The number of its scene.
    scene: u8,
    node: String,
    what: String,
    outcome: String,
    counts: StepCounts,
}

/// What a step cost the registry, as the registry counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepCounts {
    pub(super) requests: u64,
    pub(super) failing: u64,
}

impl StepResult {
    /// A step of the current scene.
    pub(super) fn new(printer: &Printer, node: &str, what: &str, outcome: &str, counts: StepCounts) -> Self {
        Self { scene: printer.scene.get(), node: node.to_owned(), what: what.to_owned(), outcome: outcome.to_owned(), counts }
    }

    fn row(&self) -> Vec<String> {
        let counts = [self.counts.requests, self.counts.failing].map(|count| count.to_string());
        let cells = [self.node.clone(), self.what.clone(), self.outcome.clone()];
        cells.into_iter().chain(counts).chain([Source::Measured.word().to_owned()]).collect()
    }
}

/// The ending of a pull in one or two words.
pub(super) fn ending(last: &PullOutcome) -> &str {
    match last.outcome {
        OutcomeKind::Pulled => "Pulled",
        OutcomeKind::Present => "already present",
        OutcomeKind::Failed | OutcomeKind::Backoff | OutcomeKind::Unknown(_) => last.reason.as_ref().map_or("", Reason::as_str),
    }
}

/// An answer in kubelet's words, with Fleetpull's additions.
pub(super) fn outcome(outcome: &PullOutcome) -> String {
    let reason = outcome.reason.map(|reason| format!("{reason}: ")).unwrap_or_default();
    let next = next_attempt(outcome.next_attempt_ms, None).map(|next| format!("; {next}")).unwrap_or_default();
    format!("{reason}{}{next}", outcome.message)
}

/// The figures of the answer with this number.
pub(super) fn answer(number: usize, outcome: &PullOutcome) -> Value {
    let (reason, class) = (outcome.reason.as_ref().map_or("", Reason::as_str), outcome.class.map_or("", |class| class.as_str()));
    json!({ "number": number, "reason": reason, "class": class, "message": outcome.message, "next_attempt_ms": outcome.next_attempt_ms })
}
