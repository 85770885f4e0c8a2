//! The port: the calls that every runtime answers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::messages::pull_coordinator::EndpointLogins;
use contract::messages::throttler::RegistryLimit;
use contract::{Carried, FailureClass, Stage, TraceContext};
use image::{Digest, Platform, Reference};

use crate::keyring::{Identity, KeyringError};
use crate::oci_layout::default_endpoint;
use crate::progress::Progress;

/// A shared runtime of any kind.
pub type RuntimeRef = Arc<dyn ImageRuntime>;

/// A runtime: it reports which images are on the node, and pulls.
#[async_trait]
pub trait ImageRuntime: Send + Sync + 'static {
    /// Whether the image is on the node.
    ///
    /// # Errors
    /// The runtime failed to answer.
    async fn image_status(&self, reference: &Reference, platform: Option<&Platform>) -> Result<Option<ImageStatus>, InspectFailure>;

    /// Pulls the image, even if it is present. Dropping the future cancels the pull; complete blobs are kept.
    ///
    /// # Errors
    /// The pull failed; no incomplete image is visible.
    async fn pull(&self, request: PullRequest, progress: Progress) -> Result<PulledImage, PullFailure>;

    /// What a pull wants to know before it asks a registry, in one call, because a runtime on disk needs a thread for each. Route and free
    /// bytes are looked up only if the image is absent or its presence is not wanted.
    async fn look(&self, reference: &Reference, platform: Option<&Platform>, wanted: LookFor) -> Looked {
        let found = if wanted.presence { self.image_status(reference, platform).await } else { Ok(None) };
        let goes_on = found == Ok(None);
        let route = if goes_on && wanted.route { Some(self.route(reference, platform).await) } else { None };
        let free_bytes = if goes_on && wanted.free_bytes { self.free_bytes().await } else { None };
        Looked { found, route, free_bytes }
    }

    /// The endpoints that a pull of the image would use, and the identity. Makes no network request; answers of credential helpers are
    /// cached.
    async fn route(&self, reference: &Reference, platform: Option<&Platform>) -> Route {
        Route::unknown(reference, platform)
    }

    /// The logins that a pull of the image would send to each endpoint, for people. Asks no registry. Empty if they are unknown.
    ///
    /// # Errors
    /// The logins cannot be found out, so a pull would fail.
    async fn logins(&self, _reference: &Reference) -> Result<Vec<EndpointLogins>, KeyringError> {
        Ok(Vec::new())
    }

    /// Asks for the image's manifest by the route of a pull, without pulling. None if this runtime cannot. A failure says nothing about the
    /// image or the registry, because the runtime's own request may succeed.
    async fn probe(&self, _reference: &Reference, _trace: &TraceContext) -> Option<Probe> {
        None
    }

    /// The size estimate of a pull, which asks the registry for manifests alone. None if this runtime cannot.
    async fn estimate_size(&self, _request: &PullRequest) -> Option<Result<SizeEstimate, PullFailure>> {
        None
    }

    /// How many bytes of these blobs, each named once, a pull would fetch; none if unknown.
    async fn missing_bytes(&self, _blobs: &[(Digest, u64)]) -> Option<u64> {
        None
    }

    /// The free bytes of the place where images are stored; none if unknown.
    async fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// All images on the node.
    ///
    /// # Errors
    /// The runtime failed to answer, or does not list its images.
    async fn images(&self) -> Result<Vec<StoredImage>, InspectFailure> {
        Err(InspectFailure { text: "this runtime does not list its images".to_owned(), class: FailureClass::NodeLocal })
    }

    /// The runtime's name, version and state, asked now.
    async fn describe(&self) -> RuntimeDescription;
}

/// The questions of [`ImageRuntime::look`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookFor {
    /// Whether the image is present ([`ImageRuntime::image_status`]).
    pub presence: bool,
    /// The route ([`ImageRuntime::route`]).
    pub route: bool,
    /// The free bytes ([`ImageRuntime::free_bytes`]).
    pub free_bytes: bool,
}

/// The answers of [`ImageRuntime::look`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// The image; none if it is absent or its presence is not wanted.
    pub found: Result<Option<ImageStatus>, InspectFailure>,
    /// The route; none if it is not looked up.
    pub route: Option<Route>,
    /// The free bytes; none if they are not looked up or unknown.
    pub free_bytes: Option<u64>,
}

/// What to pull.
#[derive(Clone, Debug)]
pub struct PullRequest {
    /// The reference as asked for; a runtime gets its `runtime_reference()`.
    pub reference: Reference,
    /// The platform to choose from a manifest list; none: the host's.
    pub platform: Option<Platform>,
    /// The span of this attempt, passed on to registries and runtimes.
    pub trace: TraceContext,
    /// What the request carried with its trace, passed on too.
    pub carried: Option<Arc<Carried>>,
}

/// An image that is on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageStatus {
    /// The runtime's name for it: an image id or a digest reference.
    pub image_ref: String,
    /// Bytes, as the runtime counts them; 0 if unknown.
    pub size_bytes: u64,
    /// The digest of the manifest, or of the manifest list if the reference names one; none if unknown.
    pub digest: Option<String>,
    /// `os/arch[/variant]`; none if unknown.
    pub platform: Option<String>,
}

/// An image as a store or a runtime lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredImage {
    /// The name as it was asked for; none if it has none.
    pub name: Option<String>,
    /// As [`ImageStatus::digest`].
    pub digest: Option<String>,
    /// As [`ImageStatus::platform`].
    pub platform: Option<String>,
    /// Bytes, as the runtime counts them; none if unknown.
    pub size_bytes: Option<u64>,
    /// When it was pulled last, since 1970; none if unknown.
    pub pulled_at: Option<Duration>,
}

/// The result of a pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PulledImage {
    /// As [`ImageStatus::image_ref`].
    pub image_ref: String,
    /// As [`ImageStatus::digest`].
    pub digest: Option<String>,
    /// As [`ImageStatus::platform`].
    pub platform: Option<String>,
    /// The login that was used: `anonymous`, `login for registry.example in /root/.docker/config.json`. Never a secret or a user's name.
    pub auth: String,
    /// The limits that the registry stated, if the runtime shows them.
    pub limits: Vec<RegistryLimit>,
}

/// The endpoints of a pull, and the node's identity there. Has no credential: scope and fingerprint are keyed hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The hash of the route: ordered endpoints with scheme and path, TLS or plain, proxy. `unknown` if it cannot be read.
    pub hash: String,
    /// `host:port` of each endpoint in the order of use; the registry itself is last.
    pub endpoints: Vec<String>,
    /// Whether the runtime uses several endpoints without reporting which one it asked.
    pub mirrored: bool,
    /// Whether a pull's progress shows the first byte of a blob.
    pub shows_blobs: bool,
    /// `anonymous`, or a keyed hash of server and user (and helper), equal on all nodes with that login.
    pub scope: String,
    /// As `scope`, with the secret; empty without a login.
    pub fingerprint: String,
    /// The platform that would be pulled.
    pub platform: String,
    /// The hash of the node's signature policy; empty if it cannot be read.
    pub policy: String,
}

impl Route {
    /// A route of which only the reference is known.
    #[must_use]
    pub fn unknown(reference: &Reference, platform: Option<&Platform>) -> Self {
        Self {
            hash: "unknown".to_owned(),
            endpoints: vec![default_endpoint(reference)],
            scope: "anonymous".to_owned(),
            platform: platform.cloned().unwrap_or_else(Platform::host).to_string(),
            ..Self::default()
        }
    }

    /// The route with this identity.
    pub(crate) fn asking_as(identity: Identity, route: Self) -> Self {
        Self { scope: identity.scope, fingerprint: identity.fingerprint, ..route }
    }
}

/// The result of asking for a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Whether an endpoint has it.
    pub resolved: bool,
    /// Its digest, if the endpoint named it.
    pub digest: Option<String>,
    /// The endpoint that answered, or that was asked last.
    pub endpoint: Option<String>,
    /// As [`PullFailure::retry_after`].
    pub retry_after: Option<Duration>,
    /// As [`PulledImage::limits`].
    pub limits: Vec<RegistryLimit>,
}

/// The blobs of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeEstimate {
    /// The digest that the reference was resolved to; a list's, if there is one.
    pub digest: Digest,
    /// Config and layers with their sizes in bytes, each once.
    pub blobs: Vec<(Digest, u64)>,
}

/// Why the runtime could not report whether an image is present.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct InspectFailure {
    /// The runtime's text, up to 64 KiB.
    pub text: String,
    /// The failure's class.
    pub class: FailureClass,
}

/// Why a pull failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct PullFailure {
    /// The runtime's text: a CRI runtime's unshortened up to 64 KiB; the embedded one's under 1,500 characters. No credentials, no URL
    /// queries, no HTML of ours.
    pub text: String,
    /// The failure's class.
    pub class: FailureClass,
    /// The registry's `Retry-After`, if the runtime shows it.
    pub retry_after: Option<Duration>,
    /// `host:port` of the endpoint that failed, if the runtime shows it.
    pub endpoint: Option<String>,
    /// As [`PulledImage::auth`].
    pub auth: String,
    /// Whether the failure is a registry's own answer: with its error body, a header of its own, 429 or `Retry-After`.
    pub authoritative: bool,
    /// The stage of the registry that failed.
    pub stage: Stage,
    /// The image has no manifest for the platform.
    pub no_such_platform: bool,
    /// As [`PulledImage::limits`].
    pub limits: Vec<RegistryLimit>,
}

/// A runtime's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeDescription {
    /// `oci-layout`, or the runtime's own name (`containerd`, `cri-o`).
    pub name: String,
    /// Its version; empty if it does not answer.
    pub version: String,
    /// The store's folder, or the socket.
    pub place: String,
    /// Why it cannot be used now, and what to do.
    pub problem: Option<String>,
    /// The sources of credentials, in the order of use. Never a secret.
    pub credential_sources: Vec<String>,
}
