//! `fleetpull nats-auth`

use std::path::PathBuf;

use clap::Args;
use nats_accounts::{CertificateRole, ServiceAccountRole};

use super::groups::{Flag, LogArgs, NatsArgs, SettingsArgs};

/// Log clients in to NATS servers by a service-account token or a client certificate (auth callout).
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull nats-auth --nats-context auth-callout --signing-key issuer.nk \\
    --jwks https://kubernetes.default.svc/openid/v1/jwks --jwks-ca ca.crt \\
    --issuer https://kubernetes.default.svc --role node=fleetpull/agent
  fleetpull nats-auth --nats-context auth-callout --signing-key issuer.nk \\
    --certificate-role node=system:nodes               kubelets' certificates

It is nats-server's auth callout: a server whose accounts were made by
`fleetpull nats-setup --accounts DIR --auth-callout` asks it about every login
that has no key of its own. It answers with an identity of at most an hour that
has the permissions of its role, or with a refusal, which it logs. Tokens and
keys are never logged.

A token must be of the issuer, for the audience, not expired, and signed by one
of the cluster's keys (RS256 or ES256). A node is called as the token's
kubernetes.io claims say (Kubernetes 1.30 or newer); an agent shows its token
by nats.token_file. With fleet.cluster set, its name and a dot stand before the
node's, as with the agents of that cluster. A certificate must have been
verified by the server; its organization gives the role, its common name the
node. A login by a certificate of another role is called CN_ and its common
name, so that none has the name of a node.

Run two or more of it: servers ask any one. It runs until SIGTERM or Ctrl-C.")]
pub struct NatsAuthArgs {
    /// The seed of the account key that the server trusts: auth-callout.issuer.nk of `nats-setup --accounts`.
    #[arg(long, value_name = "FILE")]
    pub signing_key: PathBuf,
    /// The cluster's keys: a file, or the https URL of a JWKS document.
    #[arg(long, value_name = "FILE|URL", requires = "issuer")]
    pub jwks: Option<String>,
    /// PEM: the authority that signed the certificate of that URL's server [default: the system's].
    #[arg(long, value_name = "FILE", requires = "jwks")]
    pub jwks_ca: Option<PathBuf>,
    /// A file with the token that the URL's server wants, read at each fetch.
    #[arg(long, value_name = "FILE", requires = "jwks")]
    pub jwks_token_file: Option<PathBuf>,
    /// Who issues tokens: their `iss`.
    #[arg(long, value_name = "URL", requires = "jwks")]
    pub issuer: Option<String>,
    /// The audience that a token must name: one of its `aud`.
    #[arg(long, value_name = "TEXT", default_value = "fleetpull")]
    pub audience: String,
    /// What a service account may do: node=fleetpull/agent; may be given several times.
    #[arg(long = "role", value_name = "ROLE=NAMESPACE/NAME", requires = "jwks")]
    pub roles: Vec<ServiceAccountRole>,
    /// What certificates of an organization may do: node=system:nodes; may be given several times.
    #[arg(long = "certificate-role", value_name = "ROLE=ORGANIZATION")]
    pub certificate_roles: Vec<CertificateRole>,
    /// NATS.
    #[command(flatten)]
    pub nats: NatsArgs,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Log.
    #[command(flatten)]
    pub log: LogArgs,
}

impl NatsAuthArgs {
    /// The options as settings.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        [self.nats.flags(), self.log.flags()].concat()
    }
}
