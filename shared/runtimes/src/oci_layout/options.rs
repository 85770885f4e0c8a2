//! The options of the embedded runtime.

use std::path::PathBuf;
use std::time::Duration;

use clock::Clock;
use metrics::Instruments;

use crate::keyring::Keyring;

/// Options of the embedded runtime.
#[derive(Clone, Debug)]
pub struct OciLayoutOptions {
    /// The folder of the image layout; created if it is missing.
    pub store: PathBuf,
    /// The source of logins.
    pub keyring: Keyring,
    /// The folder of `<host>/hosts.toml` files, as in containerd (`/etc/containerd/certs.d`). It may be missing.
    pub config_path: PathBuf,
    /// Use plain HTTP for the registry itself. Registries on this host are always reached by plain HTTP.
    pub plain_http: bool,
    /// Whether certificates are checked.
    pub tls_verify: bool,
    /// The time-outs.
    pub timeouts: Timeouts,
    /// The most connections of one pull.
    pub connections_per_pull: usize,
    /// The most connections to one endpoint, over all pulls.
    pub connections_per_registry: usize,
    /// Whether a pulled image outlives a power failure; without it, it outlives the process.
    pub fsync: bool,
    /// The clock for the lifetimes of tokens.
    pub clock: Clock,
    /// Counts the requests.
    pub instruments: Instruments,
}

/// Time-outs of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To connect, including TLS.
    pub connect: Duration,
    /// From the request to the head of the answer.
    pub first_byte: Duration,
    /// Between two pieces of a body.
    pub no_progress: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), first_byte: Duration::from_secs(10), no_progress: Duration::from_secs(30) }
    }
}

impl OciLayoutOptions {
    /// The defaults of the reference configuration for this store and these logins.
    #[must_use]
    pub fn new(store: impl Into<PathBuf>, keyring: Keyring, clock: Clock) -> Self {
        Self {
            store: store.into(),
            keyring,
            config_path: PathBuf::from("/etc/containerd/certs.d"),
            plain_http: false,
            tls_verify: true,
            timeouts: Timeouts::default(),
            connections_per_pull: 4,
            connections_per_registry: 8,
            fsync: true,
            clock,
            instruments: Instruments::default(),
        }
    }
}
