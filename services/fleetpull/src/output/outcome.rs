//! How a pull ended, as a row.

use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome};
use contract::{FailureClass, NodeName};
use serde::Serialize;

use super::units;
use crate::cli::OutputFormat;

/// One image on one node.
#[derive(Clone, Debug)]
pub struct Row {
    /// As asked for.
    pub image: String,
    /// Where.
    pub node: NodeName,
    /// How it ended.
    pub outcome: PullOutcome,
}

/// The row in JSON: the names and their meaning are an interface.
#[derive(Serialize)]
struct JsonRow<'a> {
    image: &'a str,
    node: &'a str,
    outcome: OutcomeKind,
    /// Kubelet's word, or empty.
    reason: &'static str,
    message: &'a str,
    /// The class of the failure, empty on success.
    class: &'static str,
    image_ref: &'a str,
    digest: &'a str,
    platform: &'a str,
    size_bytes: u64,
    duration_ms: u64,
    waiting_ms: u64,
    next_try_ms: Option<u64>,
    auth: &'a str,
    trace_id: &'a str,
    timed_out: bool,
}

impl Row {
    /// Writes the row to stdout.
    pub fn print(&self, format: OutputFormat) {
        match format {
            OutputFormat::Json => super::json(&self.to_json()),
            OutputFormat::Text => super::fact(&self.to_text()),
        }
    }

    fn to_json(&self) -> JsonRow<'_> {
        let outcome = &self.outcome;
        JsonRow {
            image: &self.image,
            node: self.node.as_str(),
            outcome: outcome.outcome,
            reason: outcome.reason.map_or("", |reason| reason.as_str()),
            message: &outcome.message,
            class: outcome.class.map_or("", |class| class.as_str()),
            image_ref: &outcome.image_ref,
            digest: outcome.digest.as_deref().unwrap_or_default(),
            platform: outcome.platform.as_deref().unwrap_or_default(),
            size_bytes: outcome.size_bytes,
            duration_ms: outcome.duration_ms,
            waiting_ms: outcome.waiting_ms,
            next_try_ms: outcome.next_try_ms,
            auth: &outcome.auth,
            trace_id: &outcome.trace_id,
            timed_out: outcome.timed_out,
        }
    }

    /// One line: what, where, how, and what to know of it.
    #[must_use]
    pub fn to_text(&self) -> String {
        let PullOutcome { outcome, size_bytes, duration_ms, waiting_ms, .. } = &self.outcome;
        let told = match outcome {
            OutcomeKind::Pulled => {
                let waited = if *waiting_ms > 0 { format!(", waited {}", units::milliseconds(*waiting_ms)) } else { String::new() };
                let digest = self.outcome.digest.as_deref().map(|digest| format!("  {digest}")).unwrap_or_default();
                format!("{} in {}{waited}{digest}", units::bytes(*size_bytes), units::milliseconds(*duration_ms))
            }
            OutcomeKind::Present => format!(
                "{}{}",
                units::bytes(*size_bytes),
                self.outcome.digest.as_deref().map(|digest| format!("  {digest}")).unwrap_or_default()
            ),
            OutcomeKind::Failed | OutcomeKind::Backoff => self.failure(),
        };
        let word = match outcome {
            OutcomeKind::Pulled => "pulled",
            OutcomeKind::Present => "present",
            OutcomeKind::Failed => "failed",
            OutcomeKind::Backoff => "backoff",
        };
        format!("{word:<7}  {}  {}  {told}", self.node, self.image)
    }

    fn failure(&self) -> String {
        let PullOutcome { reason, message, class, next_try_ms, .. } = &self.outcome;
        let mut told = reason.map(|reason| format!("{reason}: ")).unwrap_or_default();
        told.push_str(&super::one_line(message));
        if let Some(class) = class.filter(|class| *class != FailureClass::Unknown) {
            told.push_str(&format!(" [{class}]"));
        }
        if let Some(left) = next_try_ms {
            told.push_str(&format!(" (next try in {})", units::milliseconds(*left)));
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use contract::Reason;

    use super::*;

    fn row(outcome: PullOutcome) -> Row {
        Row { image: "busybox".to_owned(), node: "n1".parse().expect("a name"), outcome }
    }

    #[test]
    fn json_has_every_field_and_empty_words_for_what_is_not() {
        let row = row(PullOutcome { outcome: OutcomeKind::Pulled, size_bytes: 5, ..PullOutcome::default() });
        let json = serde_json::to_value(row.to_json()).expect("serialises");
        let fields = [
            "image",
            "node",
            "outcome",
            "reason",
            "message",
            "class",
            "image_ref",
            "digest",
            "platform",
            "size_bytes",
            "duration_ms",
            "waiting_ms",
            "next_try_ms",
            "auth",
            "trace_id",
        ];
        for field in fields {
            assert!(json.get(field).is_some(), "{field}");
        }
        assert_eq!((&json["outcome"], &json["reason"], &json["class"]), (&"pulled".into(), &"".into(), &"".into()));
    }

    #[test]
    fn a_failure_says_what_and_until_when_in_one_line() {
        let outcome = PullOutcome {
            outcome: OutcomeKind::Backoff,
            reason: Some(Reason::ImagePullBackOff),
            message: "Back-off pulling image \"busybox\": ErrImagePull: a\nb\u{1b}[2J".to_owned(),
            class: Some(FailureClass::NotFound),
            next_try_ms: Some(9_500),
            ..PullOutcome::default()
        };
        assert_eq!(
            row(outcome).to_text(),
            "backoff  n1  busybox  ImagePullBackOff: Back-off pulling image \"busybox\": ErrImagePull: a b [2J [not_found] (next try in 9.5s)"
        );
    }
}
