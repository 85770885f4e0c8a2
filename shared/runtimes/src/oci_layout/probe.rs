//! Asks for a manifest without fetching it.
//!
//! This is cheap for a registry, and Docker Hub does not count it. It shows limits that the node's runtime does not show.

use std::sync::Arc;

use clock::Clock;
use contract::TraceContext;
use image::{Digest, Reference};
use metrics::Instruments;

use super::failure::StepFailure;
use super::install_cryptography;
use super::manifest;
use super::options::Timeouts;
use super::registry::{Question, Registries, Session};
use super::route::{self, Endpoint, RouteOptions};
use crate::keyring::Keyring;
use crate::port::Probe;

/// The most concurrent probes of one endpoint when another runtime pulls; they are rare and small.
const PROBES_PER_REGISTRY: usize = 2;

/// Makes probes and size estimates.
#[derive(Clone)]
pub(crate) struct Prober {
    pub(super) registries: Arc<Registries>,
    pub(super) keyring: Keyring,
}

impl Prober {
    /// A prober of manifests when another runtime pulls.
    pub(crate) fn new(keyring: Keyring, timeouts: Timeouts, instruments: Instruments) -> Self {
        install_cryptography();
        let registries = Registries::new(timeouts, PROBES_PER_REGISTRY, Clock::host(), instruments);
        Self { registries: Arc::new(registries), keyring }
    }

    /// Asks each endpoint of a route in turn until one has the manifest.
    pub(crate) async fn probe(&self, route: &RouteOptions, reference: &Reference, trace: &TraceContext) -> Probe {
        let mut probe = Probe::default();
        let endpoints = route::endpoints_on_disk(reference, route).await.unwrap_or_default();
        for endpoint in endpoints.into_iter().filter(|endpoint| endpoint.serves(reference)) {
            let host = endpoint.host.clone();
            match self.ask(endpoint, reference, trace).await {
                Ok(found) => return found,
                Err(failure) => {
                    let endpoint = failure.endpoint.or(Some(host));
                    probe = Probe { resolved: false, digest: None, endpoint, retry_after: failure.retry_after, limits: failure.limits };
                }
            }
        }
        probe
    }

    async fn ask(&self, endpoint: Endpoint, reference: &Reference, trace: &TraceContext) -> Result<Probe, StepFailure> {
        let host = endpoint.host.clone();
        let session = Session::open(&self.registries, &self.keyring, endpoint, reference, (*trace).into()).await?;
        let name = manifest::name_of(reference);
        let answer = session.ask(Question { kind: "manifests", name, accept: manifest::ACCEPT, from: 0, head: true }).await?;
        let digest = Digest::parse(answer.header("docker-content-digest")).ok().map(|digest| digest.to_string());
        Ok(Probe { resolved: true, digest, endpoint: Some(host), retry_after: None, limits: session.limits(&answer) })
    }
}
