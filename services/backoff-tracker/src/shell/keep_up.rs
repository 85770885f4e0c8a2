//! Keeping the replica up to date: received messages, missed messages, and reports to publish again.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::{ActorFutureExt as _, AsyncContext as _, Context, Handler, StreamHandler, WeakAddr, WrapFuture as _};
use bus::{BusError, BusHealth, HealthChanges, KeyValueError, Message};
use contract::know::{LEASES, PAUSES, REPORTS};
use contract::messages::registrar::FleetSeen;
use contract::{DEADLINES, version};
use futures::StreamExt as _;
use replication::{Effect, Position, Reading};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::link::{self, Found, Opened};
use crate::actor::BackoffTracker;
use crate::core::knowledge::{Input, PlantedBug};
use crate::outbound::{self, Value, Write};
use crate::stored::{self, Stored};

/// How often a bus that cannot be reached or does not answer is asked again.
const RETRIED_EVERY: Duration = Duration::from_secs(1);
/// How many answers, one after the other, measure how slow the bus is.
const TIMED_BY: usize = 3;
/// The longest time until a bus that cannot do this is asked again; three quarters of it on average. The whole fleet asks it until an
/// operator has changed the settings.
const REFUSED_RETRIED_EVERY: Duration = Duration::from_secs(4);
/// How long a snapshot may take, also when the link is opened: some 10 MiB over a slow connection, or a bucket that a node has filled.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(30);
/// Own reports that the bus did not take are published again this often at most.
const PUBLISHED_AGAIN_EVERY: Duration = Duration::from_secs(30);
/// The most nodes that count as alive, as many as a registrar knows. In a larger fleet turns would never come.
const ALIVE_MAX: u64 = 20_000;

impl StreamHandler<Vec<Message>> for BackoffTracker {
    fn handle(&mut self, messages: Vec<Message>, context: &mut Self::Context) {
        self.take_in(&messages, context);
    }

    fn finished(&mut self, _: &mut Self::Context) {
        // The bus was drained: the agent ends. Until then, the node uses its own rule.
    }
}

#[derive(actix::Message)]
#[rtype(result = "()")]
struct HealthChanged(BusHealth);

impl Handler<HealthChanged> for BackoffTracker {
    type Result = ();

    fn handle(&mut self, HealthChanged(health): HealthChanged, context: &mut Self::Context) {
        match health {
            BusHealth::Connected => self.follow(replication::Input::BusBack, context),
            BusHealth::Degraded { .. } | BusHealth::Disconnected { .. } => {
                if matches!(health, BusHealth::Disconnected { .. }) {
                    self.follow(replication::Input::Disconnected, context);
                }
                self.step(Input::BusLost, context);
                self.find_the_bus(context);
            }
        }
    }
}

/// The health without a first `Connected`: the link was opened in that state, so the bus is not back from anything.
fn after_opening(changes: HealthChanges) -> HealthChanges {
    changes.enumerate().filter_map(|(at, health)| ready((at > 0 || health != BusHealth::Connected).then_some(health))).boxed()
}

/// Sends the bus's health to the tracker while both exist. It is separate from the messages, so that not every message has to check for it.
async fn forward_health(mut changes: HealthChanges, tracker: WeakAddr<BackoffTracker>) {
    while let Some(health) = changes.next().await {
        let Some(tracker) = tracker.upgrade() else { return };
        if tracker.send(HealthChanged(health)).await.is_err() {
            return;
        }
    }
}

impl BackoffTracker {
    /// Begins to share. If the bus answers in time, the fleet's reports are read before the first request.
    pub(crate) fn begin_sharing(&mut self, context: &mut Context<Self>) {
        let Some(sharing) = &self.sharing else { return };
        let (shared, leases) = (sharing.shared.clone(), Arc::clone(&sharing.leases));
        // Tried twice, because a message may be lost, and a node without reports would ask the registry for what all others know.
        let opening = async move {
            let first = timeout(DEADLINES.attempt_lease_answer.least, link::open(shared.clone(), Arc::clone(&leases))).await;
            if first.is_err() { timeout(DEADLINES.attempt_lease_answer.least, link::open(shared, leases)).await } else { first }
        };
        context.wait(opening.into_actor(self).map(|opened, tracker, context| tracker.opened(opened, context)));
    }

    fn opened(&mut self, opened: Result<Result<Opened, KeyValueError>, Elapsed>, context: &mut Context<Self>) {
        let mut again = RETRIED_EVERY;
        match opened {
            Ok(Ok(opened)) => return self.linked(opened, context),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the fleet's reports cannot be read yet");
                if let (KeyValueError::Bus(BusError::Unsupported { .. }), Some(sharing)) = (&error, &mut self.sharing) {
                    again = REFUSED_RETRIED_EVERY.mul_f64(0.5 + 0.5 * sharing.random.fraction());
                }
            }
            Err(_) => tracing::debug!("the fleet's reports are not read yet: the bus has not answered in time"),
        }
        context.run_later(again, |tracker, context| {
            let Some(sharing) = &tracker.sharing else { return };
            let opening = timeout(SNAPSHOT_LIMIT, link::open(sharing.shared.clone(), Arc::clone(&sharing.leases)));
            context.spawn(opening.into_actor(tracker).map(|opened, tracker, context| tracker.opened(opened, context)));
        });
    }

    fn linked(&mut self, opened: Opened, context: &mut Context<Self>) {
        let Some(sharing) = &mut self.sharing else { return };
        let Opened { link, waiting, arriving, health, found } = opened;
        // Not among the actor's own tasks, which run before a caller on the same thread sees its answer.
        let (reports, leases) = (Arc::clone(&link.reports), Arc::clone(&sharing.leases));
        let writing = outbound::write_all(reports, leases, waiting, Arc::clone(&sharing.written), self.clock.clone());
        tasks::spawn("report-writer", writing);
        sharing.link = Some(link);
        context.add_stream(arriving);
        tasks::spawn("bus-health", forward_health(after_opening(health), context.address().downgrade()));
        self.take_snapshot(Reading::default(), &found, context);
        self.time_the_bus(TIMED_BY, context);
    }

    fn take_in(&mut self, messages: &[Message], context: &mut Context<Self>) {
        let now = self.clock.now().monotonic;
        let Some(sharing) = &mut self.sharing else { return };
        let known = |backoff_key| self.core.backoff_key(backoff_key);
        let (mut inputs, mut effects) = (Vec::with_capacity(messages.len()), Vec::new());
        for message in messages {
            let fleet = &sharing.shared.fleet;
            let header = |name| message.headers.get(name);
            if let Some(key) = fleet.key_of(REPORTS, &message.subject) {
                let (sequence, stamp) = (header("Nats-Sequence").and_then(|number| number.parse().ok()), stored::stamp_of(message));
                let (Some(sequence), Some(stamp)) = (sequence, stamp) else {
                    // Only the server publishes here.
                    sharing.counts.reports_refused_total += 1;
                    continue;
                };
                let age = sharing.late(now, stamp);
                effects.extend(sharing.follow(now, replication::Input::Changed { sequence }));
                if !stored::is_deleted(message) {
                    let stored = Stored { age, at: Some(stamp) };
                    inputs.extend(sharing.read(now, key, &message.payload, stored, known, true));
                }
            } else if let Some(key) = fleet.key_of(LEASES, &message.subject) {
                let Some(input) = stored::lease(key, message) else { continue };
                match &input {
                    Input::LeaseTaken { .. } => sharing.leases.saw_taken(key),
                    Input::LeaseFreed(name) => {
                        if let Some(revision) = header("Nats-Sequence").and_then(|number| number.parse().ok()) {
                            sharing.leases.saw_released(key, revision);
                        }
                        if let Some(freed) = sharing.asked.get_mut(name) {
                            *freed = true;
                        }
                    }
                    _ => {}
                }
                inputs.push(input);
            } else if let Some(key) = fleet.key_of(PAUSES, &message.subject) {
                inputs.extend(sharing.read_pause(key, message));
            }
        }
        self.step_all(now, inputs, context);
        self.keep_up(effects, context);
    }

    /// Passes an input to the follower of the reports, and carries out the effects.
    fn follow(&mut self, input: replication::Input, context: &mut Context<Self>) {
        let now = self.clock.now().monotonic;
        let Some(sharing) = &mut self.sharing else { return };
        let effects = sharing.follow(now, input);
        self.keep_up(effects, context);
    }

    fn keep_up(&mut self, effects: Vec<Effect>, context: &mut Context<Self>) {
        let mut inputs = Vec::new();
        for effect in effects {
            match effect {
                Effect::Later(after, input) => {
                    context.run_later(after, |tracker, context| tracker.follow(input, context));
                }
                Effect::Read(reading) => self.read_snapshot(reading, context),
                Effect::BusBack => inputs.push(Input::BusBack),
                Effect::CaughtUp => inputs.push(Input::CaughtUp),
                // `take_snapshot` publishes again what is lost.
                Effect::MadeAgain => {}
            }
        }
        if !inputs.is_empty() {
            self.step_all(self.clock.now().monotonic, inputs, context);
        }
    }

    fn read_snapshot(&self, reading: Reading, context: &mut Context<Self>) {
        let Some(link) = self.sharing.as_ref().and_then(|sharing| sharing.link.as_ref()) else { return };
        let asked = timeout(SNAPSHOT_LIMIT, link.read(reading.since.clone()));
        context.spawn(asked.into_actor(self).map(|read, tracker, context| match read {
            Ok(Ok(found)) => tracker.take_snapshot(reading, &found, context),
            Ok(Err(_)) | Err(_) => tracker.follow(replication::Input::NotRead, context),
        }));
    }

    /// Asks the bus each `RETRIED_EVERY` while it is lost, if the link was open before.
    pub(crate) fn find_the_bus(&mut self, context: &mut Context<Self>) {
        let (alone, within) = (self.core.is_without_bus(), self.core.bus_answers_within());
        let Some(sharing) = self.sharing.as_mut().filter(|sharing| alone && !sharing.pinging && sharing.link.is_some()) else { return };
        sharing.pinging = true;
        context.run_later(RETRIED_EVERY, move |tracker, context| {
            let asked = tracker.clock.now().monotonic;
            let Some(asking) = tracker.ask_the_bus() else { return };
            context.spawn(asking.into_actor(tracker).map(move |answered, tracker, context| tracker.found(asked, answered, context)));
            // A late answer shows how slow the bus is; the next question does not wait for it.
            context.run_later(within, |tracker, context| {
                if let Some(sharing) = &mut tracker.sharing {
                    sharing.pinging = false;
                }
                tracker.find_the_bus(context);
            });
        });
    }

    /// A small question to the bus: true if it is answered within `DEADLINES.attempt_lease_answer.most`. None if there is no connection
    /// yet.
    fn ask_the_bus(&self) -> Option<impl Future<Output = bool> + use<>> {
        let sharing = self.sharing.as_ref().filter(|sharing| sharing.link.is_some())?;
        let leases = Arc::clone(&sharing.leases);
        Some(async move {
            timeout(DEADLINES.attempt_lease_answer.most, leases.look("attempt.any", "")).await.is_ok_and(|answer| answer.is_ok())
        })
    }

    /// Measures the bus's round trip by this many questions, one after the other. Otherwise it would be learned from answers about leases
    /// that come too late, and each of those costs a request that is made without a lease.
    fn time_the_bus(&mut self, questions: usize, context: &mut Context<Self>) {
        let Some(left) = questions.checked_sub(1) else { return };
        let asked = self.clock.now().monotonic;
        let Some(asking) = self.ask_the_bus() else { return };
        context.spawn(asking.into_actor(self).map(move |answered, tracker, context| {
            if answered {
                tracker.step(Input::BusAnswered { asked }, context);
                tracker.time_the_bus(left, context);
            }
        }));
    }

    /// The bus is timed again when an answer was missed: it may have become slow.
    pub(crate) fn time_the_bus_if_it_missed(&mut self, context: &mut Context<Self>) {
        let Some(sharing) = &mut self.sharing else { return };
        let misses = self.core.counts().bus_misses_total;
        if std::mem::replace(&mut sharing.misses_timed, misses) != misses {
            self.time_the_bus(TIMED_BY, context);
        }
    }

    /// The bus has or has not answered a question that was asked while it was lost.
    fn found(&mut self, asked: Duration, answered: bool, context: &mut Context<Self>) {
        if !answered {
            return;
        }
        self.step(Input::BusAnswered { asked }, context);
        let Some(sharing) = &self.sharing else { return };
        let in_time = self.clock.now().monotonic <= asked + self.core.bus_answers_within();
        if self.core.is_without_bus() && !sharing.follower.reads_after_loss() && in_time {
            self.follow(replication::Input::BusBack, context);
        }
    }

    /// Takes in a snapshot. If the bucket was made anew or own reports were not stored, publishes them again.
    fn take_snapshot(&mut self, reading: Reading, found: &Found, context: &mut Context<Self>) {
        let now = self.clock.now();
        let Some(sharing) = &mut self.sharing else { return };
        let known = |backoff_key| self.core.backoff_key(backoff_key);
        let status = &found.reports.status;
        if let Some(asked) = stored::stored_at(status, Duration::ZERO) {
            // The first change may come late, so the time at which the snapshot began is a bound too.
            sharing.late(now.monotonic, asked);
        }
        let anew = sharing.follower.counts().snapshots == 0;
        let position = Position { created: status.created.clone(), sequence: status.sequence };
        let newest = found.reports.entries.last().map(|stored| stored.entry.revision);
        let effects = sharing.follow(now.monotonic, replication::Input::Read { reading, position, newest });
        if !effects.contains(&Effect::CaughtUp) {
            return self.keep_up(effects, context);
        }
        let mut inputs = Vec::with_capacity(found.reports.entries.len());
        // In the order in which the bus has stored them.
        let mut entries: Vec<_> = found.reports.entries.iter().collect();
        entries.sort_by_key(|stored| stored.entry.revision);
        for stored in entries {
            // After the first snapshot a node's own reports are not read back, because its last report may not be stored.
            let when = Stored { age: stored.age, at: stored::stored_at(status, stored.age) };
            inputs.extend(sharing.read(now.monotonic, &stored.entry.key, &stored.entry.value, when, known, !anew));
        }
        let again = effects.contains(&Effect::MadeAgain) || sharing.has_unsent_reports();
        if anew && self.core.has(PlantedBug::StartsAnew) {
            inputs.clear();
        }
        inputs.extend(self.pauses_found(&found.pauses, context));
        self.step_all(now.monotonic, inputs, context);
        if again {
            self.publish_again(now.monotonic);
        }
        self.keep_up(effects, context);
    }

    fn publish_again(&mut self, now: Duration) {
        let Some(sharing) = &mut self.sharing else { return };
        for (report, date) in self.core.own_reports() {
            sharing.write(Write::Store(Value::Report { report, date }));
        }
        sharing.clear_again(now);
    }

    /// Publishes again what the bus did not take although it can be reached: at most each `PUBLISHED_AGAIN_EVERY`, because it may be full.
    fn publish_unsent(&mut self, context: &mut Context<Self>) {
        let now = self.clock.now().monotonic;
        let Some(sharing) = self
            .sharing
            .as_mut()
            .filter(|sharing| !self.core.is_without_bus() && sharing.published_again_at + PUBLISHED_AGAIN_EVERY <= now)
        else {
            return;
        };
        let (has_unstored_pauses, has_unsent_reports) = (!sharing.unstored_pauses.is_empty(), sharing.has_unsent_reports());
        if has_unstored_pauses || has_unsent_reports {
            sharing.published_again_at = now;
        }
        if has_unsent_reports {
            self.publish_again(now);
        }
        if has_unstored_pauses {
            self.store_unstored_pauses(context);
        }
    }

    /// Takes the registrar's digest of the fleet.
    pub(crate) fn see_fleet(&mut self, seen: &FleetSeen, context: &mut Context<Self>) {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (alive, alive_in_zone) = (seen.place.alive.min(ALIVE_MAX), seen.place.alive_in_zone.min(ALIVE_MAX));
        let Some(sharing) = &mut self.sharing else { return };
        let in_common = seen.digest.as_ref().and_then(|digest| digest.version);
        sharing.written.version.store(version::to_write(version::READS, in_common), Ordering::Relaxed);
        if alive > 0 {
            sharing.follow(self.clock.now().monotonic, replication::Input::Followers(alive));
            let in_zone = Some(alive_in_zone).filter(|alive| *alive > 0).map(count);
            self.step(Input::Fleet { alive: count(alive), rank: seen.place.rank.map(count), in_zone }, context);
        }
        self.publish_unsent(context);
        let Some(digest) = &seen.digest else { return };
        let within = self.core.bus_answers_within();
        let position = Position { created: digest.reports_created.clone(), sequence: digest.reports_sequence };
        self.follow(replication::Input::Announced { position, within }, context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bus_is_back_after_any_loss_also_if_it_was_lost_when_the_link_was_opened() {
        let lost = || BusHealth::Disconnected { reason: "no server".to_owned() };
        for (changes, expected) in [
            (vec![BusHealth::Connected, lost(), BusHealth::Connected], vec![lost(), BusHealth::Connected]),
            (vec![lost(), BusHealth::Connected], vec![lost(), BusHealth::Connected]),
        ] {
            let forwarded: Vec<BusHealth> = after_opening(futures::stream::iter(changes).boxed()).collect().await;
            assert_eq!(forwarded, expected);
        }
    }
}
