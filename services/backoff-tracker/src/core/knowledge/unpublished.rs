//! Reports of this node that the bus is not known to hold.
//!
//! Whoever is without a bus finds out by itself what others find out too. When the bus is back, all of them could publish the same. So a
//! report from that time is withheld until the node has read what the fleet knows, and is then published only if it changes the entry:
//! a failure that too few others report, a success that closes. What changes nothing is taken back, so that all replicas derive the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::MAX_TOPICS_OF_ONE;
use super::decide::purpose;
use super::entry::{Binding, Entry, Eyes, Heard};
use super::input::Effect;
use super::lease::WishId;
use super::node::Knowledge;
use super::report::Report;
use super::topic::TopicId;
use super::wish::Going;

/// So many other nodes that report a failure are enough: as many as any class needs.
pub(super) const ENOUGH_REPORTERS: usize = 3;
/// A report that was handed to the bus this long ago and is not known to be stored was lost: one write takes 5 s at most.
const LOST_AFTER: Duration = Duration::from_secs(6);

/// What this node has found out and others may not know.
#[derive(Debug, Default)]
pub(super) struct Unpublished {
    reports: BTreeMap<TopicId, Waiting>,
    /// The bus was lost, and what others have published meanwhile is not read yet.
    catching_up: bool,
}

#[derive(Debug)]
struct Waiting {
    /// What the bus holds under this node's name instead.
    stored: Option<Heard>,
    /// When it was handed to the bus; none: it is withheld.
    sent_at: Option<Duration>,
    /// When it is published if it still changes the entry.
    due: Option<Duration>,
}

impl Unpublished {
    /// The bus is lost.
    pub(super) fn lose_the_bus(&mut self) {
        self.catching_up = true;
    }

    /// Whether the bus was lost, and what others have published meanwhile is not read yet.
    pub(super) fn is_catching_up(&self) -> bool {
        self.catching_up
    }

    /// When the next report is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.reports.values().filter_map(|waiting| waiting.due).min()
    }
}

impl Knowledge {
    /// Takes note of what this node publishes, and publishes it now unless it is to be withheld.
    pub(super) fn hand_over(&mut self, now: Duration, going: &Going, report: Arc<Report>, age: Duration, effects: &mut Vec<Effect>) {
        let topic = report.topic.id();
        let before = self.replica.heard(topic, &self.node).cloned();
        if !self.replica.hear(now, Arc::clone(&report), age) {
            // The node has seen something later by itself.
            return;
        }
        let withheld = going.away || (self.unpublished.catching_up && self.is_alone());
        let due = (withheld && !self.unpublished.catching_up).then(|| self.turn_to_publish(now, topic));
        let sent_at = (!withheld).then_some(now);
        let waiting = self.unpublished.reports.entry(topic).or_insert(Waiting { stored: before, sent_at, due });
        (waiting.sent_at, waiting.due) = (sent_at, due);
        if self.unpublished.reports.len() > MAX_TOPICS_OF_ONE {
            // The replica has forgotten the oldest of as many.
            self.unpublished.reports.retain(|topic, _| self.replica.heard(*topic, &self.node).is_some());
        }
        if !withheld {
            effects.push(Effect::Publish(report, age));
        }
    }

    /// The bus holds this report under this node's name. Whether that is what the node reports now and was not known to be stored.
    pub(super) fn is_stored(&mut self, report: &Arc<Report>, date: Duration) -> bool {
        let topic = report.topic.id();
        let Some(waiting) = self.unpublished.reports.get_mut(&topic) else { return false };
        let own = self.replica.heard(topic, &self.node).map(|own| (own.report.attempt, own.report.finding.weight()));
        if own == Some((report.attempt, report.finding.weight())) {
            self.unpublished.reports.remove(&topic);
            return true;
        }
        if waiting.stored.as_ref().is_none_or(|stored| stored.date <= date) {
            waiting.stored = Some(Heard::new(Arc::clone(report), date, date));
        }
        false
    }

    /// What others have published while the bus was lost is read: what this node has found out meanwhile is published in its turn, if it
    /// changes anything. Returns the wishes that this touches.
    pub(super) fn caught_up(&mut self, now: Duration) -> Vec<WishId> {
        self.unpublished.catching_up = false;
        let mut taken_back: Vec<TopicId> = self.unpublished.reports.keys().copied().collect();
        taken_back.retain(|topic| !self.keep_for_its_turn(now, *topic));
        taken_back.into_iter().flat_map(|topic| self.wishes_touching(topic)).collect()
    }

    /// Plans when a report is published; false if it changes nothing and is taken back.
    fn keep_for_its_turn(&mut self, now: Duration, topic: TopicId) -> bool {
        let sent_at = self.unpublished.reports.get(&topic).and_then(|waiting| waiting.sent_at);
        let lost_at = sent_at.map_or(now, |sent| sent + LOST_AFTER);
        let due = if self.is_news(now, topic) {
            self.turn_to_publish(now, topic)
        } else if lost_at > now {
            // It may be on its way.
            lost_at
        } else {
            self.take_back(topic);
            return false;
        };
        if let Some(waiting) = self.unpublished.reports.get_mut(&topic) {
            waiting.due = Some(due);
        }
        true
    }

    /// Publishes what is due and still changes its entry; returns the wishes that are touched by what does not.
    pub(super) fn publish_due(&mut self, now: Duration, effects: &mut Vec<Effect>) -> Vec<WishId> {
        let is_due = |(_, waiting): &(&TopicId, &Waiting)| waiting.due.is_some_and(|due| due <= now);
        let due: Vec<TopicId> = self.unpublished.reports.iter().filter(is_due).map(|(topic, _)| *topic).collect();
        let mut touched = Vec::new();
        for topic in due {
            let own = self.replica.heard(topic, &self.node).map(|own| (Arc::clone(&own.report), own.date));
            match own.filter(|_| self.is_news(now, topic)) {
                Some((report, date)) => {
                    if let Some(waiting) = self.unpublished.reports.get_mut(&topic) {
                        (waiting.sent_at, waiting.due) = (Some(now), None);
                    }
                    effects.push(Effect::Publish(report, now.saturating_sub(date)));
                }
                None => {
                    self.take_back(topic);
                    touched.extend(self.wishes_touching(topic));
                }
            }
        }
        touched
    }

    /// Whether the report of this node changes the entry that others derive.
    fn is_news(&self, now: Duration, topic: TopicId) -> bool {
        let Some(own) = self.replica.heard(topic, &self.node) else { return false };
        let stored = self.unpublished.reports.get(&topic).and_then(|waiting| waiting.stored.as_ref());
        if own.claim.is_none() {
            // Others believe those whom this success contradicts.
            let eyes = Eyes { credulous: true, ..self.eyes(now) };
            return self.replica.entry_instead(topic, stored, eyes).is_some_and(|known| known.failing_since < own.date);
        }
        let known = self.replica.entry_instead(topic, stored, self.eyes(now));
        let Some(entry) = self.entry(now, topic).filter(|entry| entry.mine) else { return false };
        let holds_all = |entry: &Entry| entry.binding == Binding::Everybody;
        let opens = holds_all(&entry) && !known.as_ref().is_some_and(holds_all);
        opens || self.replica.other_reporters(topic, &self.node, self.eyes(now)) < ENOUGH_REPORTERS
    }

    /// The entry as others derive it, who have only what the bus holds.
    pub(super) fn entry_as_stored(&self, now: Duration, topic: TopicId) -> Option<Entry> {
        match self.unpublished.reports.get(&topic) {
            Some(waiting) => self.replica.entry_instead(topic, waiting.stored.as_ref(), self.eyes(now)),
            None => self.entry(now, topic),
        }
    }

    /// This node's report on a key is again what the bus holds.
    fn take_back(&mut self, topic: TopicId) {
        if let Some(waiting) = self.unpublished.reports.remove(&topic) {
            self.replica.take_back(topic, &self.node, waiting.stored);
        }
    }

    fn turn_to_publish(&self, now: Duration, topic: TopicId) -> Duration {
        now + self.fleet.turn_to_publish(&self.node, purpose(topic, 0))
    }
}
