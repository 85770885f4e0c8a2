//! The monitoring endpoint of a nats-server.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// How long an answer is waited for: a stopped server does not answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The monitoring port of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monitoring(pub(super) u16);

impl Monitoring {
    /// The answer to this path, for example `/varz`; null if the server does not answer.
    #[must_use]
    pub fn ask(self, path: &str) -> Value {
        get(self.0, path).ok().and_then(|body| serde_json::from_str(&body).ok()).unwrap_or_default()
    }
}

/// The body of an answer over HTTP.
fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}
