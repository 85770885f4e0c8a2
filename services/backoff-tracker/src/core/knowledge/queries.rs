//! What is asked of the node from outside: may this be tried, what is known, forget it.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use clock::Now;
use contract::TraceContext;
use contract::know::MAX_TOPICS_CLEARED;
use contract::messages::backoff_tracker::{self as told, BackoffAnswer, BackoffEntry, BackoffKey, CheckBackoff};
use image::Reference;

use super::decide::{held, not_due};
use super::entry::{Binding, Entry};
use super::input::Held;
use super::lease::RequestId;
use super::lenience::PauseInForce;
use super::node::Knowledge;
use super::request::State;
use super::topic::TopicId;
use crate::core::local_list;
use crate::core::tracker::{Cause, milliseconds};
use crate::sought::Sought;

/// Reporters named of one entry; more say nothing more.
const REPORTERS_NAMED: usize = 10;

/// What a clear comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clearing {
    /// The image, normalised, if one is cleared.
    pub image: Option<String>,
    /// Topics.
    pub topics: Vec<TopicId>,
}

impl Knowledge {
    /// May this be tried now, by what is known here? Looks only: nothing is asked of the bus.
    pub fn check(&mut self, now: Now, check: &CheckBackoff) -> BackoffAnswer {
        let Some(target) = check.target.as_ref() else {
            return self.local.check(now, check);
        };
        let aim = self.aim(target.clone());
        let binding = if self.is_alone() { vec![] } else { self.binding(now.monotonic, &aim) };
        let lenient = self.is_lenient(now.monotonic, &target.view);
        let not_due = || not_due(now.monotonic, &binding).map(|entry| held(now.monotonic, entry));
        // What one other node alone reports is waited for, where the fleet's clearance is asked for: it refuses nobody.
        let refusing = self.still_held(now.monotonic, &aim).or_else(not_due).filter(|held| check.peek || !held.unconfirmed);
        if let Some(held) = refusing {
            let count = u64::from(!check.peek);
            if !lenient {
                self.counts.refused_by_shared_total += count;
                if !check.peek {
                    self.local.refused();
                }
                return BackoffAnswer::Held(self.told(now.monotonic, held));
            }
            self.counts.observed_total += count;
        }
        let decided_by_fleet = !lenient
            && self.local.held(now.monotonic, &check.key).is_some()
            && self.held_here(now.monotonic, &check.key, &binding).is_none();
        if decided_by_fleet { BackoffAnswer::Clear } else { self.local.check(now, check) }
    }

    /// A refusal as it travels.
    #[must_use]
    pub fn told(&self, now: Duration, held: Held) -> told::Held {
        told::Held {
            cause: held.cause,
            class: held.class,
            next_try_ms: milliseconds(held.next_try.saturating_sub(now)),
            learned_by: Some(held.learned_by).filter(|node| *node != self.node),
            learned_ms_ago: u64::try_from(held.learned_ago.as_millis()).unwrap_or(u64::MAX),
            learned_trace: held.trace,
            unconfirmed: held.unconfirmed,
            entry: held.entry.map(|topic| format!("{:032x}", topic.0)),
        }
    }

    /// The span of the attempt by which an entry was last seen in order.
    #[must_use]
    pub fn last_success_of(&self, entry: TopicId) -> Option<TraceContext> {
        self.replica.succeeded_by(entry)
    }

    /// What is known of failures: shared entries, then the node's own.
    #[must_use]
    pub fn list(&self, now: Now) -> Vec<BackoffEntry> {
        let shared = self.entries(now.monotonic).into_iter().map(|entry| self.listed(now.monotonic, &entry));
        shared.chain(local_list::own(&self.local, now.monotonic, |cause| self.decided(now.monotonic, cause))).collect()
    }

    /// How long the fleet holds what failed by a cause, where it decides that and not the node's own rule.
    fn decided(&self, now: Duration, cause: &Cause) -> Option<Duration> {
        let entries =
            cause.topics.iter().filter(|topic| !self.is_lenient(now, topic.view())).filter_map(|topic| self.entry(now, topic.id()));
        let binding = entries.filter(|entry| entry.binding == Binding::Everybody && !self.is_alone());
        binding.map(|entry| entry.next_try.saturating_sub(now)).max()
    }

    /// Whether the fleet policy says that nodes only observe.
    #[must_use]
    pub fn fleet_observes(&self) -> bool {
        self.lenience.fleet_observes
    }

    /// The pauses in force.
    pub fn pauses(&self, now: Duration) -> impl Iterator<Item = &PauseInForce> {
        self.lenience.in_force(now)
    }

    fn listed(&self, now: Duration, entry: &Entry) -> BackoffEntry {
        let ago = |date: Duration| u64::try_from(now.saturating_sub(date).as_millis()).unwrap_or(u64::MAX);
        let failing = self.replica.words(entry.topic.id()).filter(|report| report.finding.trouble().is_some());
        let newest = std::iter::once(entry.newest.reporter.to_string());
        let mut others: Vec<String> = failing.map(|report| report.reporter.to_string()).collect();
        others.retain(|name| *name != entry.newest.reporter.as_str());
        others.sort_unstable();
        BackoffEntry {
            key: format!("{:032x}", entry.topic.id().0),
            about: entry.topic.in_words(),
            view: Some(entry.topic.view().clone()),
            class: entry.topic.class(),
            binds: if entry.binding == Binding::Everybody { "everybody" } else { "reporters" }.to_owned(),
            reporters: newest.chain(others).take(REPORTERS_NAMED).collect(),
            reporter_count: entry.reporters as u64,
            step: entry.step,
            since_ms: ago(entry.failing_since),
            last_ms_ago: ago(entry.failed_at),
            next_try_ms: milliseconds(entry.next_try.saturating_sub(now)),
            probed_by: None,
            cause: entry.newest.finding.trouble().map(|trouble| trouble.message.clone()).unwrap_or_default(),
            trace: entry.newest.trace,
        }
    }

    /// What an operator means by a key as listed, or an image: of an image, all that is listed of it. None if it is neither.
    #[must_use]
    pub fn to_clear(&self, now: Duration, what: &str) -> Option<Clearing> {
        let topic = u128::from_str_radix(what, 16).ok().filter(|_| what.len() == 32).map(TopicId);
        if let Some(topic) = topic.filter(|topic| self.replica.topics().any(|known| known == *topic)) {
            return Some(Clearing { image: None, topics: vec![topic] });
        }
        // Others may hold back for an image that nothing is known of here.
        let name = what.rsplit(' ').next().unwrap_or(what);
        let image = Reference::parse(name).ok()?.normalised().to_owned();
        let sought = Sought::of(name);
        let mut named = self.entries(now);
        named.retain(|entry| sought.names(&self.listed(now, entry)));
        named.sort_by_key(|entry| (entry.binding == Binding::Reporters, Reverse(entry.next_try)));
        named.truncate(MAX_TOPICS_CLEARED);
        let of_image =
            self.replica.topics_of_image(&image).into_iter().filter(|topic| named.iter().all(|entry| entry.topic.id() != *topic));
        let mut topics: Vec<TopicId> = named.iter().map(|entry| entry.topic.id()).chain(of_image).collect();
        topics.truncate(MAX_TOPICS_CLEARED);
        Some(Clearing { image: Some(image), topics })
    }

    /// What goes by a clear, in words.
    #[must_use]
    pub fn would_clear(&self, now: Duration, clearing: &Clearing) -> Vec<String> {
        let shared = clearing.topics.iter().filter_map(|topic| self.entry(now, *topic)).map(|entry| entry.topic.in_words());
        let image = clearing.image.as_deref();
        let own = self.local.held_ones().filter(|(key, _)| image.is_some_and(|image| local_list::is_of_image(&key.image, image)));
        shared.chain(own.map(|(key, _)| local_list::in_words(key))).collect()
    }

    /// Takes a clear in: failures of attempts begun before it count no more; returns the requests that it touches.
    pub(super) fn cleared(&mut self, now: Duration, image: Option<&str>, topics: Vec<TopicId>, age: Duration) -> Vec<RequestId> {
        let date = now.saturating_sub(age);
        let mut topics: BTreeSet<TopicId> = topics.into_iter().collect();
        if let Some(image) = image {
            topics.extend(self.replica.topics_of_image(image));
            self.replica.clear_image(image, date);
            for key in local_list::keys_of_image(&self.local, image, date) {
                self.local.clear(&key);
            }
        }
        self.floors.lift(date, |key, floor| {
            image.is_some_and(|image| local_list::is_of_image(&key.image, image)) || floor.topics.iter().any(|topic| topics.contains(topic))
        });
        self.retry_pauses
            .clear(|topic| topics.contains(topic), |key| image.is_some_and(|image| local_list::is_of_image(&key.image, image)));
        // What the node's own rule holds by such a failure would hold it on.
        let by_topic = topics.iter().flat_map(|topic| self.local.failed_by(*topic));
        let failed: BTreeSet<BackoffKey> = by_topic.filter(|(_, cause)| cause.at <= date).map(|(key, _)| key).collect();
        failed.iter().for_each(|key| self.local.clear(key));
        let news: Vec<TopicId> = topics.iter().filter(|topic| self.replica.clear(**topic, date)).copied().collect();
        news.iter().for_each(|topic| self.openings.forget(*topic));
        self.counts.cleared_total += u64::from(!news.is_empty() || image.is_some());
        let touched = |request: &super::request::Request| {
            Some(request.aim.target.reference.as_str()) == image || topics.iter().any(|topic| request.aim.touches(*topic))
        };
        let ids: Vec<RequestId> = self.requests.iter().filter(|(_, request)| touched(request)).map(|(id, _)| id).collect();
        for id in &ids {
            self.requests.change(*id, |request| {
                if matches!(request.state, State::Fresh) {
                    // In its turn with the others that are released.
                    request.state = State::Held;
                }
            });
        }
        ids
    }
}
