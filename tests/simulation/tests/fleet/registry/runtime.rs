//! The runtime of each node, which pulls from the registry.

use std::time::Duration;

use async_trait::async_trait;
use contract::messages::throttler::RegistryLimit;
use contract::{FailureClass, Stage, TraceContext};
use image::{Platform, Reference};
use runtimes::{ImageRuntime, ImageStatus, InspectFailure, Progress, PullFailure, PullRequest, PulledImage, Route, RuntimeDescription};

use super::{Behaviour, MINTED, RETRY_AFTER, RETRY_AFTER_OF_ADDRESS, RETRY_AFTER_OF_OVERLOAD, Registry};
use crate::latency::{LARGE_LAYERS, LAYERS, Latency};

/// How long a runtime waits for an answer.
const TIME_OUT: Duration = Duration::from_secs(10);

/// The runtime of one node, until the node crashes.
pub struct SimulatedRuntime {
    pub(super) registry: Registry,
    pub(super) node: usize,
    pub(super) life: u64,
}

impl SimulatedRuntime {
    fn request(&self, image: &str, span: TraceContext) -> (Behaviour, Vec<RegistryLimit>, Open<'_>) {
        let mut state = self.registry.state();
        let (got, limits) = state.request(self.node, image, span);
        (got, limits, Open { registry: &self.registry, number: state.asked.len() - 1 })
    }

    /// Waits for a random time, multiplied by the slowness of the node.
    async fn wait(&self, latency: Latency) {
        let takes = {
            let mut state = self.registry.state();
            let slowness = state.slow.get(&self.node).copied().unwrap_or(1.0);
            latency.draw(&mut state.random, slowness)
        };
        tokio::time::sleep(takes).await;
    }

    /// Waits for an answer; if `hangs`, until the time-out.
    async fn wait_unless(&self, hangs: bool) {
        if hangs {
            tokio::time::sleep(TIME_OUT).await;
        } else {
            let answer = self.registry.state().answer;
            self.wait(answer).await;
        }
    }

    fn lives(&self) -> bool {
        self.registry.state().lives.get(&self.node) == Some(&self.life)
    }
}

#[async_trait]
impl ImageRuntime for SimulatedRuntime {
    async fn image_status(&self, reference: &Reference, _: Option<&Platform>) -> Result<Option<ImageStatus>, InspectFailure> {
        let key = (self.node, reference.normalised().to_owned());
        let is_present = self.registry.state().present_since.contains_key(&key);
        Ok(is_present.then(|| ImageStatus { image_ref: key.1, ..ImageStatus::default() }))
    }

    async fn pull(&self, request: PullRequest, progress: Progress) -> Result<PulledImage, PullFailure> {
        if !self.lives() {
            std::future::pending::<()>().await;
        }
        let image = request.reference.normalised().to_owned();
        let (got, limits, pull) = self.request(&image, request.trace);
        self.wait_unless(got == Behaviour::Hang).await;
        let failed = failure(got, &limits);
        if failed.as_ref().is_none_or(|failure| failure.stage != Stage::Token) && !matches!(got, Behaviour::Hang | Behaviour::Refused) {
            progress.token_given();
        }
        if let Some(failure) = failed.clone().filter(|failure| failure.stage <= Stage::Manifest) {
            return Err(failure);
        }
        if !limits.is_empty() {
            progress.set_limits(limits.clone());
        }
        progress.resolved(Vec::new());
        progress.blob_asked();
        self.wait_unless(got == Behaviour::BlobHang).await;
        if let Some(failure) = failed.clone().filter(|failure| failure.class != FailureClass::ContentInvalid) {
            return Err(failure);
        }
        progress.blob_answered();
        pull.is_answered();
        let is_large = self.registry.state().large.is_some_and(|large| large == image);
        self.wait(if is_large { LARGE_LAYERS } else { LAYERS }).await;
        if let Some(failure) = failed {
            return Err(failure);
        }
        if !self.lives() {
            std::future::pending::<()>().await;
        }
        drop(pull);
        let mut state = self.registry.state();
        let now = state.clock.now().monotonic;
        state.present_since.entry((self.node, image.clone())).or_insert(now);
        Ok(PulledImage { image_ref: image, auth: "anonymous".to_owned(), limits, ..PulledImage::default() })
    }

    /// The route. Private images have a login of the node, which one helper mints for all nodes.
    async fn route(&self, reference: &Reference, platform: Option<&Platform>) -> Route {
        let route = Route { hash: "direct".to_owned(), shows_blobs: true, ..Route::unknown(reference, platform) };
        if reference.normalised().contains("private") {
            return Route { scope: MINTED.to_owned(), fingerprint: format!("minted-for-{}", self.node), ..route };
        }
        route
    }

    async fn describe(&self) -> RuntimeDescription {
        RuntimeDescription { name: "simulated".to_owned(), ..RuntimeDescription::default() }
    }
}

/// A running pull. Dropping it records its end.
struct Open<'a> {
    registry: &'a Registry,
    number: usize,
}

impl Open<'_> {
    fn is_answered(&self) {
        let mut state = self.registry.state();
        let now = state.clock.now().monotonic;
        if let Some(one) = state.asked.get_mut(self.number) {
            one.answered = Some(now);
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut state = self.registry.state();
        let now = state.clock.now().monotonic;
        if let Some(one) = state.asked.get_mut(self.number) {
            one.over.get_or_insert(now);
        }
    }
}

fn failure(got: Behaviour, limits: &[RegistryLimit]) -> Option<PullFailure> {
    let (class, authoritative, text) = match got {
        Behaviour::Serves | Behaviour::FailsByChance | Behaviour::Overloaded(_) | Behaviour::OverloadedProxy(_) => return None,
        Behaviour::NotFound => (FailureClass::NotFound, true, "manifest unknown"),
        Behaviour::Limited | Behaviour::SlowDown | Behaviour::AddressLimited => (FailureClass::RateLimited, true, "too many requests"),
        Behaviour::Unavailable => (FailureClass::RegistryUnavailable, true, "503 service unavailable"),
        Behaviour::ProxyUnavailable => (FailureClass::RegistryUnavailable, false, "503 service unavailable"),
        Behaviour::Refused => (FailureClass::RegistryUnavailable, false, "connection refused"),
        Behaviour::Hang => (FailureClass::RegistryUnavailable, false, "no answer"),
        Behaviour::Denied => (FailureClass::Denied, true, "unauthorized"),
        Behaviour::TokenUnavailable => (FailureClass::RegistryUnavailable, false, "token server: 503 service unavailable"),
        Behaviour::BlobUnavailable => (FailureClass::RegistryUnavailable, false, "blob: 503 service unavailable"),
        Behaviour::BlobHang => (FailureClass::RegistryUnavailable, false, "blob: no answer"),
        Behaviour::WrongBytes => (FailureClass::ContentInvalid, false, "what came for the blob has another digest"),
    };
    let stage = match got {
        Behaviour::TokenUnavailable => Stage::Token,
        Behaviour::BlobUnavailable | Behaviour::BlobHang | Behaviour::WrongBytes => Stage::Blob,
        _ => Stage::Manifest,
    };
    let stated = limits.first().and_then(|limit| limit.reset_ms).map(Duration::from_millis);
    let retry_after = match got {
        Behaviour::Limited => Some(stated.unwrap_or(RETRY_AFTER)),
        Behaviour::SlowDown => Some(RETRY_AFTER_OF_OVERLOAD),
        Behaviour::AddressLimited => Some(RETRY_AFTER_OF_ADDRESS),
        _ => None,
    };
    Some(PullFailure { text: text.to_owned(), class, authoritative, stage, retry_after, limits: limits.to_vec(), ..PullFailure::default() })
}
