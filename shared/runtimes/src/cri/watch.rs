//! Follows the progress of a pull in containerd's store.

use std::convert::Infallible;
use std::time::Duration;

use image::Reference;
use tokio::sync::OnceCell;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::layers::LayerTracker;
use super::proto::content::content_client::ContentClient;
use super::proto::content::{Info, ListContentRequest, ListStatusesRequest};
use super::proto::runtime::VersionRequest;
use super::proto::runtime::runtime_service_client::RuntimeServiceClient;
use crate::progress::Progress;

/// The pause between two looks. A look costs containerd about 1.4 ms, and a progress bar moves smoothly enough.
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// containerd's name in CRI.
const CONTAINERD: &str = "containerd";
/// The namespace in which containerd keeps images that CRI pulls.
const NAMESPACE: (&str, &str) = ("containerd-namespace", "k8s.io");

/// Reads the store of a runtime that is containerd.
pub(super) struct Watcher {
    channel: Channel,
    is_containerd: OnceCell<bool>,
}

impl Watcher {
    pub(super) fn new(channel: Channel) -> Self {
        Self { channel, is_containerd: OnceCell::new() }
    }

    /// Runs `pull`, and keeps `progress` up to date meanwhile.
    pub(super) async fn follow<T, E>(
        &self,
        reference: &Reference,
        progress: &Progress,
        pull: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut tracker = LayerTracker::new(reference);
        let result = tokio::select! {
            biased;
            result = pull => result,
            never = self.look_on(&mut tracker, progress) => match never {},
        };
        if result.is_ok() {
            progress.layers(tracker.complete());
        }
        result
    }

    /// Updates the progress for ever. Errors are ignored: a pull does not fail because its progress is unknown.
    async fn look_on(&self, tracker: &mut LayerTracker, progress: &Progress) -> Infallible {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !self.is_containerd().await {
                return std::future::pending().await;
            }
            match self.look(tracker).await {
                Ok(()) => {
                    let layers = tracker.layers();
                    if layers.iter().any(|layer| layer.done_bytes > 0) {
                        progress.blob_answered();
                    }
                    // The first layer shows that the registry has resolved the tag.
                    if layers.is_empty() { progress.layers(layers) } else { progress.resolved(layers) }
                }
                Err(status) => tracing::debug!(code = ?status.code(), "the progress of a pull cannot be read"),
            }
        }
    }

    async fn look(&self, tracker: &mut LayerTracker) -> Result<(), Status> {
        let mut client = ContentClient::new(self.channel.clone());
        let statuses = client.list_statuses(in_namespace(ListStatusesRequest { filters: Vec::new() })).await?.into_inner().statuses;
        if tracker.downloads(&statuses) {
            let request = in_namespace(ListContentRequest { filters: vec![tracker.filter()] });
            let mut answers = client.list(request).await?.into_inner();
            let mut contents: Vec<Info> = Vec::new();
            while let Some(answer) = answers.message().await? {
                contents.extend(answer.info);
            }
            tracker.stored(&contents);
        }
        Ok(())
    }

    /// Whether the runtime says that it is containerd; false if it does not answer.
    pub(super) async fn is_containerd(&self) -> bool {
        let ask = || async {
            let request = VersionRequest { version: String::new() };
            let answer = RuntimeServiceClient::new(self.channel.clone()).version(request).await?;
            Ok::<_, Status>(answer.into_inner().runtime_name == CONTAINERD)
        };
        // Without an answer it is asked again at the next pull.
        self.is_containerd.get_or_try_init(ask).await.is_ok_and(|is_containerd| *is_containerd)
    }
}

fn in_namespace<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let (name, value) = NAMESPACE;
    request.metadata_mut().insert(name, tonic::metadata::MetadataValue::from_static(value));
    request
}
