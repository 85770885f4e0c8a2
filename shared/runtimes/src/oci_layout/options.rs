//! How the embedded runtime is set up.

use std::path::PathBuf;
use std::time::Duration;

use clock::Clock;
use metrics::Instruments;

use crate::keyring::Keyring;

/// Everything the embedded runtime needs.
#[derive(Clone, Debug)]
pub struct OciLayoutOptions {
    /// The folder that is the image layout; made if it is not there.
    pub store: PathBuf,
    /// Which logins are used.
    pub keyring: Keyring,
    /// The folder of `<host>/hosts.toml` files, as containerd has it (`/etc/containerd/certs.d`). Need not be there.
    pub config_path: PathBuf,
    /// Speak plain HTTP to the registry itself. Registries on this host are spoken to so anyway.
    pub plain_http: bool,
    /// Whether certificates are checked.
    pub tls_verify: bool,
    /// How long to wait for what.
    pub timeouts: Timeouts,
    /// Connections for one pull.
    pub connections_per_pull: usize,
    /// Connections to one endpoint, over all pulls.
    pub connections_per_registry: usize,
    /// Whether what was pulled survives a power failure; without it, a killed process.
    pub fsync: bool,
    /// When tokens end.
    pub clock: Clock,
    /// What counts the requests.
    pub instruments: Instruments,
}

/// How long to wait for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, TLS included.
    pub connect: Duration,
    /// From asking to the head of the answer.
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
