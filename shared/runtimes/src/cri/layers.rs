//! Finds the downloads in containerd's store that belong to a pull, and their progress.
//!
//! CRI shows no layers, but containerd's store does: a download in progress has the layer's digest, and a stored manifest has labels with
//! its repository and its layers. So a download belongs to a pull if a manifest of the pull's repository has that layer. Two concurrent
//! pulls from one repository see each other's layers.

use std::collections::{BTreeMap, BTreeSet};

use image::Reference;

use super::proto::content::{Info, Status};
use crate::progress::LayerProgress;

/// The prefix of containerd's name of a layer's download; the digest follows.
const LAYER_REF: &str = "layer-";
/// The prefix of a label; the host's name without port follows. Its value lists the repositories that the content came from.
const SOURCE_LABEL: &str = "containerd.io/distribution.source.";
/// The prefix of a manifest's label; the layer's index follows. Its value is the layer's digest.
const LAYER_LABEL: &str = "containerd.io/gc.ref.content.l.";

/// Follows the layers of one pull. The caller feeds it with containerd's answers, and it reports when more is needed.
pub(super) struct LayerTracker {
    source_label: String,
    repository: String,
    layers: Vec<LayerProgress>,
    /// Downloads of layers in progress.
    active: BTreeMap<String, (u64, u64)>,
    /// Downloads that belong to no stored manifest of our repository.
    foreign: BTreeSet<String>,
}

impl LayerTracker {
    pub(super) fn new(reference: &Reference) -> Self {
        let domain = reference.domain();
        let host = domain.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(domain, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            source_label: format!("{SOURCE_LABEL}{host}"),
            repository: reference.path().to_owned(),
            layers: Vec::new(),
            active: BTreeMap::new(),
            foreign: BTreeSet::new(),
        }
    }

    /// The filter for the store: all content from our host.
    pub(super) fn filter(&self) -> String {
        format!("labels.\"{}\"", self.source_label)
    }

    /// Takes the downloads in progress. Returns true if the store must be listed, because a download is new or has ended.
    pub(super) fn downloads(&mut self, statuses: &[Status]) -> bool {
        self.active = statuses.iter().filter_map(layer_download).collect();
        self.foreign.retain(|digest| self.active.contains_key(digest));
        let mut ended = false;
        for layer in &mut self.layers {
            match self.active.get(&layer.digest) {
                Some((done, total)) => (layer.done_bytes, layer.total_bytes) = (*done, *total),
                // It began and is no longer in progress: stored by now, or given up.
                None => ended |= layer.total_bytes > 0 && layer.done_bytes < layer.total_bytes,
            }
        }
        let known = |digest: &String| self.foreign.contains(digest) || self.layers.iter().any(|layer| layer.digest == *digest);
        ended || !self.active.keys().all(known)
    }

    /// Takes the store's contents.
    pub(super) fn stored(&mut self, contents: &[Info]) {
        let sizes: BTreeMap<&str, u64> =
            contents.iter().map(|content| (content.digest.as_str(), u64::try_from(content.size).unwrap_or_default())).collect();
        for content in contents {
            let digests = layers_of(content);
            if self.is_ours(content) && digests.iter().any(|digest| self.active.contains_key(digest)) {
                self.adopt(digests);
            }
        }
        for layer in &mut self.layers {
            if let (Some(size), false) = (sizes.get(layer.digest.as_str()), self.active.contains_key(&layer.digest)) {
                (layer.done_bytes, layer.total_bytes) = (*size, *size);
            }
        }
        let ours: BTreeSet<&String> = self.layers.iter().map(|layer| &layer.digest).collect();
        self.foreign = self.active.keys().filter(|digest| !ours.contains(digest)).cloned().collect();
    }

    /// The layers' progress, in the manifest's order.
    pub(super) fn layers(&self) -> Vec<LayerProgress> {
        self.layers.clone()
    }

    /// The progress after success: every layer is complete.
    pub(super) fn complete(&mut self) -> Vec<LayerProgress> {
        for layer in &mut self.layers {
            layer.done_bytes = layer.total_bytes;
        }
        self.layers()
    }

    fn is_ours(&self, content: &Info) -> bool {
        content.labels.get(&self.source_label).is_some_and(|sources| sources.split(',').any(|source| source == self.repository))
    }

    fn adopt(&mut self, digests: Vec<String>) {
        for digest in digests {
            if !self.layers.iter().any(|layer| layer.digest == digest) {
                let (done_bytes, total_bytes) = self.active.get(&digest).copied().unwrap_or_default();
                self.layers.push(LayerProgress { digest, done_bytes, total_bytes });
            }
        }
    }
}

fn layer_download(status: &Status) -> Option<(String, (u64, u64))> {
    let digest = status.r#ref.strip_prefix(LAYER_REF)?;
    let bytes = |count: i64| u64::try_from(count).unwrap_or_default();
    Some((digest.to_owned(), (bytes(status.offset), bytes(status.total))))
}

/// The layers of a manifest in its order; none for any other content.
fn layers_of(content: &Info) -> Vec<String> {
    let place = |label: &str| label.strip_prefix(LAYER_LABEL)?.parse::<u32>().ok();
    let layers: BTreeMap<u32, &String> = content.labels.iter().filter_map(|(label, digest)| Some((place(label)?, digest))).collect();
    layers.into_values().cloned().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tracker() -> LayerTracker {
        LayerTracker::new(&Reference::parse("localhost:5000/team/app:1").unwrap())
    }

    fn download(digest: &str, offset: i64, total: i64) -> Status {
        Status { r#ref: format!("layer-{digest}"), offset, total }
    }

    fn stored(digest: &str, size: i64, repository: &str, layers: &[&str]) -> Info {
        let mut labels: std::collections::HashMap<String, String> =
            layers.iter().enumerate().map(|(at, layer)| (format!("containerd.io/gc.ref.content.l.{at}"), (*layer).to_owned())).collect();
        labels.insert("containerd.io/distribution.source.localhost".to_owned(), repository.to_owned());
        Info { digest: digest.to_owned(), size, labels }
    }

    fn seen(tracker: &LayerTracker) -> Vec<(String, u64, u64)> {
        tracker.layers().into_iter().map(|layer| (layer.digest, layer.done_bytes, layer.total_bytes)).collect()
    }

    #[test]
    fn filter_has_the_host_without_port() {
        for (reference, filter) in [
            ("localhost:5000/a:1", "labels.\"containerd.io/distribution.source.localhost\""),
            ("busybox", "labels.\"containerd.io/distribution.source.docker.io\""),
            ("[::1]:5000/a:1", "labels.\"containerd.io/distribution.source.::1\""),
        ] {
            assert_eq!(LayerTracker::new(&Reference::parse(reference).unwrap()).filter(), filter);
        }
    }

    #[test]
    fn layers_of_our_manifest_are_followed_to_completion() {
        let mut tracker = tracker();
        assert!(!tracker.downloads(&[]));
        assert!(tracker.downloads(&[download("sha256:b", 5, 50), download("sha256:x", 1, 9)]));
        tracker.stored(&[
            stored("sha256:m", 500, "other/app,team/app", &["sha256:a", "sha256:b", "sha256:c"]),
            stored("sha256:n", 500, "other/app", &["sha256:x"]),
            stored("sha256:a", 10, "team/app", &[]),
        ]);
        let one = |digest: &str, done, total| (digest.to_owned(), done, total);
        assert_eq!(seen(&tracker), [one("sha256:a", 10, 10), one("sha256:b", 5, 50), one("sha256:c", 0, 0)]);

        assert!(!tracker.downloads(&[download("sha256:b", 20, 50), download("sha256:c", 0, 30), download("sha256:x", 2, 9)]));
        assert_eq!(seen(&tracker)[1..], [one("sha256:b", 20, 50), one("sha256:c", 0, 30)]);

        assert!(tracker.downloads(&[download("sha256:c", 7, 30)]));
        tracker.stored(&[stored("sha256:b", 50, "team/app", &[])]);
        assert_eq!(seen(&tracker)[1..], [one("sha256:b", 50, 50), one("sha256:c", 7, 30)]);

        tracker.complete();
        assert_eq!(seen(&tracker)[2], one("sha256:c", 30, 30));
    }

    #[test]
    fn manifests_without_a_download_are_ignored() {
        let mut tracker = tracker();
        tracker.downloads(&[download("sha256:x", 1, 9)]);
        tracker.stored(&[stored("sha256:m", 500, "team/app", &["sha256:a"])]);
        assert_eq!(seen(&tracker), []);
    }
}
