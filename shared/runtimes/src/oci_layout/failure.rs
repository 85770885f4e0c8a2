//! Failures of a pull's steps, and the failure of the pull that follows from them.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use contract::messages::throttler::RegistryLimit;
use contract::{FailureClass, Stage};

use crate::failure::scrub;
use crate::port::PullFailure;

/// The longest text of a failure, in bytes: it gets into events and messages.
const TEXT_MAX_BYTES: usize = 1_400;
/// The longest text of one endpoint among several, in bytes.
const PART_MAX_BYTES: usize = 420;

/// Whether another endpoint may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Another endpoint may succeed.
    Endpoint,
    /// No endpoint can: the cause is this node or the image.
    Pull,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepFailure {
    pub(super) class: FailureClass,
    pub(super) reach: Reach,
    /// What happened, without the endpoint's name and the advice.
    pub(super) what: String,
    /// What to do about it.
    pub(super) advice: &'static str,
    pub(super) retry_after: Option<Duration>,
    /// `host:port`, if the failure concerns a host.
    pub(super) endpoint: Option<String>,
    /// Whether the connection failed: received bytes are still good, and the endpoint should not be asked again soon.
    pub(super) transport: bool,
    /// Whether the store's disk is full.
    pub(super) full_disk: bool,
    /// Whether this is a registry's own answer.
    pub(super) authoritative: bool,
    /// The stage of the registry that failed.
    pub(super) stage: Stage,
    /// The image has no manifest for the platform.
    pub(super) no_such_platform: bool,
    /// The limits that the registry stated.
    pub(super) limits: Vec<RegistryLimit>,
}

impl StepFailure {
    /// A failure at an endpoint.
    pub(super) fn at(endpoint: &str, class: FailureClass, what: impl Into<String>) -> Self {
        Self {
            class,
            reach: Reach::Endpoint,
            what: what.into(),
            advice: advice(class),
            retry_after: None,
            endpoint: Some(endpoint.to_owned()),
            transport: false,
            full_disk: false,
            authoritative: false,
            stage: Stage::default(),
            no_such_platform: false,
            limits: Vec::new(),
        }
    }

    /// A connection that failed.
    pub(super) fn connection(endpoint: &str, what: impl Into<String>) -> Self {
        Self { transport: true, ..Self::at(endpoint, FailureClass::RegistryUnavailable, what) }
    }

    /// A failure of this node, independent of endpoints.
    pub(super) fn here(what: impl Into<String>, advice: &'static str) -> Self {
        Self { reach: Reach::Pull, endpoint: None, advice, ..Self::at("", FailureClass::NodeLocal, what) }
    }

    /// The store could not be read or written.
    pub(super) fn store(doing: &str, path: &Path, error: &io::Error) -> Self {
        let advice = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space, or name another folder with --store",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "make the store writable for this user, or name another folder with --store"
            }
            io::ErrorKind::TimedOut => "end that process, or name another folder with --store",
            _ => "check the store's file system, or name another folder with --store",
        };
        let full_disk = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        Self { full_disk, ..Self::here(format!("cannot {doing} {}: {error}", path.display()), advice) }
    }

    /// The failure with another class.
    pub(super) fn of_class(self, class: FailureClass) -> Self {
        Self { class, ..self }
    }

    /// The failure with another stage.
    pub(super) fn at_stage(self, stage: Stage) -> Self {
        Self { stage, ..self }
    }

    /// The failure with other advice.
    pub(super) fn advising(self, advice: &'static str) -> Self {
        Self { advice, ..self }
    }
}

impl fmt::Display for StepFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(endpoint) = &self.endpoint {
            write!(formatter, "{endpoint}: ")?;
        }
        formatter.write_str(&self.what)
    }
}

/// The advice for a class, if there is no better one.
fn advice(class: FailureClass) -> &'static str {
    match class {
        FailureClass::RateLimited => "wait, or log in to be allowed more",
        FailureClass::RegistryUnavailable => "check that the registry is up and can be reached from this node",
        FailureClass::NotFound => "check the image's name and tag",
        FailureClass::Denied => "check the name, and log in with an account that may pull it",
        FailureClass::ContentInvalid => "push the image again, or ask who runs the registry or mirror",
        _ => "check the network and proxies between this node and the registry",
    }
}

/// The failure of a pull by its endpoints' failures; the last one, of the registry itself, decides.
pub(super) fn of_pull(mut failures: Vec<StepFailure>, auth: String) -> PullFailure {
    let Some(last) = failures.pop() else {
        return PullFailure {
            text: "no endpoint may be asked for this image; check capabilities in hosts.toml".to_owned(),
            class: FailureClass::NodeLocal,
            auth,
            ..PullFailure::default()
        };
    };
    let mut text = String::new();
    if last.class == FailureClass::RegistryUnavailable {
        // Kubelet recognises this reason by the prefix.
        text.push_str("RegistryUnavailable: ");
    }
    text.push_str(bounded(&last.to_string(), PART_MAX_BYTES * 2));
    if !last.advice.is_empty() {
        text.push_str("; ");
        text.push_str(last.advice);
    }
    if !failures.is_empty() {
        let before: Vec<String> = failures.iter().map(|failure| bounded(&failure.to_string(), PART_MAX_BYTES).to_owned()).collect();
        text.push_str(" (tried before: ");
        text.push_str(&before.join("; "));
        text.push(')');
    }
    let text = bounded(&text, TEXT_MAX_BYTES).to_owned();
    PullFailure {
        text,
        class: last.class,
        retry_after: last.retry_after,
        endpoint: last.endpoint,
        auth,
        authoritative: last.authoritative,
        stage: last.stage,
        no_such_platform: last.no_such_platform,
        limits: last.limits,
    }
}

/// At most the first `limit` bytes of a text, cut between characters.
pub(super) fn bounded(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// A foreign text made safe to quote: one line, no mark-up, no logins and queries in URLs, at most `limit` bytes.
pub(super) fn quotable(text: &str, limit: usize) -> String {
    if text.contains('<') && text.contains('>') {
        return "(mark-up left out)".to_owned();
    }
    let scrubbed = scrub(text);
    let line = scrubbed.split_whitespace().collect::<Vec<_>>().join(" ").replace(char::is_control, "");
    bounded(&line, limit).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_endpoint_decides_and_all_are_named() {
        let mirror = StepFailure::connection("mirror.example:443", "connection refused");
        let origin = StepFailure::at("registry.example:443", FailureClass::NotFound, "404 Not Found (MANIFEST_UNKNOWN: manifest unknown)");
        let failure = of_pull(vec![mirror.clone(), origin.clone()], "anonymous".to_owned());
        assert_eq!(failure.class, FailureClass::NotFound);
        assert_eq!(failure.endpoint.as_deref(), Some("registry.example:443"));
        assert_eq!(
            failure.text,
            "registry.example:443: 404 Not Found (MANIFEST_UNKNOWN: manifest unknown); check the image's name and tag \
             (tried before: mirror.example:443: connection refused)"
        );
        let failure = of_pull(vec![origin, mirror], String::new());
        assert!(failure.text.starts_with("RegistryUnavailable: mirror.example:443: connection refused; "), "{}", failure.text);
    }

    #[test]
    fn failure_text_is_bounded_for_any_endpoints() {
        let long = StepFailure::at("a.example:443", FailureClass::Unknown, "é".repeat(5_000));
        let failure = of_pull(vec![long; 20], String::new());
        assert!(failure.text.len() <= TEXT_MAX_BYTES, "{}", failure.text.len());
    }

    #[test]
    fn quoted_texts_lose_logins_queries_and_markup() {
        for (text, expected) in [
            ("see https://a.example/x?token=secret now", "see https://a.example/x now"),
            ("see https://user:word@a.example/x@1?y", "see https://a.example/x@1"),
            ("two\n lines\u{7}", "two lines"),
            ("<html><body>no</body></html>", "(mark-up left out)"),
            ("a < b", "a < b"),
        ] {
            assert_eq!(quotable(text, 100), expected);
        }
        assert_eq!(quotable("ééé", 3), "é");
    }
}
