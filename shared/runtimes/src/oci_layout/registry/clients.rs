//! HTTP clients, one for each TLS profile. Each has its own idle connections.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Certificate, Client, Identity};
use url::Url;

use crate::oci_layout::failure::StepFailure;
use crate::oci_layout::route::{TlsProfile, is_loopback};

/// Our user agent.
const USER_AGENT: &str = concat!("fleetpull/", env!("CARGO_PKG_VERSION"));
/// How long idle connections are kept: pulls come in bursts, and an idle node should have none.
const IDLE_MAX: Duration = Duration::from_secs(15);
/// The most cached clients; more would mean that certificates change all the time.
const CLIENTS_MAX: usize = 32;

pub(super) struct Clients {
    connect: Duration,
    idle_per_host: usize,
    made: Mutex<BTreeMap<ClientKey, Client>>,
}

/// The properties of a client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ClientKey {
    /// None for plain HTTP, which needs no certificates.
    tls: Option<TlsProfile>,
    /// Whether the address is a loopback one, which is never reached through a proxy.
    loopback: bool,
}

impl Clients {
    pub(super) fn new(connect: Duration, idle_per_host: usize) -> Self {
        Self { connect, idle_per_host, made: Mutex::default() }
    }

    /// The client for a URL; `tls` applies if it is https.
    pub(super) fn of(&self, url: &Url, tls: &TlsProfile) -> Result<Client, StepFailure> {
        let key =
            ClientKey { tls: (url.scheme() == "https").then(|| tls.clone()), loopback: is_loopback(url.host_str().unwrap_or_default()) };
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = made.get(&key) {
            return Ok(client.clone());
        }
        let client = self.build(&key)?;
        if made.len() >= CLIENTS_MAX {
            made.clear();
        }
        made.insert(key, client.clone());
        Ok(client)
    }

    fn build(&self, key: &ClientKey) -> Result<Client, StepFailure> {
        let mut builder = Client::builder()
            .user_agent(USER_AGENT)
            .http1_only()
            .tcp_nodelay(true)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(self.connect)
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(self.idle_per_host);
        if key.loopback {
            builder = builder.no_proxy();
        }
        match &key.tls {
            None => builder = builder.tls_certs_only([]),
            Some(tls) => {
                builder = builder.tls_certs_merge(roots(tls)?).tls_danger_accept_invalid_certs(tls.skip_verify);
                if let Some(pem) = &tls.identity_pem {
                    builder = builder.identity(Identity::from_pem(pem).map_err(|error| unusable("client certificate", &error))?);
                }
            }
        }
        builder.build().map_err(|error| {
            let what = format!("cannot prepare TLS: {}", super::transport::root_cause(&error));
            StepFailure::here(what, "install the system's CA certificates, or name a file of them in SSL_CERT_FILE")
        })
    }
}

fn roots(tls: &TlsProfile) -> Result<Vec<Certificate>, StepFailure> {
    let mut roots = Vec::new();
    for pem in &tls.roots_pem {
        roots.extend(Certificate::from_pem_bundle(pem).map_err(|error| unusable("CA certificate", &error))?);
    }
    Ok(roots)
}

fn unusable(kind: &str, error: &reqwest::Error) -> StepFailure {
    let what = format!("cannot use the {kind} of hosts.toml: {}", super::transport::root_cause(error));
    StepFailure::here(what, "name a file in PEM form, with its key where it is a client's")
}
