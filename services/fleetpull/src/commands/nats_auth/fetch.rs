//! One document over HTTPS.

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

/// A server waits for the callout's answer only for seconds.
const WITHIN: Duration = Duration::from_secs(3);
/// A document has a few keys.
const MAX_BYTES: usize = 256 * 1024;
const HTTPS_PORT: u16 = 443;

/// Where the document is.
pub(super) struct Endpoint {
    uri: Uri,
    host: String,
    tls: TlsConnector,
    /// A file with the token that the server wants.
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
    /// One of them cannot be used.
    pub(super) fn new(url: &str, ca: Option<&Path>, token_file: Option<PathBuf>) -> Result<Self> {
        let uri: Uri = url.parse().context("it is no URL")?;
        if uri.scheme_str() != Some("https") {
            bail!("only https is fetched: who could change the keys could be anybody");
        }
        let host = uri.host().context("it names no host")?.trim_matches(['[', ']']).to_owned();
        let config = ClientConfig::builder().with_root_certificates(roots(ca)?).with_no_client_auth();
        Ok(Self { uri, host, tls: TlsConnector::from(Arc::new(config)), token_file })
    }

    /// The document.
    ///
    /// # Errors
    /// It was not had within seconds.
    pub(super) async fn fetch(&self) -> Result<Vec<u8>> {
        tokio::time::timeout(WITHIN, self.ask()).await.map_err(|_| anyhow!("no answer within {WITHIN:?}"))?
    }

    async fn ask(&self) -> Result<Vec<u8>> {
        let port = self.uri.port_u16().unwrap_or(HTTPS_PORT);
        let stream = TcpStream::connect((self.host.as_str(), port)).await.context("no connection")?;
        let name = ServerName::try_from(self.host.clone()).context("its host is no name of a server")?;
        let stream = self.tls.connect(name, stream).await.context("no TLS")?;
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
        tokio::select! {
            biased;
            document = exchange => document,
            ended = connection => Err(ended.err().map_or_else(|| anyhow!("the connection ended"), Into::into)),
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
        // The reason would quote a header, which holds the token.
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
