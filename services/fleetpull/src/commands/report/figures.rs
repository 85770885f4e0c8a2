//! Computes the figures of a report from events in the order of their time. Memory is bounded for any number of events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use contract::{EventReason, FailureClass};

use super::event_fields::EventFields;
use super::observed::Observed;
use super::spans::{Ended, Key, Spans, key_of};
use super::spread::Spread;
use super::worst::{Tally, Worst};

/// Attempts that are remembered, so that an attempt for several pods counts once.
const ATTEMPTS_MOST: usize = 20_000;
/// Pulls whose wait cause is remembered.
const WAITING_MOST: usize = 50_000;

/// Pulls with the same outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) count: u64,
    pub(super) by_class: BTreeMap<String, u64>,
}

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) events: u64,
    pub(super) first_ms: Option<u64>,
    pub(super) last_ms: Option<u64>,
    pub(super) outcomes: BTreeMap<&'static str, Outcome>,
    pub(super) pulled_bytes: u64,
    pub(super) spared: Tally,
    pub(super) spans: u64,
    pub(super) spans_cut: u64,
    pub(super) waits: BTreeMap<&'static str, Spread>,
    pub(super) images: Worst,
    pub(super) registries: Worst,
    pub(super) nodes: Worst,
    pub(super) observed: Observed,
    /// Events that report lost events.
    pub(super) losses: u64,
    open: Spans,
    throttled: BTreeMap<Key, &'static str>,
    attempts: BTreeSet<String>,
    attempts_in_order: VecDeque<String>,
}

impl Figures {
    /// Counts an event. Events about back-off entries count for all nodes.
    pub(super) fn take(&mut self, seen: &EventFields, is_of_wanted_node: bool) {
        match seen.reason {
            EventReason::BackoffOpened
            | EventReason::BackoffProbed
            | EventReason::BackoffReleased
            | EventReason::RegistryUnavailable
            | EventReason::RegistryRecovered => self.observed.entry(seen),
            _ => {}
        }
        if !is_of_wanted_node {
            return;
        }
        self.events += 1;
        self.first_ms = Some(self.first_ms.unwrap_or(u64::MAX).min(seen.first_ms));
        self.last_ms = self.last_ms.max(Some(seen.at_ms));
        match seen.reason {
            EventReason::Pulled => self.pulled(seen),
            EventReason::Failed => self.failed(seen),
            EventReason::BackOff => self.refused(seen),
            EventReason::InspectFailed if seen.cause.as_deref() == Some("invalid_name") => self.outcome("invalid_name", seen),
            EventReason::InspectFailed => self.outcome("inspect_failed", seen),
            EventReason::ErrImageNeverPull => self.outcome("never_pull", seen),
            EventReason::Throttled => self.throttled(seen),
            EventReason::EventsDropped => self.losses = self.losses.saturating_add(seen.count),
            _ => {}
        }
    }

    /// Ends all open spans at their last event.
    pub(super) fn end(mut self) -> Self {
        let mut ended = Vec::new();
        self.open.end(&mut ended);
        self.count_ended(ended);
        self.spans_cut = self.open.cut;
        self
    }

    fn pulled(&mut self, seen: &EventFields) {
        // Without a duration the image was already present.
        if seen.duration_ms.is_none() {
            return;
        }
        self.outcome("pulled", seen);
        self.pulled_bytes = self.pulled_bytes.saturating_add(seen.size_bytes.unwrap_or_default());
        self.count_of_names(seen, Tally { pulled: seen.count, ..Tally::default() });
        self.observed.attempt(seen);
        let Some(key) = key_of(seen) else { return };
        let mut ended = Vec::new();
        let held_ms = self.open.pulled(key.clone(), seen.at_ms, &mut ended);
        self.count_ended(ended);
        match held_ms {
            Some(held_ms) => {
                self.throttled.remove(&key);
                self.waits.entry("backoff").or_default().add(held_ms);
            }
            None => self.waited(&key, seen),
        }
    }

    fn failed(&mut self, seen: &EventFields) {
        self.outcome("failed", seen);
        self.count_of_names(seen, Tally { failed: seen.count, ..Tally::default() });
        // Without a duration the registry was not asked.
        let made = if seen.duration_ms.is_some() && self.is_new(seen) { seen.count } else { 0 };
        if made > 0 {
            self.observed.attempt(seen);
        }
        let Some(key) = key_of(seen) else { return };
        self.waited(&key, seen);
        if seen.duration_ms.is_some() {
            self.extend_span(key, seen, made);
        }
    }

    fn refused(&mut self, seen: &EventFields) {
        self.outcome("backoff", seen);
        self.count_of_names(seen, Tally { refused: seen.count, ..Tally::default() });
        if let Some(key) = key_of(seen) {
            self.extend_span(key, seen, 0);
        }
    }

    fn throttled(&mut self, seen: &EventFields) {
        let cause = match seen.cause.as_deref() {
            Some("slots") => "slots",
            Some("budget") => "budget",
            _ => return,
        };
        if self.throttled.len() >= WAITING_MOST {
            self.throttled.clear();
        }
        self.throttled.extend(key_of(seen).map(|key| (key, cause)));
    }

    /// Counts how long a pull waited before its attempt, by cause.
    fn waited(&mut self, key: &Key, seen: &EventFields) {
        let cause = self.throttled.remove(key).unwrap_or("other");
        if let Some(waiting_ms) = seen.waiting_ms.filter(|ms| *ms > 0) {
            self.waits.entry(cause).or_default().add(waiting_ms);
        }
    }

    fn extend_span(&mut self, key: Key, seen: &EventFields, made: u64) {
        let mut ended = Vec::new();
        self.open.refused(key, seen, made, &mut ended);
        self.count_ended(ended);
    }

    fn count_ended(&mut self, ended: Vec<Ended>) {
        for Ended { key: (node, _, image), registry, by_rule, made } in ended {
            let tally = Tally { by_rule, made, ..Tally::default() };
            self.spans += 1;
            self.spared += tally;
            self.images.add(&image, tally);
            self.nodes.add(&node, tally);
            if let Some(registry) = registry {
                self.registries.add(&registry, tally);
            }
        }
    }

    fn count_of_names(&mut self, seen: &EventFields, tally: Tally) {
        self.nodes.add(&seen.node, tally);
        let names = [(&mut self.images, &seen.image), (&mut self.registries, &seen.registry)];
        names.into_iter().for_each(|(table, name)| name.iter().for_each(|name| table.add(name, tally)));
    }

    fn outcome(&mut self, name: &'static str, seen: &EventFields) {
        let outcome = self.outcomes.entry(name).or_default();
        outcome.count = outcome.count.saturating_add(seen.count);
        if let Some(class) = seen.class.as_deref().map(known_class) {
            let count = outcome.by_class.entry(class.to_owned()).or_default();
            *count = count.saturating_add(seen.count);
        }
    }

    /// True if the attempt was not counted yet. Each pod that waits for it has its own event.
    fn is_new(&mut self, seen: &EventFields) -> bool {
        let Some(attempt) = &seen.attempt else { return true };
        if !self.attempts.insert(attempt.clone()) {
            return false;
        }
        self.attempts_in_order.push_back(attempt.clone());
        if self.attempts_in_order.len() > ATTEMPTS_MOST
            && let Some(oldest) = self.attempts_in_order.pop_front()
        {
            self.attempts.remove(&oldest);
        }
        true
    }
}

/// Maps unknown classes to `unknown`, so that the number of classes is bounded.
fn known_class(class: &str) -> &'static str {
    let mut known = FailureClass::ALL.into_iter().map(FailureClass::as_str);
    known.find(|known| *known == class).unwrap_or(FailureClass::Unknown.as_str())
}

#[cfg(test)]
#[path = "figures_tests.rs"]
mod tests;
