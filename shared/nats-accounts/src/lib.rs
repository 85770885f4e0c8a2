//! The accounts and permissions of a fleet's NATS server.
//!
//! [`Permissions::of`] computes what a [`Role`] may publish and subscribe to, from the subjects in `contract`. They are used in
//! [`ServerConfig`], the accounts of a server whose users have keys, and in [`Callout`], which answers a server that asks for the identity
//! of a client with a service-account token or a client certificate.
//!
//! Nothing here reads files, clocks or the network.

mod base64url;
mod callout;
mod certificate;
mod identity;
mod jwks;
mod nats_jwt;
mod permissions;
mod role;
mod server_config;
mod service_account;

pub use callout::{AUTHORIZATION_REQUESTS, Answer, Asked, Callout, CalloutError, NotASigner, Signer};
pub use identity::{CertificateRole, Identity, Refusal, RoleMap, RoleMapError, ServiceAccountRole};
pub use jwks::{Jwks, JwksError};
pub use permissions::{Group, Permissions, Responses, inbox_prefix};
pub use role::{Role, UnknownRole};
pub use server_config::{CalloutConfig, Connections, FLEET_ACCOUNT, ServerConfig, User};
pub use service_account::{TokenRules, VerifiedToken, unverified_key_id};
