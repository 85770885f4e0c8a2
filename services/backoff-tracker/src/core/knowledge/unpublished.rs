//! Reports of this node that the bus is not known to hold.
//!
//! Whoever is without a bus finds out by itself what others find out too. When the bus is back, all of them could publish the same. So a
//! report from that time is withheld until the node has read what the fleet knows, and is then published only if it changes the entry:
//! a failure that too few others report, a success that closes. Until then no entry knows of it, so that all replicas derive the same.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Withheld: the replica is without them, as those of others are. Nobody could probe in its turn else, as the newest report names the
    /// lease.
    withheld: BTreeMap<TopicId, Withheld>,
    /// Handed to the bus. The replica has them.
    sent: BTreeMap<TopicId, Sent>,
    /// The bus was lost, and what others have published meanwhile is not read yet.
    catching_up: bool,
}

#[derive(Debug)]
struct Withheld {
    own: Heard,
    /// When it is published if it still changes the entry; none: not before what others have published is read.
    due: Option<Duration>,
}

#[derive(Debug)]
struct Sent {
    /// What the bus holds under this node's name instead.
    stored: Option<Heard>,
    at: Duration,
    /// When it is published again if the bus does not hold it by then.
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
        let withheld = self.withheld.values().filter_map(|withheld| withheld.due);
        withheld.chain(self.sent.values().filter_map(|sent| sent.due)).min()
    }

    fn due(&self, now: Duration) -> BTreeSet<TopicId> {
        let is_due = |due: Option<Duration>| due.is_some_and(|due| due <= now);
        let withheld = self.withheld.iter().filter(|(_, withheld)| is_due(withheld.due)).map(|(topic, _)| *topic);
        withheld.chain(self.sent.iter().filter(|(_, sent)| is_due(sent.due)).map(|(topic, _)| *topic)).collect()
    }
}

impl Knowledge {
    /// Publishes a report of this node, or withholds it if it comes of a time without the bus.
    pub(super) fn hand_over(&mut self, now: Duration, going: &Going, report: Arc<Report>, age: Duration, effects: &mut Vec<Effect>) {
        if going.away || (self.unpublished.catching_up && self.is_alone()) {
            let (topic, date) = (report.topic.id(), now.saturating_sub(age));
            let due = (!self.unpublished.catching_up).then(|| self.turn_to_publish(now, topic));
            self.unpublished.withheld.insert(topic, Withheld { own: Heard::new(report, date, date), due });
            while self.unpublished.withheld.len() > MAX_TOPICS_OF_ONE {
                self.unpublished.withheld.pop_first();
            }
        } else {
            self.send(now, report, age, effects);
        }
    }

    fn send(&mut self, now: Duration, report: Arc<Report>, age: Duration, effects: &mut Vec<Effect>) {
        let topic = report.topic.id();
        let before = self.replica.heard(topic, &self.node).cloned();
        self.unpublished.withheld.remove(&topic);
        if !self.replica.hear(now, Arc::clone(&report), age) {
            // The node has seen something later by itself.
            return;
        }
        let sent = self.unpublished.sent.entry(topic).or_insert(Sent { stored: before, at: now, due: None });
        (sent.at, sent.due) = (now, None);
        if self.unpublished.sent.len() > MAX_TOPICS_OF_ONE {
            // The replica has forgotten the oldest of as many.
            self.unpublished.sent.retain(|topic, _| self.replica.heard(*topic, &self.node).is_some());
        }
        effects.push(Effect::Publish(report, age));
    }

    /// The bus holds this report under this node's name. Whether that is what the node reports now and was not known to be stored.
    pub(super) fn is_stored(&mut self, report: &Arc<Report>, date: Duration) -> bool {
        let topic = report.topic.id();
        let Some(sent) = self.unpublished.sent.get_mut(&topic) else { return false };
        let own = self.replica.heard(topic, &self.node).map(|own| (own.report.attempt, own.report.finding.weight()));
        if own == Some((report.attempt, report.finding.weight())) {
            self.unpublished.sent.remove(&topic);
            return true;
        }
        if sent.stored.as_ref().is_none_or(|stored| stored.date <= date) {
            sent.stored = Some(Heard::new(Arc::clone(report), date, date));
        }
        false
    }

    /// What others have published while the bus was lost is read: what this node has found out meanwhile is published in its turn, if it
    /// changes anything. Returns the wishes that this touches.
    pub(super) fn caught_up(&mut self, now: Duration) -> Vec<WishId> {
        self.unpublished.catching_up = false;
        let withheld: Vec<TopicId> = self.unpublished.withheld.keys().copied().collect();
        for topic in withheld {
            let due = self.is_news(now, topic).then(|| self.turn_to_publish(now, topic));
            match self.unpublished.withheld.get_mut(&topic) {
                Some(withheld) if due.is_some() => withheld.due = due,
                _ => drop(self.unpublished.withheld.remove(&topic)),
            }
        }
        let mut taken_back: Vec<TopicId> = self.unpublished.sent.keys().copied().collect();
        taken_back.retain(|topic| !self.keep_for_its_turn(now, *topic));
        taken_back.into_iter().flat_map(|topic| self.wishes_touching(topic)).collect()
    }

    /// Plans when a report that the bus may have lost is published again; false if it changes nothing and is taken back.
    fn keep_for_its_turn(&mut self, now: Duration, topic: TopicId) -> bool {
        let Some(lost_at) = self.unpublished.sent.get(&topic).map(|sent| sent.at + LOST_AFTER) else { return true };
        let due = if self.is_news(now, topic) {
            self.turn_to_publish(now, topic)
        } else if lost_at > now {
            // It may be on its way.
            lost_at
        } else {
            self.take_back(topic);
            return false;
        };
        if let Some(sent) = self.unpublished.sent.get_mut(&topic) {
            sent.due = Some(due);
        }
        true
    }

    /// Publishes what is due and still changes its entry; returns the wishes that this touches.
    pub(super) fn publish_due(&mut self, now: Duration, effects: &mut Vec<Effect>) -> Vec<WishId> {
        let mut touched = Vec::new();
        for topic in self.unpublished.due(now) {
            let is_news = self.is_news(now, topic);
            if let Some(Withheld { own, .. }) = self.unpublished.withheld.remove(&topic) {
                if is_news {
                    self.send(now, Arc::clone(&own.report), now.saturating_sub(own.date), effects);
                }
            } else if let Some(own) = self.replica.heard(topic, &self.node).filter(|_| is_news).cloned() {
                if let Some(sent) = self.unpublished.sent.get_mut(&topic) {
                    (sent.at, sent.due) = (now, None);
                }
                effects.push(Effect::Publish(own.report, now.saturating_sub(own.date)));
            } else {
                self.take_back(topic);
            }
            touched.extend(self.wishes_touching(topic));
        }
        touched
    }

    /// Whether what this node has found out changes the entry that others derive.
    fn is_news(&self, now: Duration, topic: TopicId) -> bool {
        let published = self.replica.heard(topic, &self.node);
        let withheld = self.unpublished.withheld.get(&topic).map(|withheld| &withheld.own);
        let Some(own) = withheld.or(published) else { return false };
        let sent = self.unpublished.sent.get(&topic).map(|sent| sent.stored.as_ref());
        let stored = sent.unwrap_or(published);
        if own.claim.is_none() {
            // Others believe those whom this success contradicts.
            let eyes = Eyes { credulous: true, ..self.eyes(now) };
            return self.replica.entry_instead(topic, stored, eyes).is_some_and(|known| known.failing_since < own.date);
        }
        let entry = |own| self.replica.entry_instead(topic, own, self.eyes(now));
        let Some(with) = entry(Some(own)).filter(|entry| entry.mine) else { return false };
        let holds_all = |entry: &Entry| entry.binding == Binding::Everybody;
        let opens = holds_all(&with) && !entry(stored).as_ref().is_some_and(holds_all);
        opens || self.replica.other_reporters(topic, own.date, self.eyes(now)) < ENOUGH_REPORTERS
    }

    /// The entry as others derive it, who have only what the bus holds.
    pub(super) fn entry_as_stored(&self, now: Duration, topic: TopicId) -> Option<Entry> {
        match self.unpublished.sent.get(&topic) {
            Some(sent) => self.replica.entry_instead(topic, sent.stored.as_ref(), self.eyes(now)),
            None => self.entry(now, topic),
        }
    }

    /// This node's report on a key is again what the bus holds.
    fn take_back(&mut self, topic: TopicId) {
        if let Some(sent) = self.unpublished.sent.remove(&topic) {
            self.replica.take_back(topic, &self.node, sent.stored);
        }
    }

    fn turn_to_publish(&self, now: Duration, topic: TopicId) -> Duration {
        now + self.fleet.turn_to_publish(&self.node, purpose(topic, 0))
    }
}
