//! The logins that a pull would send to each endpoint, found out without asking a registry.

use contract::messages::pull_coordinator::EndpointLogins;
use image::Reference;

use super::OciLayoutOptions;
use super::route::{self, RouteOptions};
use crate::keyring::{Keyring, KeyringError};

impl OciLayoutOptions {
    /// The logins that a pull would send to each endpoint of the route. The store is not opened.
    ///
    /// # Errors
    /// A file of logins cannot be used, or a helper gives no answer; a pull would fail for the same reason.
    pub async fn logins(&self, reference: &Reference) -> Result<Vec<EndpointLogins>, KeyringError> {
        logins(&self.keyring, &self.route(), reference).await
    }

    pub(super) fn route(&self) -> RouteOptions {
        let Self { config_path, plain_http, tls_verify, .. } = self;
        RouteOptions { config_path: config_path.clone(), plain_http: *plain_http, tls_verify: *tls_verify, own_proxies: true }
    }
}

/// As [`OciLayoutOptions::logins`]; empty if the route cannot be read, which a pull would report.
pub(super) async fn logins(keyring: &Keyring, options: &RouteOptions, reference: &Reference) -> Result<Vec<EndpointLogins>, KeyringError> {
    let mut found = Vec::new();
    for endpoint in route::endpoints_on_disk(reference, options).await.unwrap_or_default() {
        if endpoint.resolve || endpoint.pull {
            found.push(keyring.explain(&endpoint.audience(reference), &endpoint.host).await?);
        }
    }
    Ok(found)
}
