//! Certificates for registries.

use memory_registry::Tls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// A CA, and its certificate for 127.0.0.1.
pub struct Certificates {
    pub ca_pem: String,
    pub tls: Tls,
    pub client_pem: String,
}

/// Makes certificates; `change` is applied before signing.
pub fn certificates(change: impl Fn(&mut CertificateParams)) -> Certificates {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(ca, ca_key);
    let leaf = |change: &dyn Fn(&mut CertificateParams)| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "registry.test".to_owned()]).unwrap();
        change(&mut params);
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    };
    let (certificate_pem, key_pem) = leaf(&change);
    let (client, client_key) = leaf(&|_| {});
    Certificates { tls: Tls { certificate_pem, key_pem, client_ca_pem: None }, ca_pem, client_pem: format!("{client}{client_key}") }
}
