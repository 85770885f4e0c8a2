//! Exit statuses. They are an interface for scripts.

use std::process::ExitCode;

use contract::messages::pull_coordinator::OutcomeKind;

/// The exit status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: all images are present.
    Success,
    /// 1: something failed.
    Failure,
    /// 2: wrong usage.
    Usage,
    /// 3: some images are present and some are not.
    Partial,
    /// 4: no image is present, and all are in back-off.
    Backoff,
    /// 5: the time was over for at least one image.
    TimedOut,
}

/// An error of the caller: the command line is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

impl Exit {
    /// The exit status for an error that ended the program.
    #[must_use]
    pub fn of_error(error: &anyhow::Error) -> Self {
        let usage = error.is::<UsageError>() || error.is::<settings::SettingsError>();
        if usage { Self::Usage } else { Self::Failure }
    }

    /// The exit status of a pull, from the outcome of each image on each node.
    #[must_use]
    pub fn of_outcomes(outcomes: &[(OutcomeKind, bool)]) -> Self {
        let there = outcomes.iter().filter(|(kind, _)| matches!(kind, OutcomeKind::Pulled | OutcomeKind::Present)).count();
        if outcomes.iter().any(|(_, timed_out)| *timed_out) {
            Self::TimedOut
        } else if outcomes.is_empty() {
            Self::Failure
        } else if there == outcomes.len() {
            Self::Success
        } else if there > 0 {
            Self::Partial
        } else if outcomes.iter().all(|(kind, _)| *kind == OutcomeKind::Backoff) {
            Self::Backoff
        } else {
            Self::Failure
        }
    }

    /// The status as a number.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Partial => 3,
            Self::Backoff => 4,
            Self::TimedOut => 5,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_follows_from_the_outcomes() {
        use OutcomeKind::{Backoff, Failed, Present, Pulled};
        let table: [(&[(OutcomeKind, bool)], u8); 10] = [
            (&[], 1),
            (&[(Pulled, false), (Present, false)], 0),
            (&[(Pulled, false), (Failed, false)], 3),
            (&[(Present, false), (Backoff, false)], 3),
            (&[(Backoff, false), (Backoff, false)], 4),
            (&[(Backoff, false), (Failed, false)], 1),
            (&[(Failed, false)], 1),
            (&[(Failed, true)], 5),
            (&[(Pulled, false), (Failed, true)], 5),
            (&[(Backoff, false), (Failed, true)], 5),
        ];
        for (outcomes, code) in table {
            assert_eq!(Exit::of_outcomes(outcomes).code(), code, "{outcomes:?}");
        }
    }
}
