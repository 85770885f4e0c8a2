//! Lists of the known failures: shared entries, and the node's own.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::messages::backoff_tracker::{BackoffEntry, EntryKind, KeyParts, LocalKey};
use contract::{NodeName, PodRef};
use image::Reference;

use super::backoff_key::BackoffKeyId;
use super::entry::Entry;
use super::failed_keys::FailedKey;
use super::lease::LeaseName;
use super::node::Knowledge;
use crate::core::delays::milliseconds_left;
use crate::core::milliseconds;

/// The most reporters that a list names for one entry.
const REPORTERS_NAMED: usize = 10;

impl Knowledge {
    /// All known failures: shared entries, then the node's own.
    #[must_use]
    pub fn list(&self, now: Duration) -> Vec<BackoffEntry> {
        // The leader whose failure opened an entry keeps its lease for a while, and makes no next attempt by it.
        let probes = self.leases.holders(now).filter(|(name, _)| matches!(name, LeaseName::Probe(..)));
        let holders: BTreeMap<BackoffKeyId, &NodeName> =
            probes.map(|(name, holder)| (name.backoff_key(), holder.unwrap_or(&self.node))).collect();
        let shared = self.entries(now).into_iter().map(|entry| {
            let probed_by = holders.get(&entry.backoff_key.id()).map(ToString::to_string);
            BackoffEntry { probed_by, ..self.listed(now, &entry) }
        });
        shared.chain(self.own_listed(now, self.failed_keys.held_ones())).collect()
    }

    /// The images that failed for a pod and have not succeeded since, whether this node's own rule refused them or not.
    #[must_use]
    pub fn list_of_pod(&self, now: Duration, pod: &PodRef) -> Vec<BackoffEntry> {
        let of_pod = self.failed_keys.known().filter(move |(key, _)| key.pod.as_ref().is_some_and(|own| own.has_name_of(pod)));
        self.own_listed(now, of_pod).collect()
    }

    /// How long entries refuse a pull that has failed so; none if the node's own rule decides.
    fn decided(&self, now: Duration, failed: &FailedKey) -> Option<Duration> {
        if self.is_without_bus() {
            return None;
        }
        let entries = failed
            .backoff_keys
            .iter()
            .filter(|backoff_key| !self.is_exempt(now, backoff_key.view()))
            .filter_map(|backoff_key| self.entry(now, backoff_key.id()));
        entries.filter(|entry| entry.refuses_all).map(|entry| entry.next_attempt.saturating_sub(now)).max()
    }

    pub(super) fn listed(&self, now: Duration, entry: &Entry) -> BackoffEntry {
        let failing = self.replica.reports(entry.backoff_key.id()).filter(|report| report.finding.details().is_some());
        let newest = std::iter::once(entry.newest.reporter.to_string());
        let mut others: Vec<String> = failing.map(|report| report.reporter.to_string()).collect();
        others.retain(|name| *name != entry.newest.reporter.as_str());
        others.sort_unstable();
        BackoffEntry {
            key: entry.backoff_key.id().to_string(),
            key_parts: entry.backoff_key.parts(),
            view: Some(entry.backoff_key.view().clone()),
            class: entry.backoff_key.class(),
            binds: binds(entry).to_owned(),
            reporters: newest.chain(others).take(REPORTERS_NAMED).collect(),
            reporter_count: entry.reporters as u64,
            step: entry.step.max(u32::try_from(entry.failures).unwrap_or(u32::MAX)),
            since_ms: ago(now, entry.failing_since),
            last_ms_ago: ago(now, entry.failed_at),
            next_attempt_ms: milliseconds_left(self.next_attempt_here(now, entry).saturating_sub(now)),
            probed_by: None,
            cause: entry.newest.finding.details().map(|details| details.message.clone()).unwrap_or_default(),
            trace: entry.newest.trace,
        }
    }

    /// Local keys as they are listed, each with its current failure.
    fn own_listed<'a>(
        &'a self,
        now: Duration,
        keys: impl Iterator<Item = (&'a LocalKey, Option<&'a FailedKey>)> + 'a,
    ) -> impl Iterator<Item = BackoffEntry> + 'a {
        keys.map(move |(key, failed)| {
            let left = failed.and_then(|failed| self.decided(now, failed)).or_else(|| self.failed_keys.held(now, key));
            let (failure, streak) = (failed.map(|failed| &failed.failure), failed.map(|failed| failed.streak));
            let ago = |date: Option<Duration>| date.map(|date| ago(now, date)).unwrap_or_default();
            BackoffEntry {
                key: in_words(key),
                key_parts: key_parts(key),
                class: failure.map(|failure| failure.class).unwrap_or_default(),
                binds: "this node".to_owned(),
                reporter_count: 1,
                step: streak.map_or(1, |streak| streak.failures),
                since_ms: ago(streak.map(|streak| streak.since)),
                last_ms_ago: ago(failure.map(|failure| failure.at)),
                next_attempt_ms: left.map(milliseconds_left).unwrap_or_default(),
                cause: failure.map(|failure| failure.cause.clone()).unwrap_or_default(),
                trace: failure.and_then(|failure| failure.trace),
                ..BackoffEntry::default()
            }
        })
    }
}

/// How long ago a date was, in milliseconds.
fn ago(now: Duration, date: Duration) -> u64 {
    milliseconds(now.saturating_sub(date))
}

/// The nodes that an entry refuses, in one word. All nodes list the same word, the reporter included, because a list of the fleet shows an
/// entry as any one of its holders sends it.
fn binds(entry: &Entry) -> &'static str {
    match (entry.refuses_all, entry.reporters) {
        (false, _) => "reporters",
        (true, 1) => "unconfirmed",
        (true, _) => "everybody",
    }
}

fn key_parts(key: &LocalKey) -> KeyParts {
    let registry = Reference::parse(&key.image).map(|image| image.registry().to_owned()).unwrap_or_default();
    KeyParts { image: key.image.clone(), pod: key.pod.clone(), ..KeyParts::of(EntryKind::NodeImage, &registry) }
}

/// A key as it is listed: the image, for a pod `namespace/name image`.
pub(super) fn in_words(key: &LocalKey) -> String {
    key.pod.as_ref().map_or_else(|| key.image.clone(), |pod| format!("{pod} {}", key.image))
}

/// Whether `asked` names the normalised `image`.
pub(super) fn is_of_image(asked: &str, image: &str) -> bool {
    asked == image || Reference::parse(asked).is_ok_and(|reference| reference.normalised() == image)
}
