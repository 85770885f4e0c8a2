//! One pull: resolves the tag, chooses the platform, fetches the blobs, and adds the image to the index.

use std::sync::Arc;
use std::time::Duration;

use clock::Clock;
use contract::FailureClass;
use contract::messages::throttler::RegistryLimit;
use image::{Digest, Platform, Reference};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::download::Wanted;
use super::failure::{Reach, StepFailure, of_pull, quotable};
use super::layout::{Hasher, Layout, NewImage, PlatformFields, StatusCache, failed};
use super::manifest::{self, Descriptor, ImageManifest, MANIFEST_MAX_BYTES, Manifest};
use super::registry::{Answer, Question, Registries, Session};
use super::route::{self, RouteOptions};
use super::sources::{Purpose, Source, Sources};
use crate::free_space::free_bytes;
use crate::keyring::Keyring;
use crate::port::{PullFailure, PullRequest, PulledImage};
use crate::progress::{LayerProgress, Progress};

/// The largest config that is read for its platform, in bytes.
const CONFIG_MAX_BYTES: u64 = 8 * 1024 * 1024;
/// The deepest nesting of lists; deeper ones are circular or malicious.
pub(super) const LISTS_MAX: usize = 2;

/// Blobs in progress for each connection: one is received while another is written, or waits for another pull.
const TASKS_PER_CONNECTION: usize = 2;

/// What all pulls share.
pub(super) struct Shared {
    pub(super) layout: Layout,
    pub(super) status: StatusCache,
    pub(super) registries: Arc<Registries>,
    pub(super) keyring: Keyring,
    pub(super) route: RouteOptions,
    pub(super) connections_per_pull: usize,
    /// For the time at which an image was pulled.
    pub(super) clock: Clock,
}

/// A pull under way.
pub(super) struct Pull {
    pub(super) shared: Arc<Shared>,
    pub(super) request: PullRequest,
    pub(super) progress: Progress,
    pub(super) sources: Sources,
    /// Bounds how many blobs of this pull are received at the same time.
    pub(super) connections: Semaphore,
}

/// A manifest as received.
pub(super) struct Fetched {
    content: Vec<u8>,
    pub(super) digest: Digest,
    pub(super) manifest: Manifest,
    /// The limits that the registry stated with it.
    limits: Vec<RegistryLimit>,
}

/// The image that a reference was resolved to.
struct Resolved {
    content: Vec<u8>,
    /// The manifest's digest.
    digest: Digest,
    /// The digest that the reference itself was resolved to: the list's, if there is one.
    top: Digest,
    image: ImageManifest,
    /// The platform in the list.
    platform: Option<Platform>,
    /// The limits in the last answer that stated any.
    limits: Vec<RegistryLimit>,
}

type Steps<T> = Result<T, Vec<StepFailure>>;

/// Pulls an image.
pub(super) async fn pull(shared: Arc<Shared>, request: PullRequest, progress: Progress) -> Result<PulledImage, PullFailure> {
    let endpoints =
        route::endpoints(&request.reference, &shared.route).map_err(|failure| of_pull(vec![failure], "anonymous".to_owned()))?;
    let connections = Semaphore::new(shared.connections_per_pull.max(1));
    let pull = Arc::new(Pull { shared, request, progress, sources: Sources::new(endpoints), connections });
    let outcome = Arc::clone(&pull).run().await;
    let auth = pull.sources.auth().await;
    match outcome {
        Ok(image) => Ok(PulledImage { auth, ..image }),
        Err(failures) => Err(of_pull(failures, auth)),
    }
}

impl Pull {
    async fn run(self: Arc<Self>) -> Steps<PulledImage> {
        let resolved = self.resolve().await?;
        let blobs = resolved.image.blobs();
        let image = self.new_image(&resolved);
        let layout = &self.shared.layout;
        // Locked before the first check for a blob, until the index names the image. A manifest that was read before is put into the store
        // again.
        let needed: Vec<Digest> = blobs.iter().map(|(digest, _)| digest.clone()).chain(image.manifests()).collect();
        let pull_lock =
            layout.lock_for_pull(&needed).await.map_err(failed("note a pull in", layout.root())).map_err(|failure| vec![failure])?;
        let layer = |(digest, size): &(Digest, u64)| LayerProgress {
            digest: digest.to_string(),
            done_bytes: layout.stored_bytes(digest, *size),
            total_bytes: *size,
        };
        self.progress.set_free_bytes(free_bytes(layout.root()));
        self.progress.layers(blobs.iter().map(layer).collect());
        let wanted = |(index, (digest, size))| Wanted { urls: resolved.image.external_urls(&digest), index, digest, size };
        let wanted: Vec<_> = blobs.into_iter().enumerate().map(wanted).collect();
        let platform = match &resolved.platform {
            Some(platform) => Some(platform.clone()),
            None => self.platform_of_single(&resolved, &wanted).await?,
        };
        Arc::clone(&self).fetch_all(wanted).await?;
        let platform = match platform {
            None => self.platform_in_config(&resolved.image.config.digest)?,
            known => known,
        };
        self.add_to_index(&resolved, NewImage { platform: platform.clone(), ..image }).await?;
        drop(pull_lock);
        Ok(PulledImage {
            image_ref: format!("{}@{}", self.request.reference.repository(), resolved.digest),
            digest: Some(resolved.top.to_string()),
            platform: platform.map(|platform| platform.to_string()),
            limits: resolved.limits,
            ..PulledImage::default()
        })
    }

    /// Resolves the reference, and chooses the image for the platform from a list.
    async fn resolve(&self) -> Steps<Resolved> {
        let reference = &self.request.reference;
        let purpose = if reference.digest().is_some() { Purpose::Pull } else { Purpose::Resolve };
        let mut fetched = self.manifest(manifest::name_of(reference), reference.digest(), purpose).await?;
        self.progress.set_limits(fetched.limits.clone());
        self.progress.resolved(Vec::new());
        let top = fetched.digest.clone();
        let (mut platform, mut limits) = (None, Vec::new());
        for _ in 0..=LISTS_MAX {
            if !fetched.limits.is_empty() {
                limits = fetched.limits;
            }
            match fetched.manifest {
                Manifest::Image(image) => {
                    return Ok(Resolved { content: fetched.content, digest: fetched.digest, top, image, platform, limits });
                }
                Manifest::List(entries) => {
                    let wanted = self.request.platform.clone().unwrap_or_else(Platform::host);
                    let entry = manifest::choose(&entries, &wanted).map_err(|what| vec![self.unsuitable(what)])?;
                    platform = entry.platform.clone();
                    fetched = self.listed(&entry.descriptor).await?;
                }
            }
        }
        Err(vec![lists_of_lists()])
    }

    fn unsuitable(&self, what: String) -> StepFailure {
        unsuitable(&self.request.reference, &what)
    }

    /// A manifest that a list names; from the store if it is present.
    async fn listed(&self, entry: &Descriptor) -> Steps<Fetched> {
        let layout = &self.shared.layout;
        let stored =
            layout.read_blob(&entry.digest, MANIFEST_MAX_BYTES).map_err(failed("read", layout.root())).map_err(|failure| vec![failure])?;
        if let Some(content) = stored.filter(|content| Hasher::verifies(content, &entry.digest))
            && let Ok(manifest) = Manifest::parse(&content, "")
        {
            return Ok(Fetched { content, digest: entry.digest.clone(), manifest, limits: Vec::new() });
        }
        self.manifest(entry.digest.as_str(), Some(&entry.digest), Purpose::Pull).await
    }

    /// A manifest from the first endpoint that has it.
    async fn manifest(&self, name: &str, digest: Option<&Digest>, purpose: Purpose) -> Steps<Fetched> {
        let mut failures = Vec::new();
        for source in self.sources.candidates(purpose) {
            match self.manifest_from(source, name, digest).await {
                Ok(fetched) => return Ok(fetched),
                Err(failure) => {
                    source.pass_over();
                    let over = failure.reach == Reach::Pull;
                    failures.push(failure);
                    if over {
                        break;
                    }
                }
            }
        }
        Err(failures)
    }

    async fn manifest_from(&self, source: &Source, name: &str, digest: Option<&Digest>) -> Result<Fetched, StepFailure> {
        let session = source.session(self).await?;
        let fetched = fetch_manifest(session, name, digest).await;
        if session.has_token().await {
            self.progress.token_given();
        }
        fetched
    }

    /// The platform in the config, if a platform was asked for and the image is in no list. The config is then fetched before the layers.
    async fn platform_of_single(self: &Arc<Self>, resolved: &Resolved, wanted: &[Wanted]) -> Steps<Option<Platform>> {
        let (Some(asked), Some(config)) = (&self.request.platform, wanted.first()) else { return Ok(None) };
        config.clone().fetch(Arc::clone(self)).await?;
        let platform = self.platform_in_config(&resolved.image.config.digest)?;
        match &platform {
            Some(offered) if !asked.matches(offered) => {
                Err(vec![self.unsuitable(format!("no match for platform {asked}; the image is for {offered} alone"))])
            }
            _ => Ok(platform),
        }
    }

    fn platform_in_config(&self, config: &Digest) -> Steps<Option<Platform>> {
        let layout = &self.shared.layout;
        let content = layout
            .read_blob(config, CONFIG_MAX_BYTES)
            .map_err(failed("read", &layout.blob_path(config)))
            .map_err(|failure| vec![failure])?;
        // Other artifacts (a chart, a signature) have a config without a platform.
        Ok(content.and_then(|content| serde_json::from_slice::<PlatformFields>(&content).ok()).and_then(|fields| fields.platform()))
    }

    /// Fetches all blobs, the largest first, so that no large one runs alone at the end.
    async fn fetch_all(self: Arc<Self>, mut wanted: Vec<Wanted>) -> Steps<()> {
        wanted.sort_by_key(|blob| std::cmp::Reverse(blob.size));
        let mut running = JoinSet::new();
        let outcome = self.fetch_in(&mut running, wanted.iter().cloned()).await;
        // After a failure no task of this pull goes on or holds a lock.
        running.shutdown().await;
        if outcome.as_ref().is_err_and(|failures| failures.last().is_some_and(|failure| failure.full_disk)) {
            // On a full disk, partial blobs are removed instead of kept.
            wanted.iter().for_each(|blob| self.shared.layout.discard_partial(&blob.digest));
        }
        outcome
    }

    async fn fetch_in(self: &Arc<Self>, running: &mut JoinSet<Steps<()>>, mut waiting: impl Iterator<Item = Wanted>) -> Steps<()> {
        loop {
            let careful = self.progress.asks_for_one_blob();
            let at_once = if careful { 1 } else { self.shared.connections_per_pull.max(1) * TASKS_PER_CONNECTION };
            while running.len() < at_once
                && let Some(blob) = waiting.next()
            {
                tasks::contained_in(running, "layer", blob.fetch(Arc::clone(self)));
            }
            let fetched = tokio::select! {
                fetched = running.join_next() => fetched,
                () = self.progress.when_blob_answered(), if careful && !running.is_empty() => continue,
            };
            match fetched {
                None => return Ok(()),
                Some(Ok(fetched)) => fetched?,
                Some(Err(error)) => {
                    return Err(vec![StepFailure::here(format!("fetching a layer ended by itself: {error}"), "report this as a bug")]);
                }
            }
        }
    }

    /// The image for the index, before its platform and its time are known.
    fn new_image(&self, resolved: &Resolved) -> NewImage {
        NewImage {
            reference: self.request.reference.clone(),
            media_type: resolved.image.media_type.clone(),
            manifest: resolved.digest.clone(),
            manifest_bytes: resolved.content.len() as u64,
            resolved: resolved.top.clone(),
            platform: None,
            pulled_at: Duration::ZERO,
        }
    }

    /// Adds the image to the index.
    async fn add_to_index(&self, resolved: &Resolved, image: NewImage) -> Steps<()> {
        let layout = &self.shared.layout;
        let put = layout.put_blob(&resolved.digest, &resolved.content).and_then(|()| layout.sync_blob_folders());
        put.map_err(failed("write the manifest into", layout.root())).map_err(|failure| vec![failure])?;
        let image = NewImage { pulled_at: self.shared.clock.now().wall, ..image };
        let written = layout.add_image(&image).await.map_err(|problem| vec![StepFailure::here(problem.to_string(), "")])?;
        self.shared.status.remember(written);
        Ok(())
    }
}

/// The failure that the image has no manifest for the platform.
pub(super) fn unsuitable(reference: &Reference, what: &str) -> StepFailure {
    let advice = "name another platform with --platform, or push the image for this one";
    let what = format!("{}: {what}", reference.registry());
    // The list matched its digest, so this is the registry's own answer.
    let failure = StepFailure { authoritative: true, no_such_platform: true, ..StepFailure::here(what, advice) };
    failure.of_class(FailureClass::ContentInvalid)
}

/// The failure of too deeply nested lists.
pub(super) fn lists_of_lists() -> StepFailure {
    StepFailure::here("the manifest list names lists of lists", "push the image again").of_class(FailureClass::ContentInvalid)
}

/// A manifest by its tag or digest, from one endpoint.
pub(super) async fn fetch_manifest(session: &Session, name: &str, digest: Option<&Digest>) -> Result<Fetched, StepFailure> {
    let answer = session.ask(Question { kind: "manifests", name, accept: manifest::ACCEPT, from: 0, head: false }).await?;
    let limits = session.limits(&answer);
    Ok(Fetched { limits, ..receive_manifest(session, answer, digest).await? })
}

/// Receives a manifest, and checks its digest against the request and the registry's header.
async fn receive_manifest(session: &Session, mut answer: Answer, asked: Option<&Digest>) -> Result<Fetched, StepFailure> {
    let host = answer.host();
    let invalid = |what: String| StepFailure::at(&host, FailureClass::ContentInvalid, what);
    let Some(content) = answer.whole(MANIFEST_MAX_BYTES).await? else {
        return Err(invalid("the manifest is longer than 4 MiB, more than any registry takes".to_owned()));
    };
    if let Some(asked) = asked
        && !Hasher::verifies(&content, asked)
    {
        return Err(invalid(format!("the content of manifest {asked} has another digest")));
    }
    if answer.is_web_page(&content) {
        return Err(StepFailure::at(&host, FailureClass::Unknown, "a web page came instead of a manifest: this is no registry's answer"));
    }
    let named = Digest::parse(answer.header("docker-content-digest")).ok();
    if let Some(named) = &named
        && !Hasher::verifies(&content, named)
    {
        return Err(invalid(format!("the manifest is not the {named} that its header names")));
    }
    let manifest =
        Manifest::parse(&content, answer.content_type()).map_err(|what| invalid(quotable(&session.without_secrets(&what), 300)))?;
    let digest = asked.cloned().or(named).unwrap_or_else(|| Hasher::sha256(&content));
    Ok(Fetched { content, digest, manifest, limits: Vec::new() })
}
