//! Why a pull waits, in one sentence: `n3 waits: n1 got 503 at 12:00:03Z (trace 4bf92f35...), next attempt in 3s`, and during that
//! attempt `next attempt now by n2` instead.

use console::truncate_str;
use contract::FailureClass;
use image::with_short_digests;

use super::units::{self, SOON_MS};

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
/// Results of attempts without a status: a part of a runtime's text, and the result. A name comes first, because the name server's silence
/// is not the registry's. Two parts begin with their second letter, because runtimes disagree about the case of the first.
const WITHOUT_STATUS: [(&str, &str); 19] = [
    ("lookup ", "name not resolved"),
    ("no such host", "name not resolved"),
    ("name resolution", "name not resolved"),
    ("connection refused", "connection refused"),
    ("o route to host", "no route to host"),
    ("etwork is unreachable", "network unreachable"),
    ("connection reset", "connection closed"),
    ("connection broke", "connection closed"),
    ("connection closed", "connection closed"),
    (": EOF", "connection closed"),
    ("unexpected EOF", "connection closed"),
    ("no answer", "no answer"),
    ("no blob", "no answer"),
    ("no connection within", "no answer"),
    ("no data for", "no answer"),
    ("i/o timeout", "no answer"),
    ("handshake timeout", "no answer"),
    ("deadline exceeded", "no answer"),
    ("Timeout exceeded", "no answer"),
];
/// Texts of runtimes if the proxy failed instead of the registry.
const PROXIES: [&str; 2] = ["this proxy", "proxyconnect"];
/// The end of kubelet's words before the text of a runtime that could not reach a registry.
const UNAVAILABLE: &str = "because the registry is unavailable: ";
/// What ends the main part of the embedded runtime's text: its advice, or the failures of mirrors.
const ENDS: [&str; 2] = ["; ", " (tried before: "];
/// Hex digits of a trace id that are shown.
const TRACE_SHOWN: usize = 8;
/// Columns of a message that are shown. A table that needs more room shortens it further.
const MESSAGE_SHOWN: usize = 100;
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
        if let Some(next) = next_attempt(self.next_attempt_ms, Some(self.next_by).filter(|by| !by.is_empty())) {
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

/// The prober, or the time of the next attempt. None if neither is known.
#[must_use]
pub fn next_attempt(left_ms: Option<u64>, prober: Option<&str>) -> Option<String> {
    match (left_ms, prober) {
        (_, Some(prober)) => Some(format!("next attempt now by {prober}")),
        (Some(..SOON_MS), None) => Some("the next attempt is due".to_owned()),
        (Some(left_ms), None) => Some(format!("next attempt in {}", units::age(left_ms))),
        (None, None) => None,
    }
}

/// The result of an attempt in at most four words.
#[must_use]
pub fn got(class: FailureClass, cause: &str) -> &str {
    let cause = main_part(cause);
    let found = |(words, _): &&(&str, &'static str)| cause.contains(words);
    let without_status = || WITHOUT_STATUS.iter().find(found).filter(|_| class == FailureClass::RegistryUnavailable);
    match (STATUSES.iter().find(found).or_else(without_status), class) {
        (Some((_, result)), _) => result,
        (None, FailureClass::RegistryUnavailable | FailureClass::Unknown) => "an error",
        (None, class) => class.as_str(),
    }
}

/// The result of an attempt in a few words: a status, how the connection failed, or else the message.
#[must_use]
pub fn result_in_words(class: FailureClass, cause: &str) -> String {
    let result = got(class, cause);
    let main = main_part(cause);
    match message(main) {
        message if (result == "an error" || result == class.as_str()) && !message.is_empty() => {
            truncate_str(&with_short_digests(message), MESSAGE_SHOWN, "...").into_owned()
        }
        _ if cause.contains(WEB_PAGE) => format!("{result} from a proxy"),
        _ if PROXIES.iter().any(|words| main.contains(words)) => format!("proxy: {result}"),
        _ => result.to_owned(),
    }
}

/// The text without advice and without the failures of mirrors.
fn main_part(cause: &str) -> &str {
    ENDS.iter().fold(cause, |part, end| part.split_once(end).map_or(part, |(main, _)| main))
}

/// The text without the names before it: those of the reason and the endpoint, and the links of a runtime, which end with a quoted name.
fn message(main: &str) -> &str {
    let text = main.rsplit_once("\": ").map_or(main, |(_, text)| text);
    let mut text = text.split_once(UNAVAILABLE).map_or(text, |(_, text)| text);
    while let Some((_, rest)) = text.split_once(": ").filter(|(name, _)| !name.contains(' ')) {
        text = rest;
    }
    text
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
        assert_eq!(refusal.sentence(), "n3 waits: n1 got 503 at 12:00:03Z (trace 4bf92f35...), next attempt in 3s");
        let tried = Refusal { next_attempt_ms: None, next_by: "n2", ..refusal };
        assert_eq!(tried.sentence(), "n3 waits: n1 got 503 at 12:00:03Z (trace 4bf92f35...), next attempt now by n2");
        let itself = Refusal { learned_by: "", cause: "dial tcp: connection refused", ..refusal };
        assert_eq!(itself.sentence(), "n3 waits: n3 got connection refused at 12:00:03Z (trace 4bf92f35...), next attempt in 3s");
        let bare = Refusal { node: "n3", learned_by: "n1", class: FailureClass::NotFound, ..Refusal::default() };
        assert_eq!(bare.sentence(), "n3 waits: n1 got not_found");
        for (left_ms, prober, expected) in [
            (Some(0), Some("n2"), Some("next attempt now by n2")),
            (Some(999), None, Some("the next attempt is due")),
            (Some(21_598_200), None, Some("next attempt in 5h59m")),
            (None, None, None),
        ] {
            assert_eq!(next_attempt(left_ms, prober).as_deref(), expected, "{left_ms:?} {prober:?}");
        }
    }

    #[test]
    fn only_a_registry_that_is_silent_gave_no_answer() {
        let embedded = "RegistryUnavailable: image pull failed for r.example/a:1 because the registry is unavailable: r.example: ";
        let go = "ErrImagePull: failed to pull and unpack image \"r.example/a:1\": failed to do request: Head \"https://r.example/v2/\": ";
        for (before, text, result) in [
            (embedded, "no answer within 15s; check that the registry is up", "no answer"),
            (embedded, "no connection within 5s; check that the registry is up", "no answer"),
            (embedded, "connection refused; check (tried before: m.example: no answer within 15s)", "connection refused"),
            (embedded, "connection reset before an answer; check", "connection closed"),
            (embedded, "connection reset before an answer over plain HTTP; check", "connection closed"),
            (embedded, "cannot connect: failed to lookup address information: Name or service not known; check", "name not resolved"),
            (embedded, "this proxy for r.example cannot be reached: connection refused; check the proxy", "proxy: connection refused"),
            (embedded, "503 Slow Down; check that the registry is up", "503 Slow Down"),
            (embedded, "503 Service Unavailable for manifest 1, Retry-After 404s; check that the registry is up", "503"),
            (go, "dial tcp: lookup r.example on 10.0.0.53:53: read udp 10.0.0.9:404->10.0.0.53:53: i/o timeout", "name not resolved"),
            (go, "dial tcp 192.0.2.1:443: connect: connection refused", "connection refused"),
            (go, "dial tcp 192.0.2.1:443: connect: no route to host", "no route to host"),
            (go, "dial tcp 192.0.2.1:443: i/o timeout", "no answer"),
            (go, "net/http: TLS handshake timeout", "no answer"),
            (go, "context deadline exceeded", "no answer"),
            (go, "EOF", "connection closed"),
            ("", "no answer within 15s: docker.io has not sent the manifest", "no answer"),
        ] {
            assert_eq!(result_in_words(FailureClass::RegistryUnavailable, &format!("{before}{text}")), result, "{before}{text}");
        }
    }

    #[test]
    fn message_is_shown_whole_and_without_the_names_before_it() {
        let signed = "the certificate is signed by an unknown authority";
        for text in [
            format!("ErrImagePull: 192.0.2.2:15502: {signed}; add its CA to the system's (tried before: m.example: 404 Not Found)"),
            format!("Back-off pulling image \"192.0.2.2:15502/a:1\": ErrImagePull: 192.0.2.2:15502: {signed}; add its CA"),
        ] {
            assert_eq!(result_in_words(FailureClass::NodeLocal, &text), signed);
        }
        let go = "ErrImagePull: failed to pull and unpack image \"r.example/a:1\": failed to do request: Head \"https://r.example/v2/\": x509: no";
        assert_eq!(result_in_words(FailureClass::NodeLocal, go), "no");
        assert_eq!(result_in_words(FailureClass::NodeLocal, ""), "node_local");
        let digest = "c737df153fc5".to_owned() + &"0123456789abc".repeat(4);
        let content = format!("ErrImagePull: r.example:5000: the content of blob sha256:{digest} has another digest; push the image again");
        assert_eq!(result_in_words(FailureClass::ContentInvalid, &content), "the content of blob sha256:c737df153fc5 has another digest");
        assert_eq!(result_in_words(FailureClass::Unknown, &"x".repeat(2_000)).len(), MESSAGE_SHOWN);
    }
}
