//! Asks a `docker-credential-<name>` program for a login.
//!
//! The helper reads the server on stdin, without a line end as from docker, and answers `{"Username": ..., "Secret": ...}`. The user
//! `<token>` marks the secret as an identity token. No output of a helper ever gets into an error.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::credential::Credential;
use super::error::KeyringError;
use super::options::Environment;

/// How long a helper may take. It may ask a cloud for a token, and a pull waits for it.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The largest answer that is read; the largest known tokens have about 4 KiB.
const ANSWER_MAX_BYTES: u64 = 64 * 1024;
/// Every helper's output if it has no login for the server.
const NONE_KEPT: &str = "credentials not found in native keychain";
/// The user that marks an identity token.
const TOKEN_USER: &str = "<token>";

/// A question to a helper, with the file that names the helper.
pub(super) struct Question<'a> {
    pub(super) name: &'a str,
    pub(super) named_in: &'a Path,
    pub(super) server: &'a str,
    pub(super) environment: &'a Environment,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "Username", default)]
    username: String,
    #[serde(rename = "Secret", default)]
    secret: String,
}

impl Question<'_> {
    /// The login, or `None` if the helper has none for this server.
    ///
    /// # Errors
    /// The helper is missing, fails, is too slow, or gives another answer.
    pub(super) async fn ask(&self) -> Result<Option<Credential>, KeyringError> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if self.name.is_empty() || !self.name.chars().all(plain) {
            return Err(KeyringError::HelperName { name: self.name.to_owned(), path: self.named_in.to_owned() });
        }
        let program = self.program().ok_or_else(|| self.missing())?;
        let mut child = self.start(&program)?;
        let output = tokio::time::timeout(ANSWER_LIMIT, exchange(&mut child, self.server)).await.map_err(|_| KeyringError::HelperSlow {
            name: self.name.to_owned(),
            server: self.server.to_owned(),
            limit: ANSWER_LIMIT,
        })?;
        let (answer, status) = output.map_err(|error| self.failed(format!("cannot be used: {error}")))?;
        if answer.len() as u64 > ANSWER_MAX_BYTES {
            return Err(self.failed(format!("answered more than {ANSWER_MAX_BYTES} bytes")));
        }
        if !status.success() {
            let output = String::from_utf8_lossy(&answer);
            return if output.trim() == NONE_KEPT { Ok(None) } else { Err(self.failed(format!("failed with {status}"))) };
        }
        let answer: Answer =
            serde_json::from_slice(&answer).map_err(|_| self.failed("answered something that is no JSON login".to_owned()))?;
        Ok(self.credential(answer))
    }

    fn credential(&self, answer: Answer) -> Option<Credential> {
        if answer.username.is_empty() && answer.secret.is_empty() {
            return None;
        }
        let kind = if answer.username == TOKEN_USER { "identity token" } else { "login" };
        let source = format!("{kind} for {} from helper {}, named in {}", self.server, self.name, self.named_in.display());
        let (server_address, helper) = (self.server.to_owned(), Some(self.name.to_owned()));
        let credential = Credential { server_address, source, helper, ..Credential::default() };
        Some(if answer.username == TOKEN_USER {
            Credential { identity_token: answer.secret, ..credential }
        } else {
            Credential { username: answer.username, password: answer.secret, ..credential }
        })
    }

    /// The helper's program, found in the PATH of the given environment, which need not be this process's.
    fn program(&self) -> Option<PathBuf> {
        let file = format!("docker-credential-{}", self.name);
        let runnable = |path: &PathBuf| path.metadata().is_ok_and(|entry| entry.is_file() && entry.permissions().mode() & 0o111 != 0);
        let path = self.environment.get("PATH").unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
        std::env::split_paths(path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(&file)).find(runnable)
    }

    fn start(&self, program: &Path) -> Result<Child, KeyringError> {
        Command::new(program)
            .arg("get")
            .env_clear()
            .envs(self.environment.variables())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its stderr may have secrets, and must not mix with our own log.
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| self.failed(format!("cannot be started: {error}")))
    }

    fn missing(&self) -> KeyringError {
        KeyringError::HelperMissing { name: self.name.to_owned(), path: self.named_in.to_owned(), server: self.server.to_owned() }
    }

    fn failed(&self, problem: String) -> KeyringError {
        KeyringError::HelperFailed { name: self.name.to_owned(), problem, server: self.server.to_owned() }
    }
}

/// Sends the server, reads the answer (at most one byte more than allowed) and waits for the end.
async fn exchange(child: &mut Child, server: &str) -> std::io::Result<(Vec<u8>, std::process::ExitStatus)> {
    if let Some(mut stdin) = child.stdin.take() {
        // Ignored: a helper with a fixed answer may not read its input.
        let _ = stdin.write_all(server.as_bytes()).await;
    }
    let mut answer = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(ANSWER_MAX_BYTES + 1).read_to_end(&mut answer).await?;
    }
    if answer.len() as u64 > ANSWER_MAX_BYTES {
        child.start_kill()?;
    }
    Ok((answer, child.wait().await?))
}
