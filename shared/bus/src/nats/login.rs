//! Logins to a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_nats::{Auth, AuthError};
use nkeys::KeyPair;
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::options::NatsOptionsError;

const CREDENTIALS: &str = "NATS credentials file";
const NKEY: &str = "NATS nkey file";
const TOKEN: &str = "NATS token file";

/// A login. It holds secrets, so it can be neither printed nor serialised.
#[derive(PartialEq)]
pub(super) enum Login {
    /// None.
    Nobody,
    Password {
        user: String,
        password: String,
    },
    Token(String),
    /// A file with a token, such as a projected token that is renewed.
    TokenFile(PathBuf),
    /// A file with a user JWT and a seed.
    Credentials(PathBuf),
    /// A file with a seed.
    Nkey(PathBuf),
}

impl Login {
    /// Checks that the files exist and have the right contents.
    pub(super) fn check(&self) -> Result<(), NatsOptionsError> {
        self.prove(b"").map(|_| ())
    }

    /// The answer to the server's login request. Files are read each time, so that a renewed login is used, and on another thread, because
    /// this one may serve the whole agent.
    pub(super) async fn answer(login: Arc<Mutex<Self>>, nonce: Vec<u8>) -> Result<Auth, AuthError> {
        let reading = async move {
            // While a file system hangs, further attempts to connect occupy no further threads.
            let login = login.lock_owned().await;
            tasks::blocking("nats-login", move || login.prove(&nonce).map_err(AuthError::new)).await
        };
        // A task, because the client library demands a future that is `Sync`.
        AbortOnDropHandle::new(tasks::spawn("nats-login", reading)).await.unwrap_or_else(|error| Err(AuthError::new(error)))
    }

    fn prove(&self, nonce: &[u8]) -> Result<Auth, NatsOptionsError> {
        let mut auth = Auth::new();
        match self {
            Self::Nobody => {}
            Self::Password { user, password } => {
                (auth.username, auth.password) = (Some(user.clone()), Some(password.clone()));
            }
            Self::Token(token) => auth.token = Some(token.clone()),
            Self::TokenFile(path) => {
                let text = read(TOKEN, path)?;
                let token = text.trim();
                if token.is_empty() || token.contains(char::is_whitespace) {
                    return Err(unusable(TOKEN, path, "it holds not one token".to_owned()));
                }
                auth.token = Some(token.to_owned());
            }
            Self::Credentials(path) => {
                let text = read(CREDENTIALS, path)?;
                let token = line_beginning(&text, "eyJ").ok_or_else(|| missing(CREDENTIALS, path, "user JWT"))?;
                auth.jwt = Some(token.to_owned());
                auth.signature = Some(sign(&key_pair(CREDENTIALS, path, &text)?, nonce, CREDENTIALS, path)?);
            }
            Self::Nkey(path) => {
                let key_pair = key_pair(NKEY, path, &read(NKEY, path)?)?;
                auth.nkey = Some(key_pair.public_key());
                auth.signature = Some(sign(&key_pair, nonce, NKEY, path)?);
            }
        }
        Ok(auth)
    }
}

fn read(what: &'static str, path: &Path) -> Result<String, NatsOptionsError> {
    std::fs::read_to_string(path).map_err(|error| NatsOptionsError::Unreadable { what, path: path.to_owned(), error })
}

fn key_pair(what: &'static str, path: &Path, text: &str) -> Result<KeyPair, NatsOptionsError> {
    // A user's seed always begins with these letters.
    let seed = line_beginning(text, "SU").ok_or_else(|| missing(what, path, "seed of a user"))?;
    KeyPair::from_seed(seed).map_err(|_| unusable(what, path, "the seed in it is damaged".to_owned()))
}

fn sign(key: &KeyPair, nonce: &[u8], what: &'static str, path: &Path) -> Result<Vec<u8>, NatsOptionsError> {
    key.sign(nonce).map_err(|_| unusable(what, path, "the key in it cannot sign".to_owned()))
}

fn line_beginning<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.lines().map(str::trim).find(|line| line.starts_with(start))
}

fn missing(what: &'static str, path: &Path, part: &str) -> NatsOptionsError {
    unusable(what, path, format!("it holds no {part}"))
}

fn unusable(what: &'static str, path: &Path, why: String) -> NatsOptionsError {
    NatsOptionsError::Unusable { what, path: path.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn calling_thread_goes_on_while_a_login_file_hangs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (send, receive) = mpsc::channel();
        let pipe = path.clone();
        // The pipe is read when it is written.
        let writer = std::thread::spawn(move || {
            let token = if receive.recv_timeout(Duration::from_secs(20)).is_ok() { "in-time" } else { "late" };
            std::fs::write(pipe, token)
        });
        let login = Arc::new(Mutex::new(Login::TokenFile(path)));
        let (auth, _) = tokio::join!(Login::answer(login, Vec::new()), async { send.send(()) });
        assert_eq!(auth.unwrap().token.as_deref(), Some("in-time"), "the thread of the test was held up");
        writer.join().unwrap().unwrap();
    }
}
