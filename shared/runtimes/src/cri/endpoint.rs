//! The runtime's socket: parses its address and connects to it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

/// The longest socket path that the kernel takes, in bytes without the closing zero.
const SOCKET_PATH_MAX_BYTES: usize = 107;
/// An error's text comes in an HTTP/2 header, where it takes up to three times its length. Go's clients allow 16 MiB, so every text that
/// reaches kubelet is read here too.
pub(super) const HEADERS_MAX_BYTES: u32 = 16 * 1024 * 1024;

/// HTTP/2 needs a host name; its value has no meaning.
pub(super) const ORIGIN: &str = "http://localhost";

/// An endpoint that is no address of a unix socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("runtime endpoint {endpoint:?}: {problem}; name its socket as unix:///run/containerd/containerd.sock")]
pub struct EndpointError {
    endpoint: String,
    problem: &'static str,
}

/// The path of the socket in `unix:///path`, `unix:/path` or `/path`.
pub(super) fn socket_path(endpoint: &str) -> Result<PathBuf, EndpointError> {
    let refused = |problem| Err(EndpointError { endpoint: endpoint.to_owned(), problem });
    let path = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:")).unwrap_or(endpoint);
    if path.contains("://") {
        return refused("only unix sockets are supported");
    }
    if !path.starts_with('/') {
        return refused("the path of a socket starts with /");
    }
    if path.len() > SOCKET_PATH_MAX_BYTES {
        return refused("the path of a socket has at most 107 bytes");
    }
    Ok(PathBuf::from(path))
}

/// A channel that connects with its first call, and again after the connection was lost.
pub(super) fn channel(path: &Path) -> Channel {
    let path = path.to_owned();
    let connect = tower::service_fn(move |_: http::Uri| {
        let path = path.clone();
        async move { UnixStream::connect(&path).await.map(TokioIo::new).map_err(|source| DialError { path, source }) }
    });
    Endpoint::from_static(ORIGIN).http2_max_header_list_size(HEADERS_MAX_BYTES).connect_with_connector_lazy(connect)
}

/// The socket cannot be connected to; the text is grpc-go's.
#[derive(Debug)]
pub(super) struct DialError {
    path: PathBuf,
    source: io::Error,
}

impl DialError {
    /// The operating system's error as Go prints it: `no such file or directory`.
    pub(super) fn cause(&self) -> String {
        let text = self.source.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        let mut letters = text.chars();
        letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "connection error: desc = \"transport: Error while dialing: dial unix {}: connect: {}\"",
            self.path.display(),
            self.cause()
        )
    }
}

impl std::error::Error for DialError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed_as_socket_paths() {
        let long = format!("unix:///{}", "x".repeat(107));
        for (endpoint, expected) in [
            ("unix:///run/containerd/containerd.sock", Ok("/run/containerd/containerd.sock")),
            ("unix:/run/x.sock", Ok("/run/x.sock")),
            ("/run/x.sock", Ok("/run/x.sock")),
            ("tcp://127.0.0.1:1", Err("only unix sockets are supported")),
            ("run/x.sock", Err("the path of a socket starts with /")),
            ("", Err("the path of a socket starts with /")),
            (&long, Err("the path of a socket has at most 107 bytes")),
        ] {
            let found = socket_path(endpoint).map_err(|error| error.problem);
            assert_eq!(found, expected.map(PathBuf::from), "{endpoint}");
        }
    }

    #[test]
    fn dial_errors_have_gos_text() {
        for (errno, cause) in [
            (2, "no such file or directory"),
            (13, "permission denied"),
            (111, "connection refused"),
            (11, "resource temporarily unavailable"),
        ] {
            let error = DialError { path: PathBuf::from("/x"), source: io::Error::from_raw_os_error(errno) };
            assert_eq!(
                error.to_string(),
                format!("connection error: desc = \"transport: Error while dialing: dial unix /x: connect: {cause}\"")
            );
        }
    }
}
