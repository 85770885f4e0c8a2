//! Fetches one document over HTTPS.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HOST, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The longest fetch. A server waits only seconds for the callout's answer.
const WITHIN: Duration = Duration::from_secs(3);
/// The largest document. It contains a few keys.
const MAX_BYTES: usize = 256 * 1024;
const HTTPS_PORT: u16 = 443;

/// The location of the document.
pub(super) struct Endpoint {
    uri: Uri,
    host: String,
    tls: TlsConnector,
    /// A file with the token that the server requires.
    token_file: Option<PathBuf>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uri.fmt(formatter)
    }
}

impl Endpoint {
    /// Checks the URL and reads the authority.
    ///
    /// # Errors
    /// The URL or the authority cannot be used.
    pub(super) fn new(url: &str, ca: Option<&Path>, token_file: Option<PathBuf>) -> Result<Self> {
        let uri: Uri = url.parse().context("it is no URL")?;
        if uri.scheme_str() != Some("https") {
            bail!("only https is fetched: over plain HTTP an attacker could replace the keys");
        }
        let host = uri.host().context("it names no host")?.trim_matches(['[', ']']).to_owned();
        let config = ClientConfig::builder().with_root_certificates(roots(ca)?).with_no_client_auth();
        Ok(Self { uri, host, tls: TlsConnector::from(Arc::new(config)), token_file })
    }

    /// Fetches the document.
    ///
    /// # Errors
    /// The document did not arrive in time, or the request failed.
    pub(super) async fn fetch(&self) -> Result<Vec<u8>> {
        tokio::time::timeout(WITHIN, self.ask()).await.map_err(|_| anyhow!("no answer within {WITHIN:?}"))?
    }

    async fn ask(&self) -> Result<Vec<u8>> {
        let port = self.uri.port_u16().unwrap_or(HTTPS_PORT);
        let stream =
            TcpStream::connect((self.host.as_str(), port)).await.with_context(|| format!("no connection to {}:{port}", self.host))?;
        let name = ServerName::try_from(self.host.clone()).context("its host is no name of a server")?;
        let stream = self.tls.connect(name, stream).await.context("the TLS handshake failed")?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = self.request()?;
        let exchange = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            if status != StatusCode::OK {
                let advice =
                    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) { ": give --jwks-token-file" } else { "" };
                bail!("it answers {status}{advice}");
            }
            let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
            Ok(body.map_err(|error| anyhow!("the document cannot be read: {error}"))?.to_bytes().to_vec())
        };
        // A server may close the connection together with its answer; the received part is still read then.
        let driven = async {
            let _ = connection.await;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            document = exchange => document,
            document = driven => document,
        }
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>> {
        let path = self.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let authority = self.uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let mut request = Request::get(path)
            .header(HOST, authority)
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .header(USER_AGENT, concat!("fleetpull/", env!("CARGO_PKG_VERSION")));
        if let Some(file) = &self.token_file {
            let token = std::fs::read_to_string(file).with_context(|| format!("the token file {} cannot be read", file.display()))?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        // The error's text could quote a header with the token, so it is left out.
        request.body(Empty::new()).map_err(|_| anyhow!("the request cannot be made: is the token one line of text?"))
    }
}

fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let certificates = match ca {
        Some(path) => {
            let unreadable = || format!("the authority {} cannot be read", path.display());
            let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).with_context(unreadable)?.collect();
            all.with_context(unreadable)?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        bail!("no authority is trusted: give --jwks-ca");
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use support::nats::Authority;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// Answers one request with this text, and returns the request.
    async fn serve(listener: TcpListener, authority: &Authority, answer: String) -> String {
        let (certificate, key) = authority.issue("127.0.0.1");
        let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap());
        let (stream, _) = listener.accept().await.unwrap();
        let Ok(mut stream) = TlsAcceptor::from(Arc::new(config.unwrap())).accept(stream).await else { return String::new() };
        let mut asked = vec![0; 4_096];
        let length = stream.read(&mut asked).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        let _ = stream.shutdown().await;
        String::from_utf8_lossy(&asked[..length]).into_owned()
    }

    async fn fetched(answer: &str, trusted: bool) -> (Result<Vec<u8>>, String) {
        let (authority, other) = (Authority::new("of the cluster"), Authority::new("another"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/openid/v1/jwks", listener.local_addr().unwrap());
        let folder = tempfile::TempDir::new().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "t0ken\n").unwrap();
        let ca = if trusted { authority.certificate() } else { other.certificate() };
        let endpoint = Endpoint::new(&url, Some(&ca), Some(token)).unwrap();
        tokio::join!(endpoint.fetch(), serve(listener, &authority, answer.to_owned()))
    }

    #[tokio::test]
    async fn document_is_fetched_from_a_server_that_the_authority_certified() {
        let (document, asked) = fetched("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", true).await;
        assert_eq!(document.unwrap(), b"{}");
        assert!(asked.starts_with("GET /openid/v1/jwks HTTP/1.1\r\n") && asked.contains("Bearer t0ken\r\n"), "{asked}");
        let (refused, asked) = fetched("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", false).await;
        assert!(
            format!("{:#}", refused.unwrap_err()).contains("the TLS handshake failed") && asked.is_empty(),
            "the token went to a stranger"
        );
    }

    #[tokio::test]
    async fn failed_fetch_names_its_reason() {
        let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", MAX_BYTES + 1, "x".repeat(MAX_BYTES + 1));
        for (answer, expected) in [
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "403 Forbidden: give --jwks-token-file"),
            ("HTTP/1.1 302 Found\r\nLocation: https://other.example/\r\nContent-Length: 0\r\n\r\n", "302"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "cannot be read"),
            (large.as_str(), "cannot be read"),
            ("nonsense\r\n\r\n", ""),
        ] {
            let (document, _) = fetched(answer, true).await;
            let error = format!("{:#}", document.unwrap_err());
            assert!(error.contains(expected) && !error.contains("t0ken"), "{error}");
        }
    }

    #[test]
    fn only_https_with_an_authority_is_fetched() {
        let error_of = |url: &str, ca: Option<&Path>| format!("{:#}", Endpoint::new(url, ca, None).err().unwrap());
        assert!(error_of("http://a/b", None).contains("only https"));
        assert!(error_of("https://", None).contains("URL") || error_of("https://", None).contains("host"));
        assert!(error_of("https://a/b", Some(Path::new("nowhere.pem"))).contains("nowhere.pem"));
    }
}
