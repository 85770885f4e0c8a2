//! Checks, lists and clears: whether a pull may be attempted, and which failures are known.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use contract::know::MAX_KEYS_CLEARED;
use contract::messages::backoff_tracker::{self as messages, BackoffAnswer, BackoffEntry, CheckBackoff, EntryQuery};
use contract::{PodRef, TraceContext};
use image::Reference;

use super::backoff_key::BackoffKeyId;
use super::binding::not_due;
use super::entry::{Binding, Entry};
use super::exemptions::PauseInForce;
use super::input::Refusal;
use super::lease::RequestId;
use super::node::Knowledge;
use super::refusal::refusal_by;
use super::request::State;
use crate::core::delays::milliseconds;
use crate::core::failed_keys::FailedKey;
use crate::core::local_list;

/// The most reporters that a list names for one entry.
const REPORTERS_NAMED: usize = 10;

/// What a clear applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clearing {
    /// The image, normalised, if one is cleared.
    pub image: Option<String>,
    /// Back-off keys.
    pub backoff_keys: Vec<BackoffKeyId>,
}

impl Knowledge {
    /// Whether a pull may be attempted now, before its caller requests clearance, by the local replica. Sends nothing to the bus.
    pub(super) fn check(&mut self, now: Duration, CheckBackoff { key, peek, target }: CheckBackoff) -> BackoffAnswer {
        let Some(target) = target else {
            return self.local.check(now, &key, peek);
        };
        let target_keys = self.target_keys(target);
        let binding = if self.is_without_bus() { vec![] } else { self.binding(now, now, &target_keys) };
        let exempt = self.is_exempt(now, &target_keys.target.view);
        let not_due = || not_due(now, &binding).map(|entry| refusal_by(now, entry));
        // A failure that one other node alone reports refuses nothing here: the request for clearance waits for it instead.
        let without_bus = self.without_bus.and_then(|without_bus| self.still_held(now, now, without_bus, &target_keys));
        let refusing = without_bus.or_else(not_due).filter(|refusal| peek || !refusal.unconfirmed);
        if let Some(refusal) = refusing {
            let count = u64::from(!peek);
            if !exempt {
                self.counts.refused_total += count;
                if !peek {
                    self.local.refused();
                }
                return BackoffAnswer::Refused(self.refusal_message(now, refusal));
            }
            self.counts.observed_total += count;
        }
        let decided_by_fleet = !exempt && self.local.held(now, &key).is_some() && self.held_here(now, &key, &binding).is_none();
        if decided_by_fleet { BackoffAnswer::Allowed } else { self.local.check(now, &key, peek) }
    }

    /// A refusal as a message.
    #[must_use]
    pub fn refusal_message(&self, now: Duration, refusal: Refusal) -> messages::Refusal {
        messages::Refusal {
            cause: refusal.cause,
            class: refusal.class,
            next_attempt_ms: milliseconds(refusal.next_attempt.saturating_sub(now)),
            learned_by: Some(refusal.learned_by).filter(|node| *node != self.node),
            learned_ms_ago: u64::try_from(refusal.learned_ago.as_millis()).unwrap_or(u64::MAX),
            learned_trace: refusal.trace,
            unconfirmed: refusal.unconfirmed,
            entry: refusal.entry.map(|backoff_key| backoff_key.to_string()),
        }
    }

    /// The span of the attempt that last succeeded on an entry's key.
    #[must_use]
    pub fn last_success_of(&self, entry: BackoffKeyId) -> Option<TraceContext> {
        self.replica.succeeded_by(entry)
    }

    /// All known failures: shared entries, then the node's own.
    #[must_use]
    pub fn list(&self, now: Duration) -> Vec<BackoffEntry> {
        let shared = self.entries(now).into_iter().map(|entry| self.listed(now, &entry));
        shared.chain(local_list::own(&self.local, self.local.held_ones(), now, |failed| self.decided(now, failed))).collect()
    }

    /// The images that failed for a pod and have not succeeded since, whether this node's own rule refused them or not.
    #[must_use]
    pub fn list_of_pod(&self, now: Duration, pod: &PodRef) -> Vec<BackoffEntry> {
        local_list::own(&self.local, self.local.known_of_pod(pod), now, |failed| self.decided(now, failed)).collect()
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
        self.refusing(now, entries).map(|entry| entry.next_attempt.saturating_sub(now)).max()
    }

    /// Whether the fleet policy makes nodes only observe.
    #[must_use]
    pub fn fleet_observes(&self) -> bool {
        self.exemptions.fleet_observes
    }

    /// The pauses in force.
    pub fn pauses(&self, now: Duration) -> impl Iterator<Item = &PauseInForce> {
        self.exemptions.in_force(now)
    }

    fn listed(&self, now: Duration, entry: &Entry) -> BackoffEntry {
        let ago = |date: Duration| u64::try_from(now.saturating_sub(date).as_millis()).unwrap_or(u64::MAX);
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
            step: entry.step,
            since_ms: ago(entry.failing_since),
            last_ms_ago: ago(entry.failed_at),
            next_attempt_ms: milliseconds(self.next_attempt_here(now, entry).saturating_sub(now)),
            probed_by: None,
            cause: entry.newest.finding.details().map(|details| details.message.clone()).unwrap_or_default(),
            trace: entry.newest.trace,
        }
    }

    /// What a clear applies to, given a key as listed or an image; of an image, all its listed entries. None if the text is neither.
    #[must_use]
    pub fn to_clear(&self, now: Duration, what: &str) -> Option<Clearing> {
        let is_known = |backoff_key: &BackoffKeyId| self.replica.backoff_keys().any(|known| known == *backoff_key);
        if let Some(backoff_key) = BackoffKeyId::parse(what).filter(is_known) {
            return Some(Clearing { image: None, backoff_keys: vec![backoff_key] });
        }
        // Other nodes may refuse an image that this node knows nothing about.
        let name = what.rsplit(' ').next().unwrap_or(what);
        let image = Reference::parse(name).ok()?.normalised().to_owned();
        let entry_query = EntryQuery::of(name);
        let mut named = self.entries(now);
        named.retain(|entry| entry_query.names(&self.listed(now, entry)));
        named.sort_by_key(|entry| (!entry.refuses_all(), Reverse(entry.next_attempt)));
        named.truncate(MAX_KEYS_CLEARED);
        let of_image = self
            .replica
            .backoff_keys_of_image(&image)
            .into_iter()
            .filter(|backoff_key| named.iter().all(|entry| entry.backoff_key.id() != *backoff_key));
        let mut backoff_keys: Vec<BackoffKeyId> = named.iter().map(|entry| entry.backoff_key.id()).chain(of_image).collect();
        backoff_keys.truncate(MAX_KEYS_CLEARED);
        Some(Clearing { image: Some(image), backoff_keys })
    }

    /// The failures that a clear would remove, as text.
    #[must_use]
    pub fn would_clear(&self, now: Duration, clearing: &Clearing) -> Vec<String> {
        let shared =
            clearing.backoff_keys.iter().filter_map(|backoff_key| self.entry(now, *backoff_key)).map(|entry| entry.backoff_key.in_words());
        let image = clearing.image.as_deref();
        let own = self.local.held_ones().filter(|(key, _)| image.is_some_and(|image| local_list::is_of_image(&key.image, image)));
        shared.chain(own.map(|(key, _)| local_list::in_words(key))).collect()
    }

    /// Applies a clear: failures of attempts that began before it do not count any more.
    pub(super) fn cleared(&mut self, now: Duration, image: Option<&str>, backoff_keys: Vec<BackoffKeyId>, age: Duration) {
        let date = now.saturating_sub(age);
        let mut backoff_keys: BTreeSet<BackoffKeyId> = backoff_keys.into_iter().collect();
        if let Some(image) = image {
            backoff_keys.extend(self.replica.backoff_keys_of_image(image));
            self.replica.clear_image(image, date);
        }
        // Otherwise this node itself would still refuse what failed by these keys.
        self.local.clear_all(date, |key, failed| {
            image.is_some_and(|image| local_list::is_of_image(&key.image, image))
                || failed.backoff_keys.iter().any(|backoff_key| backoff_keys.contains(&backoff_key.id()))
        });
        self.retry_pauses.clear(|backoff_key| backoff_keys.contains(backoff_key));
        let news: Vec<BackoffKeyId> = backoff_keys.iter().filter(|backoff_key| self.replica.clear(**backoff_key, date)).copied().collect();
        news.iter().for_each(|backoff_key| self.openings.forget(*backoff_key));
        self.counts.cleared_total += u64::from(!news.is_empty() || image.is_some());
        let touched = |request: &super::request::Request| {
            Some(request.target_keys.target.reference.as_str()) == image
                || backoff_keys.iter().any(|backoff_key| request.target_keys.touches(*backoff_key))
        };
        let ids: Vec<RequestId> = self.requests.iter().filter(|(_, request)| touched(request)).map(|(id, _)| id).collect();
        for id in &ids {
            self.requests.change(*id, |request| {
                if matches!(request.state, State::Fresh) {
                    // It continues in its turn, like other released requests.
                    request.state = State::Delayed;
                }
            });
        }
        self.touched.extend(ids);
    }
}

/// The nodes that an entry refuses, in one word. All nodes list the same word, the reporter included, because a list of the fleet shows an
/// entry as any one of its holders sends it.
fn binds(entry: &Entry) -> &'static str {
    match entry.binding {
        Binding::Reporters => "reporters",
        Binding::Everybody if entry.reporters == 1 => "unconfirmed",
        Binding::Everybody => "everybody",
    }
}
