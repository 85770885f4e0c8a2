//! The registry: starts, is filled, and reports its requests.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use clock::Clock;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::answer::{Shared, held, serve};
use crate::auth::{Auth, Tokens};
use crate::catalogue::{AddedImage, BlobInfo, Catalogue, PreparedImage};
use crate::counters::{Counters, Counts, LoggedRequest};
use crate::faults::Faults;
use crate::made_image::MadeImage;
use crate::tls::Tls;

/// The options of a registry.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// TLS; none: plain HTTP.
    pub tls: Option<Tls>,
    /// Which clients may pull.
    pub auth: Auth,
    /// Port on the loopback address; 0 for a free one.
    pub port: u16,
}

/// A running registry. Dropping it closes all connections.
pub struct MemoryRegistry {
    shared: Arc<Shared>,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl MemoryRegistry {
    /// Starts a registry on the loopback address. It serves on the calling runtime.
    ///
    /// # Errors
    /// The port is not available, or the certificate cannot be used.
    pub async fn start(options: Options) -> io::Result<Self> {
        let acceptor = options.tls.as_ref().map(Tls::acceptor).transpose()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
        let address = listener.local_addr()?;
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            own_url: format!("{scheme}://{address}"),
            host: address.to_string(),
            auth: options.auth,
            clock: Clock::host(),
            faults: Faults::default(),
            catalogue: Mutex::new(Catalogue::default()),
            counters: Arc::new(Mutex::new(Counters::default())),
            tokens: Mutex::new(Tokens::default()),
        });
        let serving = tasks::spawn("memory-registry", accept(listener, acceptor, Arc::clone(&shared)));
        Ok(Self { shared, address, serving })
    }

    /// `127.0.0.1:port`, the registry part of its images.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.shared.host
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// `http://127.0.0.1:port` or `https://...`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.shared.own_url
    }

    /// Makes an image and adds it under a tag. Hashes all layers, which takes about 1 s per GB in a release build.
    pub fn add_image(&self, name: &str, tag: &str, image: &MadeImage) -> AddedImage {
        let prepared = PreparedImage::of(image);
        held(&self.shared.catalogue).put_image(name, tag, prepared)
    }

    /// Adds a manifest with any content under its digest and, if given, a tag. Returns the digest.
    pub fn put_manifest(&self, name: &str, tag: Option<&str>, media_type: &str, content: impl Into<Bytes>) -> String {
        held(&self.shared.catalogue).put_manifest(name, tag, media_type, content.into())
    }

    /// Adds a blob with any content under its digest.
    pub fn put_blob(&self, name: &str, content: impl Into<Bytes>) -> BlobInfo {
        held(&self.shared.catalogue).put_blob(name, content.into())
    }

    /// Removes a tag; the manifest stays under its digest.
    pub fn remove_tag(&self, name: &str, tag: &str) {
        held(&self.shared.catalogue).remove_tag(name, tag);
    }

    /// The active faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Revokes every issued token.
    pub fn revoke_tokens(&self) {
        held(&self.shared.tokens).revoke_all();
    }

    /// Its age by its own clock, as in [`LoggedRequest::at`].
    #[must_use]
    pub fn age(&self) -> Duration {
        self.shared.age()
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> Counts {
        held(&self.shared.counters).counts
    }

    /// How often each blob was served, by digest.
    #[must_use]
    pub fn blobs_served(&self) -> BTreeMap<String, u64> {
        held(&self.shared.counters).blobs.clone()
    }

    /// The sent bytes of each blob, by digest.
    #[must_use]
    pub fn blob_bytes_served(&self) -> BTreeMap<String, u64> {
        held(&self.shared.counters).blob_bytes.clone()
    }

    /// The last 10,000 requests in order.
    #[must_use]
    pub fn requests(&self) -> Vec<LoggedRequest> {
        held(&self.shared.counters).log()
    }

    /// Resets the counters.
    pub fn reset_counts(&self) {
        held(&self.shared.counters).reset();
    }
}

impl Drop for MemoryRegistry {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        held(&shared.counters).counts.connections += 1;
        tasks::spawn_in(&mut connections, "memory-registry-connection", connection(stream, acceptor.clone(), Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// Serves a connection. Errors are ignored: the client notices them.
async fn connection(stream: TcpStream, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    match acceptor {
        None => serve_http(stream, shared).await,
        Some(acceptor) => {
            if let Ok(stream) = acceptor.accept(stream).await {
                serve_http(stream, shared).await;
            }
        }
    }
}

async fn serve_http(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(move |request| serve(Arc::clone(&shared), request));
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
