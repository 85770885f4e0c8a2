//! A certificate authority for one test.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// An authority with the files of its certificates; dropping it removes the files.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    /// Creates an authority; [`Authority::certificate`] is the path of its certificate.
    ///
    /// # Panics
    /// When the folder cannot be written.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate can be made");
        let folder = TempDir::with_prefix("certificates-").expect("a folder for certificates can be made");
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("the certificate can be written");
        Self { issuer, folder }
    }

    /// The authority's own certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Issues a certificate for a host name, an address or a client; returns the files of the certificate and of its key.
    ///
    /// # Panics
    /// When the folder cannot be written.
    #[must_use]
    pub fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        self.signed(name, CertificateParams::new([name.to_owned()]).expect("the name is valid"))
    }

    /// Issues a certificate for a client of an organization, without a host name.
    ///
    /// # Panics
    /// When the folder cannot be written.
    #[must_use]
    pub fn issue_to(&self, name: &str, organization: Option<&str>) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::default();
        if let Some(organization) = organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        self.signed(name, params)
    }

    fn signed(&self, name: &str, mut params: CertificateParams) -> (PathBuf, PathBuf) {
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate can be made");
        (self.write(name, "pem", &certificate.pem()), self.write(name, "key", &key.serialize_pem()))
    }

    fn write(&self, name: &str, extension: &str, text: &str) -> PathBuf {
        let path = Path::new(self.folder.path()).join(format!("{name}.{extension}"));
        std::fs::write(&path, text).expect("the folder can be written");
        path
    }
}
