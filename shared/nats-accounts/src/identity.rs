//! Identities, from service accounts or certificates.

use std::fmt;
use std::str::FromStr;

use contract::NodeName;
use contract::subject::token;

use crate::Role;

/// The prefix of node names in kubelets' certificates.
const NODE_PREFIX: &str = "system:node:";

/// The prefix of names after a certificate that is no node's. No node of Kubernetes and no namespace has a capital letter.
const CERTIFICATE_PREFIX: &str = "CN_";

/// The prefix of service accounts in tokens.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// An identity, with its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node's name, or a unique name for any other login.
    pub name: NodeName,
    /// The role.
    pub role: Role,
    /// When the token or certificate ends, in seconds since 1970.
    pub until_s: u64,
    /// The service account or the certificate's subject, for the log.
    pub known_by: String,
}

/// Why a login was refused. It never holds the token, which is a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no token or certificate that can be checked.
    #[error("no token and no verified certificate was shown")]
    NothingShown,
    /// The text is not a token.
    #[error("what was shown is no service-account token: {0}")]
    Malformed(&'static str),
    /// The algorithm is not one of those accepted, each with a key of its kind.
    #[error("the token is signed by {0:?}: only RS256 and ES256 are accepted")]
    Algorithm(String),
    /// The key belongs to another cluster, or was replaced.
    #[error("the token is signed by the key {0:?}, which is not one of the cluster's")]
    UnknownKey(String),
    /// The token was altered, or belongs to another cluster.
    #[error("the token's signature is wrong")]
    Signature,
    /// The token belongs to another cluster.
    #[error("the token is of the issuer {0:?}, which is not the one that was set")]
    Issuer(String),
    /// The token is for another audience.
    #[error("the token is for {0:?}, which does not include the audience that was set")]
    Audience(Vec<String>),
    /// The token or certificate has expired.
    #[error("the token expired {0} s ago")]
    Expired(u64),
    /// The token or certificate is not valid yet.
    #[error("the token is valid in {0} s")]
    NotYet(u64),
    /// The token has no end; one of a projected volume has.
    #[error("the token does not expire: show one of a projected volume")]
    Endless,
    /// The token is bound to no pod, or the cluster is older than Kubernetes 1.30.
    #[error("the token names no node: it must be one of a pod's projected volume, in Kubernetes 1.30 or newer")]
    NoNode,
    /// The name is not valid for a node.
    #[error("{0:?} is no name of a node")]
    BadName(String),
    /// No role is configured for it.
    #[error("{0} has no role: see --role and --certificate-role")]
    NoRole(String),
    /// The certificate cannot be read.
    #[error("the client certificate cannot be read: {0}")]
    Certificate(&'static str),
}

/// The role of service accounts with this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountRole {
    /// The role.
    pub role: Role,
    /// `system:serviceaccount:<namespace>:<name>`.
    pub subject: String,
}

/// The role of certificates with this organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRole {
    /// The role.
    pub role: Role,
    /// `O` of the subject.
    pub organization: String,
}

/// The text does not have the form `ROLE=WHO`.
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

/// The roles of logins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleMap {
    /// Roles by service account.
    pub service_accounts: Vec<ServiceAccountRole>,
    /// Roles by organization of a client certificate.
    pub certificates: Vec<CertificateRole>,
    /// The cluster of these tokens and certificates, `fleet.cluster` of its nodes: the prefix of their names.
    pub cluster: Option<String>,
}

impl RoleMap {
    /// The identity of a service account. A node is named after the node of its pod, any other login after the service account.
    pub(crate) fn of_service_account(&self, subject: &str, node: Option<&str>, until_s: u64) -> Result<Identity, Refusal> {
        let known_by = format!("the service account {subject}");
        let found = self.service_accounts.iter().find(|one| one.subject == subject).ok_or_else(|| Refusal::NoRole(known_by.clone()))?;
        let name = match found.role {
            Role::Node => self.node(node.ok_or(Refusal::NoNode)?)?,
            // A node's name in Kubernetes never has `_`.
            _ => named(&subject.trim_start_matches(ACCOUNT_PREFIX).replace(':', "_"))?,
        };
        Ok(Identity { name, role: found.role, until_s, known_by })
    }

    /// The identity of a certificate. A node is named after the common name without [`NODE_PREFIX`], any other login after the common name
    /// with [`CERTIFICATE_PREFIX`]: a login with the name of a node could read that node's answers.
    pub(crate) fn of_certificate(&self, organizations: &[String], common_name: &str, until_s: u64) -> Result<Identity, Refusal> {
        let known_by = format!("the certificate of {common_name:?} (O={})", organizations.join(", O="));
        let role_of = |organization: &String| self.certificates.iter().find(|one| one.organization == *organization);
        let found = organizations.iter().find_map(role_of).ok_or_else(|| Refusal::NoRole(known_by.clone()))?;
        let name = match found.role {
            Role::Node => self.node(common_name.strip_prefix(NODE_PREFIX).unwrap_or(common_name))?,
            _ => named(&format!("{CERTIFICATE_PREFIX}{}", token(common_name)))?,
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
