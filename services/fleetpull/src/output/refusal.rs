//! Why a pull waits, in one sentence: `n3 waits: n1 got 503 at 12:00:03Z (trace 4bf92f35...), next attempt in 3.1 s`, or during the next
//! attempt `n2 tries now`.

use console::truncate_str;
use contract::FailureClass;

use super::units;

/// HTTP statuses as runtimes write them, with their words, so that a number is not mistaken for a port.
const STATUSES: [(&str, &str); 8] = [
    ("401 Unauthorized", "401"),
    ("403 Forbidden", "403"),
    ("404 Not Found", "404"),
    ("429 Too Many Requests", "429"),
    ("500 Internal Server Error", "500"),
    ("502 Bad Gateway", "502"),
    ("503 Service Unavailable", "503"),
    ("504 Gateway Timeout", "504"),
];
/// Hex digits of a trace id that are shown.
const TRACE_SHOWN: usize = 8;
/// Columns of a message that are shown.
const MESSAGE_SHOWN: usize = 40;
/// The runtime's remark on a status that does not come from a registry.
const WEB_PAGE: &str = "(with a web page";

/// Why a node waits for an image.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refusal<'a> {
    /// The node that waits.
    pub node: &'a str,
    /// The node that reported the failure. Empty if the waiting node found it itself.
    pub learned_by: &'a str,
    /// When the failure was reported, in milliseconds since 1970-01-01, if known.
    pub learned_at_ms: Option<u64>,
    /// The trace of the failed attempt in 32 hex digits. May be empty.
    pub trace_id: &'a str,
    /// The class of the failure.
    pub class: FailureClass,
    /// `<reason>: <message>` of the failed attempt.
    pub cause: &'a str,
    /// Milliseconds until the next attempt, if known.
    pub next_attempt_ms: Option<u64>,
    /// The prober. Empty before the next attempt begins: then the first node that needs the image makes it for all.
    pub next_by: &'a str,
}

impl Refusal<'_> {
    /// The sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let finder = if self.learned_by.is_empty() { self.node } else { self.learned_by };
        let mut sentence = format!("{} waits: {finder} got {}", self.node, got(self.class, self.cause));
        if let Some(at) = self.learned_at_ms {
            sentence.push_str(&format!(" at {}", units::time_of_day(at)));
        }
        if !self.trace_id.is_empty() {
            sentence.push_str(&format!(" (trace {})", short_trace(self.trace_id)));
        }
        if let Some(next) = next_attempt(self.next_attempt_ms, self.next_by) {
            sentence.push_str(&format!(", {next}"));
        }
        sentence
    }
}

/// The beginning of a trace id.
#[must_use]
pub fn short_trace(trace_id: &str) -> String {
    format!("{}...", trace_id.chars().take(TRACE_SHOWN).collect::<String>())
}

/// The prober, or the time of the next attempt.
#[must_use]
pub fn next_attempt(in_ms: Option<u64>, by: &str) -> Option<String> {
    match (in_ms, by) {
        (None, "") => None,
        (Some(0), "") => Some("the next attempt is due".to_owned()),
        (Some(left), "") => Some(format!("next attempt in {}", units::seconds(left))),
        (_, by) => Some(format!("{by} tries now")),
    }
}

/// The result of an attempt in one or two words.
#[must_use]
pub fn got(class: FailureClass, cause: &str) -> &str {
    if let Some((_, status)) = STATUSES.iter().find(|(words, _)| cause.contains(words)) {
        return status;
    }
    match class {
        FailureClass::RegistryUnavailable => "no answer from the registry",
        FailureClass::Unknown => "an error",
        class => class.as_str(),
    }
}

/// The result of an attempt in a few words: a status, that no registry answered, or the beginning of the message.
#[must_use]
pub fn result_in_words(class: FailureClass, cause: &str) -> String {
    let result = got(class, cause);
    let is_class_only = result == class.as_str() || class == FailureClass::Unknown;
    match cause.split_once(": ").filter(|_| is_class_only) {
        Some((_, message)) => truncate_str(message, MESSAGE_SHOWN, "...").into_owned(),
        None if cause.contains(WEB_PAGE) => format!("{result} from a proxy"),
        None => result.strip_suffix(" from the registry").unwrap_or(result).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reads_as_a_sentence() {
        let refusal = Refusal {
            node: "n3",
            learned_by: "n1",
            learned_at_ms: Some(1_769_860_803_000),
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736",
            class: FailureClass::RegistryUnavailable,
            cause: "ErrImagePull: 10.0.0.1:5503: 503 Service Unavailable for manifest v1",
            next_attempt_ms: Some(3_140),
            next_by: "",
        };
        assert_eq!(refusal.sentence(), "n3 waits: n1 got 503 at 12:00:03Z (trace 4bf92f35...), next attempt in 3.1 s");
        let tried = Refusal { next_attempt_ms: None, next_by: "n2", ..refusal };
        assert_eq!(tried.sentence(), "n3 waits: n1 got 503 at 12:00:03Z (trace 4bf92f35...), n2 tries now");
        let itself = Refusal { learned_by: "", cause: "dial tcp: connection refused", ..refusal };
        assert_eq!(
            itself.sentence(),
            "n3 waits: n3 got no answer from the registry at 12:00:03Z (trace 4bf92f35...), next attempt in 3.1 s"
        );
        let bare = Refusal { node: "n3", learned_by: "n1", class: FailureClass::NotFound, ..Refusal::default() };
        assert_eq!(bare.sentence(), "n3 waits: n1 got not_found");
        assert_eq!(next_attempt(Some(0), "n2").as_deref(), Some("n2 tries now"));
    }
}
