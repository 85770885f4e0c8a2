//! The outcome of a pull as a row.

use contract::messages::backoff_tracker::BackoffEntry;
use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome};
use contract::{FailureClass, NodeName, Reason, StandingPullId};
use serde::Serialize;

use super::refusal::{Refusal, next_attempt};
use super::{given, trace_link, units};
use crate::cli::OutputFormat;

/// An image on a node.
#[derive(Clone, Debug)]
pub struct Row {
    /// The image as requested.
    pub image: String,
    /// The node.
    pub node: NodeName,
    /// The outcome.
    pub outcome: PullOutcome,
    /// When the outcome arrived, in milliseconds since 1970-01-01.
    pub at_ms: u64,
    /// On a refusal, the entry that delays the image, if another node is probing it.
    pub under_way: Option<Box<BackoffEntry>>,
    /// True if the node was not asked. The outcome says why.
    pub not_begun: bool,
}

/// The row in JSON. The names and their meaning are an interface.
#[derive(Default, Serialize)]
struct JsonRow<'a> {
    image: Option<&'a str>,
    /// Null if the name is unknown: for an agent behind a socket that does not answer.
    node: Option<&'a str>,
    /// `pulled`, `present`, `failed`, `backoff`, `not_begun` if the node was not asked, or `standing` for a standing pull that continues
    /// with the agent.
    outcome: &'a str,
    /// Kubelet's reason.
    reason: Option<&'a str>,
    message: Option<&'a str>,
    /// The class of the failure.
    class: Option<&'static str>,
    image_ref: Option<&'a str>,
    digest: Option<&'a str>,
    platform: Option<&'a str>,
    size_bytes: u64,
    duration_ms: u64,
    waiting_ms: u64,
    next_attempt_ms: Option<u64>,
    auth: Option<&'a str>,
    trace_id: Option<&'a str>,
    timed_out: bool,
    /// On a refusal, the node that reported the failure.
    learned_by: Option<&'a str>,
    /// When that node reported it.
    learned_at: Option<String>,
    /// The trace id in 32 hex digits.
    learned_trace_id: Option<String>,
    /// The link to the trace of the failed attempt, if `traces.link` is set.
    trace_link: Option<String>,
    /// On a refusal, the node that is probing now.
    next_by: Option<&'a str>,
    /// The standing pull, if there is one.
    standing_pull: Option<StandingPullId>,
}

/// Writes to stdout the JSON row of an image whose node could not be asked.
pub fn print_unasked(image: &str, node: Option<&NodeName>, failed: &PullOutcome) {
    super::json(&JsonRow {
        image: given(image),
        node: node.map(NodeName::as_str),
        outcome: "failed",
        message: given(&failed.message),
        class: failed.class.map(FailureClass::as_str),
        trace_id: given(&failed.trace_id),
        timed_out: failed.timed_out,
        ..JsonRow::default()
    });
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
            image: given(&self.image),
            node: Some(self.node.as_str()),
            outcome: self.word(),
            reason: outcome.reason.as_ref().map(Reason::as_str),
            message: given(&outcome.message),
            class: outcome.class.map(FailureClass::as_str),
            image_ref: given(&outcome.image_ref),
            digest: outcome.digest.as_deref(),
            platform: outcome.platform.as_deref(),
            size_bytes: outcome.size_bytes,
            duration_ms: outcome.duration_ms,
            waiting_ms: outcome.waiting_ms,
            next_attempt_ms: self.next_attempt_ms(),
            auth: given(&outcome.auth),
            trace_id: given(&outcome.trace_id),
            timed_out: outcome.timed_out,
            learned_by: given(self.learned_by()),
            learned_at: self.learned_at_ms().map(units::rfc_3339),
            learned_trace_id: Some(self.learned_trace_id()).filter(|id| !id.is_empty()),
            trace_link: self.trace_link(),
            next_by: given(self.next_by()),
            standing_pull: outcome.standing_pull,
        }
    }

    /// The outcome in one word.
    #[must_use]
    pub fn word(&self) -> &str {
        match self.outcome.outcome {
            _ if self.outcome.stands => "standing",
            _ if self.not_begun => "not_begun",
            ref outcome => outcome.as_str(),
        }
    }

    /// True if the image is present.
    #[must_use]
    pub fn is_there(&self) -> bool {
        !self.outcome.stands && matches!(self.outcome.outcome, OutcomeKind::Pulled | OutcomeKind::Present)
    }

    /// When the next attempt is due. None if the time is over, because there is none for this caller.
    fn next_attempt_ms(&self) -> Option<u64> {
        self.outcome.next_attempt_ms.filter(|_| !self.outcome.timed_out)
    }

    /// On a refusal, the node that reported the failure.
    fn learned_by(&self) -> &str {
        let of_entry = self.under_way.as_ref().and_then(|entry| entry.reporters.first());
        match (self.outcome.learned_by.as_ref().or(of_entry), self.outcome.outcome) {
            (Some(node), _) => node,
            (None, OutcomeKind::Backoff) if !self.outcome.stands => self.node.as_str(),
            (None, _) => "",
        }
    }

    /// When that node reported the failure, in milliseconds since 1970-01-01.
    fn learned_at_ms(&self) -> Option<u64> {
        let ago = self.outcome.learned_ms_ago.or(self.under_way.as_ref().map(|entry| entry.last_ms_ago));
        ago.map(|ago| self.at_ms.saturating_sub(ago))
    }

    fn learned_trace_id(&self) -> String {
        let of_entry = || self.under_way.as_ref().and_then(|entry| entry.trace).map(|trace| trace.trace_id_hex());
        self.outcome.learned_trace_id.clone().or_else(of_entry).unwrap_or_default()
    }

    /// The link to the trace of the failed attempt. On a refusal it is the reported attempt.
    fn trace_link(&self) -> Option<String> {
        match self.outcome.outcome {
            OutcomeKind::Failed => trace_link::of(&self.outcome.trace_id),
            OutcomeKind::Backoff if !self.outcome.stands => trace_link::of(&self.learned_trace_id()),
            _ => None,
        }
    }

    /// The node that is probing now.
    fn next_by(&self) -> &str {
        self.under_way.as_ref().and_then(|entry| entry.probed_by.as_deref()).unwrap_or_default()
    }

    /// True if another node may be probing the image now: the refusal then has no time of a next attempt.
    #[must_use]
    pub fn may_be_under_way(&self) -> bool {
        let outcome = &self.outcome;
        let has_time = outcome.learned_by.is_some() && outcome.next_attempt_ms.is_some_and(|left| left > 0);
        outcome.outcome == OutcomeKind::Backoff && !outcome.stands && !self.not_begun && !outcome.timed_out && !has_time
    }

    /// Why the pull waits, if another node has reported the failure or is probing now.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let outcome = &self.outcome;
        if let Some(entry) = &self.under_way {
            let refusal = Refusal {
                node: self.node.as_str(),
                learned_by: self.learned_by(),
                learned_at_ms: Some(self.at_ms.saturating_sub(entry.last_ms_ago)),
                trace_id: &self.learned_trace_id(),
                class: entry.class,
                cause: &entry.cause,
                next_attempt_ms: None,
                next_by: self.next_by(),
            };
            return Some(refusal.sentence());
        }
        let refusal = Refusal {
            node: self.node.as_str(),
            learned_by: outcome.learned_by.as_deref()?,
            learned_at_ms: self.learned_at_ms(),
            trace_id: outcome.learned_trace_id.as_deref().unwrap_or_default(),
            class: outcome.class.unwrap_or(FailureClass::Unknown),
            cause: &outcome.message,
            next_attempt_ms: self.next_attempt_ms(),
            next_by: "",
        };
        Some(refusal.sentence())
    }

    /// The row in one line: image, node, outcome and remarks.
    #[must_use]
    pub fn to_text(&self) -> String {
        let PullOutcome { outcome, size_bytes, duration_ms, waiting_ms, standing_pull, stands, digest, .. } = &self.outcome;
        let waited = |from_ms| if *waiting_ms < from_ms { String::new() } else { format!(", waited {}", units::milliseconds(*waiting_ms)) };
        let digest = digest.as_deref().map(|digest| format!("  {digest}")).unwrap_or_default();
        let detail = match outcome {
            // The agent's message is included: it may say that the standing pull ends with the agent.
            _ if *stands => {
                let message = super::one_line(&self.outcome.message);
                let standing_pull = standing_pull.map(|id| format!("standing pull {id}")).unwrap_or_default();
                if message.is_empty() { standing_pull } else { format!("{standing_pull}  {message}") }
            }
            OutcomeKind::Pulled => {
                format!("{} in {}{}{digest}", units::bytes(*size_bytes), units::milliseconds(*duration_ms), waited(1))
            }
            // A standing pull takes some milliseconds to find an image that was there from the beginning.
            OutcomeKind::Present => format!("{}{}{digest}", units::bytes(*size_bytes), waited(units::SOON_MS)),
            _ if self.not_begun => super::one_line(&self.outcome.message),
            OutcomeKind::Backoff => self.refusal().unwrap_or_else(|| self.failure()),
            OutcomeKind::Failed | OutcomeKind::Unknown(_) => self.failure(),
        };
        let link = self.trace_link().map(|link| format!("  {link}")).unwrap_or_default();
        format!("{:<7}  {}  {}  {detail}{link}", self.word(), self.node, self.image)
    }

    fn failure(&self) -> String {
        let PullOutcome { outcome, reason, message, class, learned_ms_ago, .. } = &self.outcome;
        let mut text = reason.map(|reason| format!("{reason}: ")).unwrap_or_default();
        text.push_str(&super::one_line(message));
        if let Some(class) = class.filter(|class| *class != FailureClass::Unknown) {
            // The message of a refusal is that of an attempt, maybe for another image. Without an attempt, the budget alone refuses.
            let is_learned = *outcome == OutcomeKind::Backoff && learned_ms_ago.is_some();
            let is_of_registry = matches!(class, FailureClass::RateLimited | FailureClass::RegistryUnavailable);
            let found = if is_learned && is_of_registry { " of the registry, found with this or another image" } else { "" };
            text.push_str(&format!(" [{class}{found}]"));
        }
        if let Some(next) = next_attempt(self.next_attempt_ms(), None) {
            text.push_str(&format!(" ({next})"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(outcome: PullOutcome) -> Row {
        Row {
            image: "busybox".to_owned(),
            node: "n3".parse().expect("a name"),
            outcome,
            at_ms: 43_203_500,
            under_way: None,
            not_begun: false,
        }
    }

    #[test]
    fn json_has_every_field_and_null_for_what_is_absent() {
        let row = row(PullOutcome { outcome: OutcomeKind::Pulled, size_bytes: 5, ..PullOutcome::default() });
        let json = serde_json::to_value(row.to_json()).expect("serialises");
        let fields = "image node outcome reason message class image_ref digest platform size_bytes duration_ms waiting_ms next_attempt_ms \
                      auth trace_id learned_by learned_at learned_trace_id trace_link next_by standing_pull";
        for field in fields.split(' ') {
            assert!(json.get(field).is_some(), "{field}");
        }
        assert_eq!(json["outcome"], "pulled");
        for absent in ["reason", "message", "class", "image_ref", "digest", "platform", "auth", "learned_by", "learned_at", "next_by"] {
            assert!(json[absent].is_null(), "{absent}: {json}");
        }
    }

    #[test]
    fn refusal_names_the_node_that_reported_the_failure() {
        let own = PullOutcome { outcome: OutcomeKind::Backoff, class: Some(FailureClass::NotFound), ..PullOutcome::default() };
        let learned = PullOutcome {
            learned_by: Some("n1".to_owned()),
            learned_ms_ago: Some(500),
            learned_trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned()),
            message: "Back-off pulling image \"busybox\": ErrImagePull: 503 Service Unavailable".to_owned(),
            next_attempt_ms: Some(3_100),
            ..own.clone()
        };
        assert_eq!(
            row(learned.clone()).to_text(),
            "backoff  n3  busybox  n3 waits: n1 got 503 at 12:00:03Z (trace 4bf92f35...), next attempt in 3s"
        );
        assert_eq!((row(own.clone()).to_json().learned_by, row(learned.clone()).to_json().learned_by), (Some("n3"), Some("n1")));
        assert_eq!(row(learned).to_json().learned_at.as_deref(), Some("1970-01-01T12:00:03Z"));
        let stands = PullOutcome { stands: true, ..own };
        assert_eq!(
            (row(stands.clone()).word(), row(stands.clone()).is_there(), row(stands).to_json().learned_by),
            ("standing", false, None)
        );
    }

    #[test]
    fn refusal_during_a_probe_names_the_prober() {
        let message = "ErrImagePull: no clearance within 10s: still waiting for the result of another node's attempt";
        let refused = row(PullOutcome {
            outcome: OutcomeKind::Backoff,
            message: message.to_owned(),
            next_attempt_ms: Some(10_000),
            ..PullOutcome::default()
        });
        let under_way = BackoffEntry {
            class: FailureClass::NotFound,
            reporters: vec!["n1".to_owned()],
            last_ms_ago: 500,
            cause: "ErrImagePull: r.example: 404 Not Found".to_owned(),
            probed_by: Some("n2".to_owned()),
            ..BackoffEntry::default()
        };
        assert!(refused.may_be_under_way(), "a caller whose wait for clearance timed out gets no time of the next attempt");
        let with_prober = Row { under_way: Some(Box::new(under_way)), ..refused };
        assert_eq!(with_prober.refusal().as_deref(), Some("n3 waits: n1 got 404 at 12:00:03Z, next attempt now by n2"));
        assert_eq!((with_prober.to_json().learned_by, with_prober.to_json().next_by), (Some("n1"), Some("n2")));
        assert_eq!(with_prober.to_json().learned_at.as_deref(), Some("1970-01-01T12:00:03Z"));
        let learned = PullOutcome {
            outcome: OutcomeKind::Backoff,
            learned_by: Some("n1".to_owned()),
            next_attempt_ms: Some(3_100),
            ..PullOutcome::default()
        };
        assert!(!row(learned).may_be_under_way(), "the time of the next attempt is known, and no prober is chosen yet");
    }

    #[test]
    fn row_shows_next_attempt_only_if_one_will_be_made() {
        let refused = PullOutcome {
            outcome: OutcomeKind::Backoff,
            class: Some(FailureClass::NotFound),
            next_attempt_ms: Some(9_500),
            learned_by: Some("n1".to_owned()),
            ..PullOutcome::default()
        };
        for (learned_by, timed_out) in [(Some("n1".to_owned()), false), (None, false), (Some("n1".to_owned()), true), (None, true)] {
            let shown = row(PullOutcome { learned_by, timed_out, ..refused.clone() });
            assert_eq!(shown.to_text().contains("next attempt in"), !timed_out, "{}", shown.to_text());
            assert_eq!(shown.to_json().next_attempt_ms.is_some(), !timed_out);
        }
        let spared = Row { not_begun: true, ..row(PullOutcome { message: "not begun: n1 got 404".to_owned(), ..refused }) };
        assert_eq!((spared.word(), spared.is_there()), ("not_begun", false));
        assert_eq!(spared.to_text(), "not_begun  n3  busybox  not begun: n1 got 404");
    }

    #[test]
    fn row_of_an_image_says_how_long_it_waited() {
        let text = |outcome, waiting_ms| row(PullOutcome { outcome, waiting_ms, size_bytes: 5, ..PullOutcome::default() }).to_text();
        assert_eq!(text(OutcomeKind::Pulled, 3), "pulled   n3  busybox  5 B in 0s, waited 3ms");
        assert_eq!(text(OutcomeKind::Present, 3), "present  n3  busybox  5 B");
        assert_eq!(text(OutcomeKind::Present, 61_500), "present  n3  busybox  5 B, waited 1m1.5s");
    }

    #[test]
    fn failure_has_its_cause_and_next_attempt_in_one_line() {
        let outcome = PullOutcome {
            outcome: OutcomeKind::Backoff,
            reason: Some(Reason::ImagePullBackOff),
            message: "Back-off pulling image \"busybox\": ErrImagePull: a\nb\u{1b}[2J".to_owned(),
            class: Some(FailureClass::NotFound),
            next_attempt_ms: Some(9_500),
            ..PullOutcome::default()
        };
        assert_eq!(
            row(outcome.clone()).to_text(),
            "backoff  n3  busybox  ImagePullBackOff: Back-off pulling image \"busybox\": ErrImagePull: a b [2J [not_found] (next attempt in 9s)"
        );
        let limited = PullOutcome { class: Some(FailureClass::RateLimited), learned_ms_ago: Some(500), ..outcome };
        let text = row(limited.clone()).to_text();
        assert!(text.contains("a b [2J [rate_limited of the registry, found with this or another image] (next"), "{text}");
        let by_budget = PullOutcome { learned_ms_ago: None, ..limited.clone() };
        let failed = PullOutcome { outcome: OutcomeKind::Failed, ..limited };
        for outcome in [by_budget, failed] {
            assert!(row(outcome).to_text().contains("[rate_limited] (next"), "no attempt for another image");
        }
    }
}
