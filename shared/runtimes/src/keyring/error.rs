//! Errors about logins. No variant has any content of a file or of a helper's answer.

use std::path::PathBuf;
use std::time::Duration;

/// Why the logins for a registry cannot be determined. Pulling without them would hide the cause, so the pull fails, as the
/// node's own failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// A named file does not exist, or an existing file cannot be read.
    #[error("cannot read the registry logins in {}: {problem}; make it readable or name another file with --authfile", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// The operating system's error.
        problem: String,
    },
    /// A file has the wrong content.
    #[error("cannot use the registry logins in {}: {problem}; correct the file or log in again", .path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong and where, without the content.
        problem: String,
    },
    /// A file names a helper that is no plain program name.
    #[error("credential helper {name:?}, named in {}, is no plain program name; write the part after docker-credential-", .path.display())]
    HelperName {
        /// The name as written.
        name: String,
        /// Which file names it.
        path: PathBuf,
    },
    /// A helper is not installed.
    #[error(
        "credential helper docker-credential-{name}, named in {} for {server}, is not in PATH; install it or take it out of the file",
        .path.display()
    )]
    HelperMissing {
        /// The helper's name.
        name: String,
        /// Which file names it.
        path: PathBuf,
        /// The registry to ask about.
        server: String,
    },
    /// A helper was run and gave no login.
    #[error("credential helper docker-credential-{name} {problem}; to see more, run: printf %s '{server}' | docker-credential-{name} get")]
    HelperFailed {
        /// The helper's name.
        name: String,
        /// How it ended; never its output, which may have a secret.
        problem: String,
        /// The registry it was asked about.
        server: String,
    },
    /// A helper did not answer.
    #[error(
        "credential helper docker-credential-{name} gave no answer in {} s; to see more, run: printf %s '{server}' | docker-credential-{name} get",
        .limit.as_secs()
    )]
    HelperSlow {
        /// The helper's name.
        name: String,
        /// The registry it was asked about.
        server: String,
        /// The time limit.
        limit: Duration,
    },
}
