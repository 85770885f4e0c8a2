//! Client certificates that the server has verified.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509Name};

use crate::{Identity, Refusal, RoleMap};

/// The identity by a certificate's subject. The server has checked that the right authority signed it.
pub(crate) fn identify(pem: &str, roles: &RoleMap, now_s: u64) -> Result<Identity, Refusal> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| Refusal::Certificate("it is not PEM"))?;
    let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| Refusal::Certificate("it is not X.509"))?;
    let until_s = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    if now_s >= until_s {
        return Err(Refusal::Expired(now_s - until_s));
    }
    let common_names = texts(certificate.subject().iter_common_name());
    let [common_name] = common_names.as_slice() else {
        return Err(Refusal::Certificate("its subject has not one common name"));
    };
    roles.of_certificate(&organizations(certificate.subject()), common_name, until_s)
}

fn organizations(subject: &X509Name<'_>) -> Vec<String> {
    texts(subject.iter_organization())
}

fn texts<'a>(attributes: impl Iterator<Item = &'a x509_parser::x509::AttributeTypeAndValue<'a>>) -> Vec<String> {
    attributes.filter_map(|attribute| attribute.as_str().ok()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;

    fn made(organization: &str, names: &[&str]) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, organization);
        for name in names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    /// Logins of one name have one prefix of inboxes, and read each other's answers.
    #[test]
    fn no_certificate_of_a_person_gives_the_name_of_a_node_or_of_another_login() {
        let roles = RoleMap {
            service_accounts: vec!["operator=fleetpull/ops".parse().unwrap()],
            certificates: vec!["node=system:nodes".parse().unwrap(), "viewer=people".parse().unwrap()],
            cluster: None,
        };
        let of_certificate = |organization: &str, name: &str| identify(&made(organization, &[name]), &roles, 1_000).unwrap();
        let logins = [
            roles.of_service_account("system:serviceaccount:fleetpull:ops", None, 2_000).unwrap(),
            of_certificate("system:nodes", "system:node:n1"),
            of_certificate("people", "n1"),
            of_certificate("people", "fleetpull_ops"),
            of_certificate("people", "fleetpull:ops"),
        ];
        let names = logins.map(|login| login.name.as_str().to_owned());
        assert_eq!(names, ["fleetpull_ops", "n1", "CN_n1", "CN_fleetpull_5fops", "CN_fleetpull_3aops"]);
    }

    #[test]
    fn the_organization_gives_the_role_and_the_common_name_the_node() {
        let roles = RoleMap { certificates: vec!["node=system:nodes".parse().unwrap()], ..RoleMap::default() };
        let node = identify(&made("system:nodes", &["system:node:n1"]), &roles, 1_000).unwrap();
        assert_eq!((node.name.as_str(), node.role), ("n1", crate::Role::Node));
        let of_cluster = RoleMap { cluster: Some("eu".to_owned()), ..roles.clone() };
        let node = identify(&made("system:nodes", &["system:node:n1"]), &of_cluster, 1_000).unwrap();
        assert_eq!(node.name.as_str(), "eu.n1");
        assert!(matches!(identify(&made("visitors", &["n1"]), &roles, 1_000), Err(Refusal::NoRole(_))));
        assert!(matches!(identify(&made("system:nodes", &["*"]), &roles, 1_000), Err(Refusal::BadName(_))));
        assert!(matches!(identify(&made("system:nodes", &[]), &roles, 1_000), Err(Refusal::Certificate(_))));
        assert!(matches!(identify(&made("system:nodes", &["n1"]), &roles, u64::MAX / 2), Err(Refusal::Expired(_))));
        for text in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(identify(text, &roles, 0), Err(Refusal::Certificate(_))), "{text}");
        }
    }
}
