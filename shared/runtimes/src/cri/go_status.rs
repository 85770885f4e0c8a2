//! A failed call with the text of kubelet's client: Go's names of the codes, and Go's texts for errors that no server sent.

use std::error::Error;

use tonic::{Code, Status};

use super::endpoint::DialError;

/// The longest text of a runtime that is kept, in bytes: an event must fit into a message, and real texts are shorter.
const TEXT_MAX_BYTES: usize = 64 * 1024;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallFailure {
    pub(super) code: Code,
    /// The runtime's message; if it did not answer, the message of Go's client.
    pub(super) message: String,
    /// Why the socket cannot be reached, if that is the cause.
    pub(super) unreachable: Option<String>,
}

impl CallFailure {
    pub(super) fn of(status: &Status) -> Self {
        if let Some(dial) = dial_error(status) {
            return Self { code: Code::Unavailable, message: dial.to_string(), unreachable: Some(dial.cause()) };
        }
        // A status with a source was made by this client. In use only a lost connection occurs.
        if status.source().is_some()
            && !status.message().starts_with("h2 protocol error: stream error")
            && status.code() != Code::OutOfRange
        {
            return Self { code: Code::Unavailable, message: "error reading from server: EOF".to_owned(), unreachable: None };
        }
        Self { code: status.code(), message: bounded(status.message()).to_owned(), unreachable: None }
    }

    /// No answer within the time for one.
    pub(super) fn too_slow() -> Self {
        Self { code: Code::DeadlineExceeded, message: "context deadline exceeded".to_owned(), unreachable: None }
    }

    /// `rpc error: code = X desc = ...`.
    pub(super) fn text(&self) -> String {
        format!("rpc error: code = {} desc = {}", go_name(self.code), self.message)
    }

    /// The text of a failed pull. As kubelet does, it has only the message if the code is Unknown, else also the code.
    pub(super) fn pull_text(&self) -> String {
        if self.code == Code::Unknown { self.message.clone() } else { self.text() }
    }
}

fn dial_error(status: &Status) -> Option<&DialError> {
    let mut cause = status.source();
    while let Some(error) = cause {
        if let Some(dial) = error.downcast_ref::<DialError>() {
            return Some(dial);
        }
        cause = error.source();
    }
    None
}

/// The first `TEXT_MAX_BYTES` of a text.
pub(super) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX_BYTES)]
}

fn go_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_text_has_the_code_unless_it_is_unknown() {
        let failure = |code| CallFailure::of(&Status::new(code, "it \"broke\"\n100%"));
        assert_eq!(failure(Code::Unknown).pull_text(), "it \"broke\"\n100%");
        assert_eq!(failure(Code::Unknown).text(), "rpc error: code = Unknown desc = it \"broke\"\n100%");
        assert_eq!(failure(Code::Cancelled).pull_text(), "rpc error: code = Canceled desc = it \"broke\"\n100%");
        assert_eq!(CallFailure::too_slow().text(), "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
    }

    #[test]
    fn texts_are_kept_up_to_64_kib_and_cut_between_characters() {
        let kept = |text: String| CallFailure::of(&Status::new(Code::Unknown, text)).message.len();
        assert_eq!(kept("x".repeat(65_536)), 65_536);
        assert_eq!(kept("x".repeat(65_537)), 65_536);
        assert_eq!(kept(format!("x{}", "é".repeat(40_000))), 65_535);
    }
}
