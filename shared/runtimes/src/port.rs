//! The port: what every runtime can do.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::messages::pull_coordinator::EndpointLogins;
use contract::messages::throttler::RegistryLimit;
use contract::{Carried, FailureClass, Stage, TraceContext};
use image::{Digest, Platform, Reference};

use crate::keyring::{Identity, KeyringError};
use crate::oci_layout::endpoint_by_name;
use crate::progress::Progress;

/// A shared runtime of any kind.
pub type RuntimeRef = Arc<dyn ImageRuntime>;

/// Says what is on the node, and pulls.
#[async_trait]
pub trait ImageRuntime: Send + Sync + 'static {
    /// Whether the image is on the node.
    ///
    /// # Errors
    /// The runtime could not say.
    async fn image_status(&self, reference: &Reference, platform: Option<&Platform>) -> Result<Option<ImageStatus>, InspectFailure>;

    /// Pulls the image, whatever is there already. Dropping the future gives the pull up; what was fetched whole is kept.
    ///
    /// # Errors
    /// The pull failed; nothing half-written is visible.
    async fn pull(&self, request: PullRequest, progress: Progress) -> Result<PulledImage, PullFailure>;

    /// Whom a pull of the image would talk to, and as whom. Never asks the network; what a credential helper said is remembered for a while.
    async fn route(&self, reference: &Reference, platform: Option<&Platform>) -> Route {
        Route::unknown(reference, platform)
    }

    /// Which logins a pull of the image would show to whom, in words for people. Never asks a registry. Empty if the runtime cannot say.
    ///
    /// # Errors
    /// A pull would fail, because the logins cannot be found out.
    async fn logins(&self, _reference: &Reference) -> Result<Vec<EndpointLogins>, KeyringError> {
        Ok(Vec::new())
    }

    /// Asks for the image's manifest over the way that a pull would take, without pulling. None if this runtime cannot. That it
    /// fails is no knowledge of the image or the registry: the runtime itself may fare better.
    async fn probe(&self, _reference: &Reference, _trace: &TraceContext) -> Option<Probe> {
        None
    }

    /// What a pull would ask for: the registry is asked for the image's manifest, and for nothing else. None if this runtime cannot.
    async fn weigh(&self, _request: &PullRequest) -> Option<Result<Weight, PullFailure>> {
        None
    }

    /// How many bytes of these blobs, each named once, a pull would still fetch; none if that cannot be told.
    async fn missing_bytes(&self, _blobs: &[(Digest, u64)]) -> Option<u64> {
        None
    }

    /// How many bytes there is room for where images are put; none if that cannot be told.
    async fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// What it is and how it is, asked live.
    async fn describe(&self) -> RuntimeDescription;
}

/// What to pull.
#[derive(Clone, Debug)]
pub struct PullRequest {
    /// The reference as asked for; `runtime_reference()` is what a runtime is given.
    pub reference: Reference,
    /// Which platform of a manifest list; the host's when none is named.
    pub platform: Option<Platform>,
    /// The span of this attempt, passed on to registries and runtimes.
    pub trace: TraceContext,
    /// What came along with the request's trace, passed on too.
    pub carried: Option<Arc<Carried>>,
}

/// An image that is on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageStatus {
    /// The runtime's name for it: an image id or a digest reference.
    pub image_ref: String,
    /// Bytes, as the runtime counts them; 0 when it does not say.
    pub size_bytes: u64,
    /// The digest of the manifest (or of the manifest list, where the reference named one), if the runtime says it.
    pub digest: Option<String>,
    /// `os/arch[/variant]`, if the runtime says it.
    pub platform: Option<String>,
}

/// An image that was pulled just now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PulledImage {
    /// As [`ImageStatus::image_ref`].
    pub image_ref: String,
    /// As [`ImageStatus::digest`].
    pub digest: Option<String>,
    /// As [`ImageStatus::platform`].
    pub platform: Option<String>,
    /// Which login was used: `anonymous`, `login for registry.example in /root/.docker/config.json`. Never a secret or a user's name.
    pub auth: String,
    /// What the registry said of its limits, if the runtime shows it.
    pub limits: Vec<RegistryLimit>,
}

/// Whom a pull talks to, and as whom. Holds no credential: scope and fingerprint are keyed hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Hash of the way: ordered endpoints with scheme and path, TLS or plain, proxy. `unknown` if it cannot be read.
    pub hash: String,
    /// `host:port` of each endpoint, the one that is asked first at the front; the registry itself last.
    pub endpoints: Vec<String>,
    /// Whether the runtime chooses among several endpoints without saying which one it asked.
    pub mirrored: bool,
    /// Whether a pull's progress shows when the first byte of a blob comes.
    pub shows_blobs: bool,
    /// Who asks: `anonymous`, or a keyed hash of server and user (and helper), the same on all nodes with that login.
    pub scope: String,
    /// The same with the secret; empty without a login.
    pub fingerprint: String,
    /// The platform that would be pulled.
    pub platform: String,
    /// Hash of the node's signature policy; empty if it cannot be read.
    pub policy: String,
}

impl Route {
    /// Nothing is known but the reference.
    #[must_use]
    pub fn unknown(reference: &Reference, platform: Option<&Platform>) -> Self {
        Self {
            hash: "unknown".to_owned(),
            endpoints: vec![endpoint_by_name(reference)],
            scope: "anonymous".to_owned(),
            platform: platform.cloned().unwrap_or_else(Platform::host).to_string(),
            ..Self::default()
        }
    }

    /// The same way, asked as somebody.
    pub(crate) fn asking_as(identity: Identity, way: Self) -> Self {
        Self { scope: identity.scope, fingerprint: identity.fingerprint, ..way }
    }
}

/// What came of asking for a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// Whether an endpoint has it.
    pub resolved: bool,
    /// Its digest, if the endpoint named it.
    pub digest: Option<String>,
    /// Who answered, or was asked last.
    pub endpoint: Option<String>,
    /// As [`PullFailure::retry_after`].
    pub retry_after: Option<Duration>,
    /// As [`PulledImage::limits`].
    pub limits: Vec<RegistryLimit>,
}

/// What an image consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// What the reference was resolved to: a list's digest where there is one.
    pub digest: Digest,
    /// Config and layers with their sizes in bytes, each once.
    pub blobs: Vec<(Digest, u64)>,
}

/// Why the runtime could not say whether an image is there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct InspectFailure {
    /// The runtime's text, unshortened up to 64 KiB.
    pub text: String,
    /// What it is about.
    pub class: FailureClass,
}

/// Why a pull failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct PullFailure {
    /// The runtime's text: a CRI runtime's unshortened up to 64 KiB; the embedded one's under 1,500 characters. No credentials, no URL queries, no HTML of ours.
    pub text: String,
    /// What it is about.
    pub class: FailureClass,
    /// How long the registry asked to stay away, if it did and if the runtime shows it.
    pub retry_after: Option<Duration>,
    /// `host:port` of the endpoint that failed, if the runtime shows it.
    pub endpoint: Option<String>,
    /// As [`PulledImage::auth`].
    pub auth: String,
    /// Whether a registry said so itself, with its error body, a header of its own, 429 or `Retry-After`.
    pub authoritative: bool,
    /// The stage of the registry that failed.
    pub stage: Stage,
    /// The image has nothing for the platform, as opposed to broken content.
    pub no_such_platform: bool,
    /// As [`PulledImage::limits`].
    pub limits: Vec<RegistryLimit>,
}

/// What a runtime is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeDescription {
    /// `oci-layout`, or the runtime's own name (`containerd`, `cri-o`).
    pub name: String,
    /// Its version; empty when it does not answer.
    pub version: String,
    /// Where images lie, or the socket.
    pub place: String,
    /// Why it cannot be used now, if so, in words that say what to do.
    pub problem: Option<String>,
    /// Where credentials come from, in the order in which they are tried. Never a secret.
    pub credential_sources: Vec<String>,
}
