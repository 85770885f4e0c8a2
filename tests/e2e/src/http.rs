//! A minimal HTTP client: one request for each connection.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A limit that no answer reaches on a machine under load.
const LIMIT: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    /// Its status.
    pub status: u16,
    /// Its head, unchanged.
    pub head: String,
    /// Its body.
    pub body: String,
}

/// Requests a path with GET.
///
/// # Panics
/// If there is no answer.
#[must_use]
pub fn http_get(address: SocketAddr, path: &str, accept: &str) -> HttpAnswer {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    http_send(address, head.as_bytes()).unwrap_or_else(|| panic!("{address} does not answer {path}"))
}

/// Sends these bytes and reads until the connection ends; none if the answer is not HTTP.
///
/// # Panics
/// If no server listens.
#[must_use]
pub fn http_send(address: SocketAddr, request: &[u8]) -> Option<HttpAnswer> {
    let mut stream = TcpStream::connect(address).expect("a server listens there");
    stream.set_read_timeout(Some(LIMIT)).expect("a time-out can be set");
    // A server may end the connection before it has read all of a malformed request.
    let _ = stream.write_all(request);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some(HttpAnswer { status, head: head.to_owned(), body: body.to_owned() })
}
