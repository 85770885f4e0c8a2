//! The embedded runtime: pulls from a registry into an OCI image layout.
//!
//! The store is the layout itself, and any number of processes may share it. Downloads run on their own threads, where hashing and writing
//! do not block other work.
//!
//! A pull asks each endpoint of the route in turn (`route`), sends logins when challenged (`registry`), fetches layers in parallel
//! (`download`) and adds the image to the index when it is complete (`layout`). `upkeep` lists and removes images for operators.

mod download;
mod failure;
mod layout;
mod logins;
mod manifest;
mod options;
mod probe;
mod pull;
mod registry;
mod route;
mod size_estimate;
mod sources;
mod upkeep;
mod view;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use contract::messages::pull_coordinator::EndpointLogins;
use contract::{FailureClass, TraceContext};
use image::{Digest, Platform, Reference};
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use crate::blocking::on_disk;
use crate::free_space::free_bytes;
use crate::keyring::{Audience, KeyringError};
use crate::port::{
    ImageRuntime, ImageStatus, InspectFailure, LookFor, Looked, Probe, PullFailure, PullRequest, PulledImage, Route, RuntimeDescription,
    SizeEstimate, StoredImage,
};
use crate::progress::Progress;
use layout::{Layout, StatusCache};
pub use options::{OciLayoutOptions, Timeouts};
pub(crate) use probe::Prober;
use pull::Shared;
use registry::Registries;
pub(crate) use route::{RouteOptions, default_endpoint, route_summary};
pub use upkeep::{Freed, PruneOptions, Pruned, StoreUpkeep, UpkeepError};
pub use view::{StoreView, check_writable};

/// The number of download threads. Two keep up with four connections on loopback; most of their time is hashing.
const WORKERS: usize = 2;

/// Why the embedded runtime cannot start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store cannot be used.
    #[error("cannot use {} as an image store: {source}; {}", .path.display(), what_helps(.source))]
    Store {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The threads cannot be started.
    #[error("cannot start the download threads: {0}; raise the limit of processes for this user")]
    Threads(io::Error),
}

fn what_helps(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::InvalidData => "name another folder with --store",
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "a file stands where the store, its blobs, blobs/sha256 or .fleetpull should be a folder: move it away, or name another \
             folder with --store"
        }
        _ => "name another folder with --store, or make this one writable",
    }
}

/// The embedded runtime.
pub struct OciLayout {
    shared: Arc<Shared>,
    downloads: Downloads,
}

impl OciLayout {
    /// Opens the store; creates it if it is missing.
    ///
    /// # Errors
    /// The store cannot be written, or is no image layout of version 1.0.0.
    pub fn open(options: OciLayoutOptions) -> Result<Self, OpenError> {
        install_cryptography();
        let layout = Layout::open(&options.store, options.fsync, options.clock.now().wall)
            .map_err(|source| OpenError::Store { path: options.store.clone(), source })?;
        let route = options.route();
        let registries = Registries::new(options.timeouts, options.connections_per_registry, options.clock.clone(), options.instruments);
        let shared = Arc::new(Shared {
            layout,
            status: StatusCache::default(),
            registries: Arc::new(registries),
            keyring: options.keyring,
            route,
            clock: options.clock,
            connections_per_pull: options.connections_per_pull,
        });
        Ok(Self { shared, downloads: Downloads::start().map_err(OpenError::Threads)? })
    }

    /// For questions to registries without pulling.
    fn prober(&self) -> Prober {
        Prober { registries: Arc::clone(&self.shared.registries), keyring: self.shared.keyring.clone() }
    }
}

#[async_trait]
impl ImageRuntime for OciLayout {
    async fn image_status(&self, reference: &Reference, platform: Option<&Platform>) -> Result<Option<ImageStatus>, InspectFailure> {
        self.look(reference, platform, LookFor { presence: true, ..LookFor::default() }).await.found
    }

    async fn look(&self, reference: &Reference, platform: Option<&Platform>, wanted: LookFor) -> Looked {
        let (shared, asked, of_platform) = (Arc::clone(&self.shared), reference.clone(), platform.cloned());
        let look = move || {
            let found = if wanted.presence { shared.status.status(&shared.layout, &asked, of_platform.as_ref()) } else { Ok(None) };
            let goes_on = matches!(found, Ok(None));
            let route = (goes_on && wanted.route).then(|| (route_summary(&asked, &shared.route), shared.keyring.read()));
            let free_bytes = if goes_on && wanted.free_bytes { free_bytes(shared.layout.root()) } else { None };
            (found, route, free_bytes)
        };
        let (found, route, free_bytes) = on_disk(look).await;
        let found = found.map_err(|problem| InspectFailure { text: problem.to_string(), class: FailureClass::NodeLocal });
        let Some((route_summary, files)) = route else { return Looked { found, route: None, free_bytes } };
        let unknown = Route { shows_blobs: true, ..Route::unknown(reference, platform) };
        let (audiences, route) = match route_summary {
            None => (vec![Audience::runtime(reference.repository())], unknown),
            Some(summary) => (summary.audiences, Route { hash: summary.hash, endpoints: summary.endpoints, ..unknown }),
        };
        let route = Route::asking_as(self.shared.keyring.identity_in(files, &audiences).await, route);
        Looked { found, route: Some(route), free_bytes }
    }

    async fn pull(&self, request: PullRequest, progress: Progress) -> Result<PulledImage, PullFailure> {
        let mut download = Download(self.downloads.spawn(pull::pull(Arc::clone(&self.shared), request, progress).in_current_span()));
        (&mut download.0).await.unwrap_or_else(|error| {
            let text = format!("the download ended by itself: {error}; report this as a bug");
            Err(PullFailure { text, class: FailureClass::NodeLocal, ..PullFailure::default() })
        })
    }

    async fn route(&self, reference: &Reference, platform: Option<&Platform>) -> Route {
        let looked = self.look(reference, platform, LookFor { route: true, ..LookFor::default() }).await;
        looked.route.unwrap_or_else(|| Route::unknown(reference, platform))
    }

    async fn logins(&self, reference: &Reference) -> Result<Vec<EndpointLogins>, KeyringError> {
        logins::logins(&self.shared.keyring, &self.shared.route, reference).await
    }

    async fn probe(&self, reference: &Reference, trace: &TraceContext) -> Option<Probe> {
        Some(self.prober().probe(&self.shared.route, reference, trace).await)
    }

    async fn estimate_size(&self, request: &PullRequest) -> Option<Result<SizeEstimate, PullFailure>> {
        Some(self.prober().estimate_size(&self.shared.route, request).await)
    }

    async fn missing_bytes(&self, blobs: &[(Digest, u64)]) -> Option<u64> {
        let (shared, blobs) = (Arc::clone(&self.shared), blobs.to_vec());
        let missing = move |(digest, bytes): &(Digest, u64)| bytes.saturating_sub(shared.layout.stored_bytes(digest, *bytes));
        Some(on_disk(move || blobs.iter().map(missing).fold(0, u64::saturating_add)).await)
    }

    async fn free_bytes(&self) -> Option<u64> {
        let shared = Arc::clone(&self.shared);
        on_disk(move || free_bytes(shared.layout.root())).await
    }

    async fn images(&self) -> Result<Vec<StoredImage>, InspectFailure> {
        let shared = Arc::clone(&self.shared);
        let images = on_disk(move || shared.layout.images(|_| true)).await;
        images.map_err(|problem| InspectFailure { text: problem.to_string(), class: FailureClass::NodeLocal })
    }

    async fn describe(&self) -> RuntimeDescription {
        let shared = Arc::clone(&self.shared);
        let look = move || (shared.layout.read_index().err().map(|problem| problem.to_string()), shared.keyring.sources());
        let (problem, credential_sources) = on_disk(look).await;
        RuntimeDescription {
            name: "oci-layout".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            place: self.shared.layout.root().display().to_string(),
            problem,
            credential_sources,
        }
    }
}

fn install_cryptography() {
    // An error means that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A download that is cancelled when it is dropped; received bytes are kept.
struct Download(JoinHandle<Result<PulledImage, PullFailure>>);

impl Drop for Download {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The download threads.
struct Downloads(Option<Runtime>);

impl Downloads {
    fn start() -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        Ok(Self(Some(builder.worker_threads(WORKERS).thread_name("download").enable_all().build()?)))
    }

    fn spawn(
        &self,
        pull: impl Future<Output = Result<PulledImage, PullFailure>> + Send + 'static,
    ) -> JoinHandle<Result<PulledImage, PullFailure>> {
        match &self.0 {
            Some(runtime) => tasks::contained_on(runtime.handle(), "download", pull),
            // There is none only while the runtime is being dropped; then there are no callers.
            None => tasks::contained_on(&Handle::current(), "download", pull),
        }
    }
}

impl Drop for Downloads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting for the threads would panic within another runtime.
            runtime.shutdown_background();
        }
    }
}

#[cfg(feature = "fuzzing")]
pub(crate) use fuzzing::{fuzz_challenge, fuzz_hosts_file, fuzz_manifest, fuzz_rate_limits};

/// The parsers of this adapter.
#[cfg(feature = "fuzzing")]
mod fuzzing {
    use std::path::Path;
    use std::time::Duration;

    use http::HeaderMap;
    use image::Platform;

    use super::manifest::{Manifest, choose};
    use super::{registry, route};

    pub(crate) fn fuzz_hosts_file(text: &str, folder: &Path) {
        route::fuzz_hosts_file(text, folder);
    }

    pub(crate) fn fuzz_manifest(content: &[u8], platform: &Platform) {
        match Manifest::parse(content, "") {
            Ok(Manifest::Image(image)) => drop((image.blobs(), image.size_bytes())),
            Ok(Manifest::List(entries)) => drop(choose(&entries, platform)),
            Err(_) => {}
        }
    }

    pub(crate) fn fuzz_challenge(headers: &HeaderMap) {
        registry::fuzz_challenge(headers);
    }

    pub(crate) fn fuzz_rate_limits(headers: &HeaderMap, wall: Duration) {
        registry::fuzz_rate_limits(headers, wall);
    }
}
