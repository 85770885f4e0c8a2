//! Combines the failures of one pull with several logins, as kubelet does.

use contract::FailureClass;
use tonic::Code;

use super::go_status::bounded;
use crate::failure::{self, Reading};
use crate::port::PullFailure;

/// The failure with each login, in the order of the logins.
#[derive(Default)]
pub(super) struct PullFailures {
    sources: Vec<String>,
    /// The distinct texts.
    texts: Vec<String>,
    readings: Vec<Reading>,
}

impl PullFailures {
    /// `code` is the call's; `None` if the call itself went well.
    pub(super) fn add(&mut self, source: &str, text: String, code: Option<Code>) {
        self.sources.push(source.to_owned());
        self.readings.push(failure::read_text(&text, code));
        if !self.texts.contains(&text) {
            self.texts.push(text);
        }
    }

    /// The failure of the pull. Several texts are joined with commas in brackets.
    pub(super) fn into_failure(self) -> PullFailure {
        let text = match self.texts.as_slice() {
            [text] => text.clone(),
            texts => bounded(&format!("[{}]", texts.join(", "))).to_owned(),
        };
        let Reading { class, authoritative, no_such_platform } = self.reading();
        PullFailure {
            class,
            authoritative,
            no_such_platform,
            stage: failure::stage_in(&text),
            endpoint: failure::endpoint_in(&text),
            text: failure::scrub(&text).into_owned(),
            auth: self.sources.join(", "),
            ..PullFailure::default()
        }
    }

    /// The reading that counts: that of a login which was accepted, else the last one.
    fn reading(&self) -> Reading {
        let let_in = self.readings.iter().rev().find(|reading| reading.class != FailureClass::Denied);
        let_in.or(self.readings.last()).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(texts: &[&str]) -> PullFailure {
        let mut failures = PullFailures::default();
        for (at, text) in texts.iter().enumerate() {
            failures.add(&format!("login {at}"), (*text).to_owned(), Some(Code::Unknown));
        }
        failures.into_failure()
    }

    #[test]
    fn texts_are_joined_as_in_kubelet() {
        for (texts, expected) in [
            (&["a"][..], "a"),
            (&["a", "a"], "a"),
            (&["a", "b", "a"], "[a, b]"),
            (&["RegistryUnavailable: x", "b"], "[RegistryUnavailable: x, b]"),
            (&["", ""], ""),
        ] {
            assert_eq!(joined(texts).text, expected);
        }
        assert_eq!(joined(&["a", "b"]).auth, "login 0, login 1");
    }
}
