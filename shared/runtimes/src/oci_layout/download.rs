//! Fetches one blob: receives, hashes and writes it.

use std::path::Path;
use std::sync::Arc;

use contract::{FailureClass, Stage};
use http::StatusCode;
use image::Digest;
use spans::{Kind, Span};
use tracing::Instrument as _;
use url::Url;

use super::failure::{Reach, StepFailure};
use super::layout::{Partial, PartialLock, failed, holding};
use super::pull::Pull;
use super::registry::{Answer, Question, Registries, Session};
use super::route::host_label;
use super::sources::Purpose;

/// How often an interrupted body is resumed. Each resumption must bring some bytes.
const RESUMES_MAX: u32 = 5;

/// A blob to fetch.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Its index among the pull's layers, for progress.
    pub(super) index: usize,
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// Addresses to ask if no registry has it.
    pub(super) urls: Vec<Url>,
}

/// The origin of a blob.
#[derive(Clone, Copy)]
enum Origin<'a> {
    /// An endpoint of the route.
    Endpoint(&'a Session),
    /// An address outside the registries that the manifest names.
    External(&'a Registries, &'a Url),
}

impl Origin<'_> {
    async fn ask(self, digest: &Digest, from: u64) -> Result<Answer, StepFailure> {
        match self {
            Self::Endpoint(session) => {
                session.ask(Question { kind: "blobs", name: digest.as_str(), accept: "*/*", from, head: false }).await
            }
            Self::External(registries, url) => registries.ask_external(url, digest, from).await,
        }
    }

    fn host(self) -> String {
        match self {
            Self::Endpoint(session) => session.endpoint.host.clone(),
            Self::External(_, url) => host_label(url),
        }
    }
}

impl Wanted {
    /// Fetches the blob, with a span.
    pub(super) async fn fetch(self, pull: Arc<Pull>) -> Result<(), Vec<StepFailure>> {
        let span = Span::start("layer", Kind::Internal, pull.request.trace, None);
        if !span.is_some() {
            return self.fetch_once(pull).await;
        }
        span.set("oci.layer.digest", self.digest.as_str().to_owned());
        span.set("oci.layer.size", i64::try_from(self.size).unwrap_or(i64::MAX));
        let fetched = self.fetch_once(pull).instrument(span.as_tracing()).await;
        if let Err(failures) = &fetched {
            let last = failures.last();
            span.fail(last.map_or("unknown", |failure| failure.class.as_str()), last.map_or("", |failure| failure.what.as_str()));
        }
        fetched
    }

    /// Fetches the blob, unless it is present or another pull fetches it meanwhile.
    async fn fetch_once(self, pull: Arc<Pull>) -> Result<(), Vec<StepFailure>> {
        let layout = &pull.shared.layout;
        let progress = &pull.progress;
        let locked = layout.lock_partial(&self.digest, self.size, |bytes| progress.advance(self.index, bytes.min(self.size))).await;
        let here = |failure| vec![failure];
        match locked.map_err(failed("fetch a blob into", layout.root())).map_err(here)? {
            PartialLock::Present => Span::current().set("fleetpull.present", true),
            PartialLock::Ours(partial) => {
                let lock_file = partial.lock_file().map_err(failed("fetch a blob into", layout.root())).map_err(here)?;
                let fetched = holding(&lock_file, self.fetch_locked(&pull, partial)).await;
                fetched.map_err(|failures| failures.into_iter().map(of_blobs).collect::<Vec<_>>())?;
            }
        }
        progress.advance(self.index, self.size);
        Ok(())
    }

    /// Fetches the blob, whose lock this pull holds. It may wait long for a connection.
    async fn fetch_locked(&self, pull: &Pull, mut partial: Partial) -> Result<(), Vec<StepFailure>> {
        let connection = pull.connections.acquire().await;
        let outcome = self.fill(pull, &mut partial).await;
        drop(connection);
        if outcome.is_err() && partial.received() == 0 {
            partial.discard();
            return outcome;
        }
        outcome?;
        let path = partial.path().clone();
        let published = tasks::blocking("publish-blob", move || partial.publish()).await;
        published.map_err(failed("put a blob into the store from", &path)).map_err(|failure| vec![failure])
    }

    /// Fills the partial blob from the first endpoint that has it, and verifies it.
    async fn fill(&self, pull: &Pull, partial: &mut Partial) -> Result<(), Vec<StepFailure>> {
        let resumed = partial.resume(self.size).await.map_err(failed("read", partial.path())).map_err(|failure| vec![failure])?;
        pull.progress.advance(self.index, resumed);
        if resumed > 0 {
            Span::current().set("fleetpull.resumed_from", i64::try_from(resumed).unwrap_or(i64::MAX));
        }
        let mut failures = Vec::new();
        for source in pull.sources.candidates(Purpose::Pull) {
            let result = match source.session(pull).await {
                Ok(session) => self.fill_from(Origin::Endpoint(session), pull, partial).await,
                Err(failure) => Err(failure),
            };
            let Err(failure) = result else { return Ok(()) };
            source.note(&failure);
            let over = failure.reach == Reach::Pull;
            failures.push(failure);
            if over {
                break;
            }
        }
        // The last endpoint is the registry itself. External addresses are asked only if the registry lacks the blob.
        if failures.last().is_some_and(|failure| failure.class == FailureClass::NotFound) {
            for url in &self.urls {
                match self.fill_from(Origin::External(&pull.shared.registries, url), pull, partial).await {
                    Ok(()) => return Ok(()),
                    Err(failure) => failures.push(failure),
                }
            }
        }
        Err(failures)
    }

    /// Fills the partial blob from one origin; resumes after a broken connection.
    async fn fill_from(&self, origin: Origin<'_>, pull: &Pull, partial: &mut Partial) -> Result<(), StepFailure> {
        // True if some bytes come from an earlier pull; they may be the cause of a wrong digest.
        let mut from_before = partial.received() > 0;
        let mut resumes_left = RESUMES_MAX;
        let mut silence_left = 0;
        loop {
            let before = partial.received();
            let failure = match self.receive(origin, pull, partial).await {
                Ok(host) => {
                    if partial.matches() {
                        return Ok(());
                    }
                    partial.restart().map_err(failed("write", partial.path()))?;
                    if !std::mem::take(&mut from_before) {
                        let what = format!("the content of blob {} has another digest", self.digest);
                        return Err(StepFailure::at(&host, FailureClass::ContentInvalid, what));
                    }
                    continue;
                }
                Err(failure) => failure,
            };
            if !failure.transport || resumes_left == 0 {
                return Err(failure);
            }
            resumes_left -= 1;
            if partial.received() > before {
                silence_left = 1;
            } else if silence_left > 0 {
                silence_left -= 1;
            } else {
                return Err(failure);
            }
        }
    }

    /// Receives the missing bytes; returns the host that sent them.
    async fn receive(&self, origin: Origin<'_>, pull: &Pull, partial: &mut Partial) -> Result<String, StepFailure> {
        if partial.received() == self.size && self.size > 0 {
            return Ok(origin.host());
        }
        pull.progress.blob_asked();
        let mut answer = self.ask(origin, partial).await?;
        let host = answer.host();
        self.check_length(&answer, partial)?;
        while let Some(piece) = answer.piece().await? {
            if partial.received() + piece.len() as u64 > self.size {
                return Err(self.wrong_length(&host, "is longer than"));
            }
            pull.progress.blob_answered();
            write(partial, &piece)?;
            pull.progress.advance(self.index, partial.received());
        }
        if partial.received() < self.size {
            // Without an announced length, a connection that breaks looks like this too, so it is resumed. What always ends early is content.
            let what = format!("the body of blob {} ended after {} of {} bytes", self.digest, partial.received(), self.size);
            return Err(StepFailure { transport: true, ..StepFailure::at(&host, FailureClass::ContentInvalid, what) });
        }
        Ok(host)
    }

    /// Asks for the missing bytes, or for the whole blob if the endpoint cannot send a part.
    async fn ask(&self, origin: Origin<'_>, partial: &mut Partial) -> Result<Answer, StepFailure> {
        let mut from = partial.received();
        let restart = |partial: &mut Partial| partial.restart().map_err(failed("write", partial.path()));
        let mut answer = origin.ask(&self.digest, from).await?;
        if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            restart(partial)?;
            from = 0;
            // Its permit may be the endpoint's last one, for which the next request would wait without end.
            drop(answer);
            answer = origin.ask(&self.digest, from).await?;
        }
        if answer.status() == StatusCode::PARTIAL_CONTENT {
            if answer.range_start() != Some(from) {
                let what = format!("sent another part of blob {} than asked for", self.digest);
                return Err(StepFailure::at(&answer.host(), FailureClass::ContentInvalid, what));
            }
        } else if from > 0 {
            restart(partial)?;
        }
        Ok(answer)
    }

    fn check_length(&self, answer: &Answer, partial: &Partial) -> Result<(), StepFailure> {
        if answer.is_web_page(&[]) {
            let what = format!("a web page came for blob {}: this is no registry's answer", self.digest);
            return Err(StepFailure::at(&answer.host(), FailureClass::Unknown, what));
        }
        match answer.announced().map(|length| length.saturating_add(partial.received())) {
            Some(length) if length != self.size => {
                Err(self.wrong_length(&answer.host(), &format!("is announced with {length} bytes, not")))
            }
            _ => Ok(()),
        }
    }

    fn wrong_length(&self, host: &str, how: &str) -> StepFailure {
        let what = format!("blob {} {how} the {} bytes of the manifest", self.digest, self.size);
        StepFailure::at(host, FailureClass::ContentInvalid, what)
    }
}

/// Sets the stage to the blob's, unless the token server failed.
fn of_blobs(failure: StepFailure) -> StepFailure {
    let stage = if failure.stage == Stage::Token { Stage::Token } else { Stage::Blob };
    failure.at_stage(stage)
}

fn write(partial: &mut Partial, piece: &[u8]) -> Result<(), StepFailure> {
    let written = partial.write(piece);
    written.map_err(|error| StepFailure::store("write", folder_of(partial.path()), &error))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
