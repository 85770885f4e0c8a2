//! Who somebody is, by what the service account or the certificate is called.

use std::fmt;
use std::str::FromStr;

use contract::NodeName;

use crate::Role;

/// What kubelets' certificates call a node.
const NODE_PREFIX: &str = "system:node:";

/// What tokens call a service account.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Who somebody is, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node, or a name of its own for each other login.
    pub name: NodeName,
    /// What it may do.
    pub role: Role,
    /// When what it showed ends, in seconds since 1970.
    pub until_s: u64,
    /// By what it is known, for the log: a service account, a certificate's subject.
    pub known_by: String,
}

/// Why somebody was not let in. Never holds what was shown, which is a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing that could be checked.
    #[error("no token and no verified certificate was shown")]
    NothingShown,
    /// Text that is no token.
    #[error("what was shown is no service-account token: {0}")]
    Malformed(&'static str),
    /// Only these are accepted, each with a key of its kind.
    #[error("the token is signed by {0:?}: only RS256 and ES256 are accepted")]
    Algorithm(String),
    /// Of another cluster, or of keys that were replaced.
    #[error("the token is signed by the key {0:?}, which is not one of the cluster's")]
    UnknownKey(String),
    /// Tampered with, or another cluster's.
    #[error("the token's signature is wrong")]
    Signature,
    /// Of another cluster.
    #[error("the token is of the issuer {0:?}, which is not the one that was set")]
    Issuer(String),
    /// Made for somebody else.
    #[error("the token is for {0:?}, which does not include the audience that was set")]
    Audience(Vec<String>),
    /// Over.
    #[error("the token expired {0} s ago")]
    Expired(u64),
    /// Its time has not come.
    #[error("the token is valid in {0} s")]
    NotYet(u64),
    /// For the whole life of a cluster; not what a projected volume gives.
    #[error("the token does not expire: show one of a projected volume")]
    Endless,
    /// A token that is bound to no pod, or a cluster older than Kubernetes 1.30.
    #[error("the token names no node: it must be one of a pod's projected volume, in Kubernetes 1.30 or newer")]
    NoNode,
    /// Not a name that a node can have.
    #[error("{0:?} is no name of a node")]
    BadName(String),
    /// Nobody has said what it may do.
    #[error("{0} has no role: see --role and --certificate-role")]
    NoRole(String),
    /// It cannot be read.
    #[error("the client certificate cannot be read: {0}")]
    Certificate(&'static str),
}

/// Service accounts of this name have this role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountRole {
    /// The role.
    pub role: Role,
    /// `system:serviceaccount:<namespace>:<name>`.
    pub subject: String,
}

/// Certificates of this organization have this role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRole {
    /// The role.
    pub role: Role,
    /// `O` of the subject.
    pub organization: String,
}

/// Not `ROLE=WHO`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct RoleMapError {
    text: String,
    wanted: &'static str,
}

impl FromStr for ServiceAccountRole {
    type Err = RoleMapError;

    fn from_str(text: &str) -> Result<Self, RoleMapError> {
        let error = || RoleMapError { text: text.to_owned(), wanted: "ROLE=NAMESPACE/NAME, such as node=fleetpull/agent" };
        let (role, account) = text.split_once('=').ok_or_else(error)?;
        let (namespace, name) = account.split_once('/').ok_or_else(error)?;
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
        if !plain(namespace) || !plain(name) {
            return Err(error());
        }
        Ok(Self { role: role.parse().map_err(|_| error())?, subject: format!("{ACCOUNT_PREFIX}{namespace}:{name}") })
    }
}

impl FromStr for CertificateRole {
    type Err = RoleMapError;

    fn from_str(text: &str) -> Result<Self, RoleMapError> {
        let error = || RoleMapError { text: text.to_owned(), wanted: "ROLE=ORGANIZATION, such as node=system:nodes" };
        let (role, organization) = text.split_once('=').filter(|(_, organization)| !organization.is_empty()).ok_or_else(error)?;
        Ok(Self { role: role.parse().map_err(|_| error())?, organization: organization.to_owned() })
    }
}

/// Who has which role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleMap {
    /// By service account.
    pub service_accounts: Vec<ServiceAccountRole>,
    /// By organization of a client certificate.
    pub certificates: Vec<CertificateRole>,
    /// The cluster whose tokens and certificates these are, `fleet.cluster` of its nodes: it stands before their names.
    pub cluster: Option<String>,
}

impl RoleMap {
    /// The identity of a service account. A node is called as the node that its pod is bound to; all others as the service account.
    pub(crate) fn of_service_account(&self, subject: &str, node: Option<&str>, until_s: u64) -> Result<Identity, Refusal> {
        let known_by = format!("the service account {subject}");
        let found = self.service_accounts.iter().find(|one| one.subject == subject).ok_or_else(|| Refusal::NoRole(known_by.clone()))?;
        let name = match found.role {
            Role::Node => self.node(node.ok_or(Refusal::NoNode)?)?,
            // Kubernetes gives no node a name with `_` in it.
            _ => named(&subject.trim_start_matches(ACCOUNT_PREFIX).replace(':', "_"))?,
        };
        Ok(Identity { name, role: found.role, until_s, known_by })
    }

    /// The identity of a certificate. A node is called as the common name says, without what kubelets' certificates put before it.
    pub(crate) fn of_certificate(&self, organizations: &[String], common_name: &str, until_s: u64) -> Result<Identity, Refusal> {
        let known_by = format!("the certificate of {common_name:?} (O={})", organizations.join(", O="));
        let role_of = |organization: &String| self.certificates.iter().find(|one| one.organization == *organization);
        let found = organizations.iter().find_map(role_of).ok_or_else(|| Refusal::NoRole(known_by.clone()))?;
        let name = match found.role {
            Role::Node => self.node(common_name.strip_prefix(NODE_PREFIX).unwrap_or(common_name))?,
            _ => named(&common_name.replace(':', "_"))?,
        };
        Ok(Identity { name, role: found.role, until_s, known_by })
    }

    fn node(&self, text: &str) -> Result<NodeName, Refusal> {
        NodeName::in_cluster(self.cluster.as_deref(), text).map_err(|_| bad_name(text))
    }
}

fn named(text: &str) -> Result<NodeName, Refusal> {
    text.parse().map_err(|_| bad_name(text))
}

fn bad_name(text: &str) -> Refusal {
    Refusal::BadName(text.chars().take(64).collect())
}

impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.role, self.name)
    }
}
