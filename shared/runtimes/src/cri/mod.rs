//! The `cri` runtime: containerd or CRI-O through CRI version 1 over its unix socket.
//!
//! The runtime's texts are passed on exactly as kubelet's client has them, without queries and logins in URLs. As in kubelet, every
//! matching credential is tried in turn, and without one the pull is anonymous. Dropping a pull's future cancels the call; containerd then
//! discards the layers that were not complete.

mod direct_connection;
mod endpoint;
mod go_status;
mod hosts;
mod layers;
pub mod proto;
mod pull_failures;
mod signature_policy;
mod stored_images;
mod traced;
mod watch;

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use clock::Clock;
use http::Uri;
use image::{Platform, Reference};
use metrics::Instruments;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use direct_connection::DirectConnection;
pub use endpoint::EndpointError;
use go_status::CallFailure;
use hosts::Hosts;
use proto::runtime::image_service_client::ImageServiceClient;
use proto::runtime::runtime_service_client::RuntimeServiceClient;
use proto::runtime::{
    AuthConfig, ImageFsInfoRequest, ImageSpec, ImageStatusRequest, ImageStatusResponse, ListImagesRequest, PullImageRequest, VersionRequest,
};
use pull_failures::PullFailures;
use stored_images::{digest_of, stored_images};
use watch::Watcher;

use crate::blocking::on_disk;
use crate::failure;
use crate::keyring::{Audience, Credential, Keyring, KeyringError, Secrets};
use crate::oci_layout::{Prober, Timeouts, route_summary};
use crate::port::{
    ImageRuntime, ImageStatus, InspectFailure, Probe, PullFailure, PullRequest, PulledImage, Route, RuntimeDescription, SizeEstimate,
    StoredImage,
};
use crate::progress::Progress;
use contract::messages::pull_coordinator::EndpointLogins;
use contract::{FailureClass, TraceContext};

/// Kubelet's `runtimeRequestTimeout`. A pull itself has none, as in kubelet.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);
/// How long the runtime may take to describe itself; a person waits for it.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(5);
/// How long a pull waits for its route; a live runtime answers in milliseconds.
const ROUTE_LIMIT: Duration = Duration::from_secs(1);
/// The largest answer; Go's clients of CRI allow 16 MiB.
const ANSWER_MAX_BYTES: usize = 16 * 1024 * 1024;
/// The folder of containerd's `hosts.toml` files by default.
const HOSTS_FOLDER: &str = "/etc/containerd/certs.d";
/// The name of a pull without a login.
const ANONYMOUS: &str = "anonymous";

/// How to reach a runtime.
#[derive(Debug)]
pub struct CriOptions {
    /// `unix:///path` or the path alone.
    pub endpoint: String,
    /// The source of logins.
    pub keyring: Keyring,
    /// Folders of `<host>/hosts.toml` files, for a runtime that does not state its own (`registry.config_path`). Several are separated by
    /// colons, as in containerd.
    pub config_path: PathBuf,
    /// The time-outs of side-channel checks. The runtime's own pulls have the runtime's limits.
    pub timeouts: Timeouts,
    /// The clock for cached answers of the runtime.
    pub clock: Clock,
    /// Counts the requests of side-channel checks.
    pub instruments: Instruments,
}

impl CriOptions {
    /// The defaults of the reference configuration for this runtime and these logins.
    #[must_use]
    pub fn new(endpoint: impl Into<String>, keyring: Keyring, clock: Clock) -> Self {
        let config_path = PathBuf::from(HOSTS_FOLDER);
        Self { endpoint: endpoint.into(), keyring, config_path, timeouts: Timeouts::default(), clock, instruments: Instruments::default() }
    }
}

/// A container runtime behind CRI version 1.
pub struct CriRuntime {
    socket: PathBuf,
    keyring: Keyring,
    images: ImageServiceClient<Channel>,
    /// For the status call before every pull.
    lookups: ImageServiceClient<DirectConnection>,
    versions: RuntimeServiceClient<Channel>,
    watcher: Watcher,
    hosts: Hosts,
    prober: Prober,
}

impl CriRuntime {
    /// A runtime that connects with the first call, and again after each loss. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The endpoint is no address of a unix socket.
    pub fn new(options: CriOptions) -> Result<Self, EndpointError> {
        let socket = endpoint::socket_path(&options.endpoint)?;
        let channel = endpoint::channel(&socket);
        Ok(Self {
            prober: Prober::new(options.keyring.clone(), options.timeouts, options.instruments),
            keyring: options.keyring,
            lookups: ImageServiceClient::with_origin(DirectConnection::to(&socket), Uri::from_static(endpoint::ORIGIN))
                .max_decoding_message_size(ANSWER_MAX_BYTES),
            images: ImageServiceClient::new(channel.clone()).max_decoding_message_size(ANSWER_MAX_BYTES),
            versions: RuntimeServiceClient::new(channel.clone()),
            watcher: Watcher::new(channel.clone()),
            socket,
            hosts: Hosts::new(channel, options.config_path, options.clock),
        })
    }

    /// The route that containerd takes. CRI-O reads other files, and a runtime that does not answer may be either.
    async fn route_summary(&self, reference: &Reference, unknown: Route) -> Route {
        // A runtime whose settings cannot be read may have mirrors; a "not found" may then be one mirror's.
        let policy = on_disk(signature_policy::policy_hash).await;
        let unreadable = Route { mirrored: true, policy, ..unknown };
        let is_containerd = tokio::time::timeout(ROUTE_LIMIT, self.watcher.is_containerd()).await;
        if !is_containerd.unwrap_or_default() {
            return unreadable;
        }
        let Some(hosts) = self.hosts.route().await else { return unreadable };
        let asked = reference.clone();
        match on_disk(move || route_summary(&asked, &hosts)).await {
            None => unreadable,
            // containerd has no policy file; its verifiers are programs.
            Some(route_summary) => {
                let mirrored = route_summary.endpoints.len() > 1;
                Route { hash: route_summary.hash, mirrored, endpoints: route_summary.endpoints, policy: String::new(), ..unreadable }
            }
        }
    }

    async fn lookup(&self, image: &str) -> Result<Response<ImageStatusResponse>, Status> {
        let request = || ImageStatusRequest { image: Some(spec(image)), verbose: false };
        match self.lookups.clone().image_status(request()).await {
            // The error was made on this side. The channel repeats the call, and its error says what is wrong.
            Err(status) if status.source().is_some() => Box::pin(self.images.clone().image_status(request())).await,
            answered => answered,
        }
    }

    /// Pulls with one login. The text of a failure is kubelet's.
    async fn pull_once(&self, asked: &PullRequest, credential: Option<&Credential>) -> Result<String, (String, Option<Code>)> {
        let image = asked.reference.runtime_reference();
        let span = traced::call_span(asked, &self.socket);
        let mut request = tonic::Request::new(PullImageRequest { image: Some(spec(image)), auth: credential.map(auth_config) });
        traced::send_along(&mut request, asked, &span);
        let answered = self.images.clone().pull_image(request).await;
        // A registry may have repeated the login in its error to the runtime.
        let secrets = Secrets::of(credential);
        traced::end(&span, answered.as_ref().err(), &secrets);
        let answer = answered.map_err(|status| {
            let failure = CallFailure::of(&status);
            (secrets.redact(&failure.pull_text()).into_owned(), Some(failure.code))
        })?;
        let image_ref = answer.into_inner().image_ref;
        if image_ref.is_empty() {
            return Err((format!("imageRef of image {} is not set", image::go::quote(image)), None));
        }
        Ok(image_ref)
    }

    async fn pull_with_logins(&self, request: &PullRequest) -> Result<PulledImage, PullFailure> {
        let reference = &request.reference;
        let credentials = self.keyring.lookup(&Audience::runtime(reference.repository())).await.map_err(|error| PullFailure {
            class: FailureClass::NodeLocal,
            text: error.to_string(),
            ..PullFailure::default()
        })?;
        let pulled = |image_ref, auth: &str| PulledImage { image_ref, auth: auth.to_owned(), ..PulledImage::default() };
        let mut failures = PullFailures::default();
        if credentials.is_empty() {
            match self.pull_once(request, None).await {
                Ok(image_ref) => return Ok(pulled(image_ref, ANONYMOUS)),
                Err((text, code)) => failures.add(ANONYMOUS, text, code),
            }
        }
        for credential in &credentials {
            match self.pull_once(request, Some(credential)).await {
                Ok(image_ref) => return Ok(pulled(image_ref, credential.source())),
                Err((text, code)) => failures.add(credential.source(), text, code),
            }
        }
        Err(failures.into_failure())
    }

    /// Why the runtime cannot be used, and what to do.
    fn problem(&self, failure: &CallFailure) -> String {
        let socket = self.socket.display();
        match (&failure.unreachable, failure.code) {
            (Some(cause), _) => {
                format!("nothing answers at {socket} ({cause}): start the runtime, or name its socket with --runtime-endpoint")
            }
            (None, Code::Unimplemented) => format!(
                "what answers at {socket} does not speak CRI version 1: enable containerd's cri plugin (disabled_plugins in its \
                 config.toml), or use containerd 1.6, CRI-O 1.23 or later"
            ),
            (None, _) => format!("the runtime at {socket} does not report its version: {}", failure.text()),
        }
    }
}

#[async_trait]
impl ImageRuntime for CriRuntime {
    async fn image_status(&self, reference: &Reference, _platform: Option<&Platform>) -> Result<Option<ImageStatus>, InspectFailure> {
        let image = reference.runtime_reference();
        // Boxed, because the call's future has some KiB, which would be moved with every caller.
        let answer = within(REQUEST_LIMIT, Box::pin(self.lookup(image))).await.map_err(|failure| {
            let text = failure::scrub(&failure.text()).into_owned();
            InspectFailure { class: failure::classify_text(&text, Some(failure.code)), text }
        })?;
        match answer.into_inner().image {
            None => Ok(None),
            Some(found) if found.id.is_empty() || found.size == 0 => Err(InspectFailure {
                text: format!("Id or size of image {} is not set", image::go::quote(image)),
                class: FailureClass::NodeLocal,
            }),
            Some(found) => {
                let digest = digest_of(&found, reference);
                Ok(Some(ImageStatus { image_ref: found.id, size_bytes: found.size, digest, platform: None }))
            }
        }
    }

    async fn pull(&self, request: PullRequest, progress: Progress) -> Result<PulledImage, PullFailure> {
        if let Some(platform) = request.platform.as_ref().filter(|platform| **platform != Platform::host()) {
            return Err(PullFailure {
                text: format!(
                    "the runtime at {} pulls for its own platform, {}; {platform} can be pulled with --runtime oci-layout",
                    self.socket.display(),
                    Platform::host()
                ),
                class: FailureClass::NodeLocal,
                ..PullFailure::default()
            });
        }
        // The runtime does not show when it resolves the tag, so from here on it counts as perhaps resolved.
        progress.maybe_resolved();
        self.watcher.follow(&request.reference, &progress, self.pull_with_logins(&request)).await
    }

    async fn route(&self, reference: &Reference, _platform: Option<&Platform>) -> Route {
        // The runtime gets the login with the pull, and decides which endpoint sees it.
        let identity = self.keyring.identity(&[Audience::runtime(reference.repository())]).await;
        Route::asking_as(identity, self.route_summary(reference, Route::unknown(reference, None)).await)
    }

    async fn logins(&self, reference: &Reference) -> Result<Vec<EndpointLogins>, KeyringError> {
        // The logins are given to the runtime as by kubelet; the runtime decides which endpoint sees them.
        Ok(vec![self.keyring.explain(&Audience::runtime(reference.repository()), reference.registry()).await?])
    }

    async fn probe(&self, reference: &Reference, trace: &TraceContext) -> Option<Probe> {
        Some(self.prober.probe(&self.hosts.route().await?, reference, trace).await)
    }

    async fn estimate_size(&self, request: &PullRequest) -> Option<Result<SizeEstimate, PullFailure>> {
        Some(self.prober.estimate_size(&self.hosts.route().await?, request).await)
    }

    async fn free_bytes(&self) -> Option<u64> {
        let answer = within(DESCRIBE_LIMIT, self.images.clone().image_fs_info(ImageFsInfoRequest {})).await.ok()?;
        let system = answer.into_inner().image_filesystems.into_iter().next()?;
        // The path is the runtime's; it is the same here if the runtime's folders are mounted.
        let mountpoint = system.fs_id?.mountpoint;
        on_disk(move || crate::free_space::free_bytes(Path::new(&mountpoint))).await
    }

    async fn images(&self) -> Result<Vec<StoredImage>, InspectFailure> {
        let request = ListImagesRequest { filter: None };
        let answer = within(REQUEST_LIMIT, self.images.clone().list_images(request)).await.map_err(|failure| {
            let text = failure::scrub(&failure.text()).into_owned();
            InspectFailure { class: failure::classify_text(&text, Some(failure.code)), text }
        })?;
        Ok(answer.into_inner().images.into_iter().flat_map(stored_images).collect())
    }

    async fn describe(&self) -> RuntimeDescription {
        let keyring = self.keyring.clone();
        let description = RuntimeDescription {
            name: "cri".to_owned(),
            place: format!("unix://{}", self.socket.display()),
            credential_sources: on_disk(move || keyring.sources()).await,
            ..RuntimeDescription::default()
        };
        let request = VersionRequest { version: String::new() };
        match within(DESCRIBE_LIMIT, self.versions.clone().version(request)).await {
            Ok(answer) => {
                let answer = answer.into_inner();
                RuntimeDescription { name: answer.runtime_name, version: answer.runtime_version, ..description }
            }
            Err(failure) => RuntimeDescription { problem: Some(self.problem(&failure)), ..description },
        }
    }
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<Response<T>, CallFailure> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(|status| CallFailure::of(&status)),
        Err(_) => Err(CallFailure::too_slow()),
    }
}

fn spec(image: &str) -> ImageSpec {
    ImageSpec { image: image.to_owned(), ..ImageSpec::default() }
}

/// The login as kubelet passes it. The server's address stays empty: with one, containerd would use the login for no other name of the
/// registry, `docker.io` included.
fn auth_config(credential: &Credential) -> AuthConfig {
    AuthConfig {
        username: credential.username().to_owned(),
        password: credential.password().to_owned(),
        identity_token: credential.identity_token().to_owned(),
        registry_token: credential.registry_token().to_owned(),
        ..AuthConfig::default()
    }
}
