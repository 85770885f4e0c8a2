//! TLS for the registry, with the test's certificate.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// The registry's certificate, all as PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The chain, its own certificate first.
    pub certificate_pem: String,
    /// The key of its own certificate.
    pub key_pem: String,
    /// The CA of client certificates; none if clients need none.
    pub client_ca_pem: Option<String>,
}

impl Tls {
    pub(crate) fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let builder = match &self.client_ca_pem {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(pem)? {
                    roots.add(certificate).map_err(io::Error::other)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(io::Error::other)?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(io::Error::other)?;
        let config = builder.with_single_cert(certificates(&self.certificate_pem)?, key).map_err(io::Error::other)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn certificates(pem: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(io::Error::other)
}
