//! Keeping up with the fleet: what arrives, what was missed, what must be said again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::{ActorFutureExt as _, AsyncContext as _, Context, Handler, StreamHandler, WeakAddr, WrapFuture as _};
use bus::{BusError, BusHealth, HealthChanges, KeyValueError, Message};
use contract::know::{LEASES, PAUSES, REPORTS, ReportKey};
use contract::messages::registrar::FleetSeen;
use contract::version;
use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::link::{self, Found, Opened};
use crate::actor::{BackoffTracker, Core};
use crate::core::knowledge::{BUS_ANSWER, BUS_ANSWER_MOST, BackoffKeyId, Input, PlantedBug};
use crate::outbound::{self, WRITES_WAITING, Write};
use crate::stored::{self, Stored};

/// How often a bus that is not there, or does not answer, is tried again.
const TRIED_EVERY: Duration = Duration::from_secs(1);
/// So many answers, one after the other, say how slow the bus is.
const TIMED_BY: usize = 3;
/// How often at least a bus that cannot do this is tried again, on average after three quarters of it: a whole fleet asks it, until
/// somebody has changed what is set.
const REFUSED_TRIED_EVERY: Duration = Duration::from_secs(4);
/// Snapshots are this far apart at least, whatever arrives.
const SNAPSHOTS_APART: Duration = Duration::from_secs(2);
/// Snapshots of all nodes are spread so that a server gives 200 a second. What was known serves meanwhile.
const SPREAD_OF_ONE: Duration = Duration::from_millis(5);
/// All nodes read all when a bus works again to which they have a connection, or that was wiped: over this at most.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);
/// Few miss the same message, and connections that were lost come back one after the other: over this at most.
const LONGEST_SPREAD_OF_FEW: Duration = Duration::from_secs(2);
/// How long a snapshot may take, also when the way is opened: some ten MiB over a slow line, or a bucket that somebody has filled.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(30);
/// Own words that the bus did not take are offered again this often at most.
const SAID_AGAIN_EVERY: Duration = Duration::from_secs(30);
/// A change this far ahead of a snapshot did not come while it was read.
const PLAUSIBLY_AHEAD: u64 = 10_000;
/// The most nodes that are believed to be alive, as many as a registrar knows: turns of a fleet said to be larger never come.
const ALIVE_MAX: u64 = 20_000;

impl StreamHandler<Vec<Message>> for BackoffTracker {
    fn handle(&mut self, messages: Vec<Message>, context: &mut Self::Context) {
        self.take_in(&messages, context);
    }

    fn finished(&mut self, _: &mut Self::Context) {
        // The bus was drained: the agent ends. Until it has, the node goes by its own rule.
    }
}

/// How the bus is.
#[derive(actix::Message)]
#[rtype(result = "()")]
struct BusIs(BusHealth);

impl Handler<BusIs> for BackoffTracker {
    type Result = ();

    fn handle(&mut self, BusIs(health): BusIs, context: &mut Self::Context) {
        match health {
            // The first word on it is how it was when the way was opened.
            BusHealth::Connected if !self.greeted() => {}
            BusHealth::Connected => self.bus_is_back(context),
            BusHealth::Degraded { .. } | BusHealth::Disconnected { .. } => {
                if let (BusHealth::Disconnected { .. }, Some(sharing)) = (&health, &mut self.sharing) {
                    sharing.disconnected = true;
                }
                self.step(Input::BusGone, context);
                self.find_the_bus(context);
            }
        }
    }
}

/// Tells the tracker how the bus is, while both are there. Beside the messages rather than among them: each of them would look whether
/// there is a word on it.
async fn tell_health(mut changes: HealthChanges, tracker: WeakAddr<BackoffTracker>) {
    while let Some(health) = changes.next().await {
        let Some(tracker) = tracker.upgrade() else { return };
        if tracker.send(BusIs(health)).await.is_err() {
            return;
        }
    }
}

impl BackoffTracker {
    /// Begins: what is known to the fleet shall be known here before the first question, if the bus answers in time.
    pub(crate) fn begin_sharing(&mut self, context: &mut Context<Self>) {
        let Some(sharing) = &self.sharing else { return };
        let (shared, leases) = (sharing.shared.clone(), Arc::clone(&sharing.leases));
        // A question or its answer may be lost; a node that knows nothing would ask the registry what all others know.
        let opening = async move {
            let first = timeout(BUS_ANSWER, link::open(shared.clone(), Arc::clone(&leases))).await;
            if first.is_err() { timeout(BUS_ANSWER, link::open(shared, leases)).await } else { first }
        };
        context.wait(opening.into_actor(self).map(|opened, tracker, context| tracker.opened(opened, context)));
    }

    fn opened(&mut self, opened: Result<Result<Opened, KeyValueError>, Elapsed>, context: &mut Context<Self>) {
        let mut again = TRIED_EVERY;
        match opened {
            Ok(Ok(opened)) => return self.linked(opened, context),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the fleet's knowledge cannot be read yet");
                if let (KeyValueError::Bus(BusError::Unsupported { .. }), Some(sharing)) = (&error, &mut self.sharing) {
                    again = REFUSED_TRIED_EVERY.mul_f64(0.5 + 0.5 * sharing.random.fraction());
                }
            }
            Err(_) => tracing::debug!("the fleet's knowledge is not read yet: the bus takes its time"),
        }
        context.run_later(again, |tracker, context| {
            let Some(sharing) = &tracker.sharing else { return };
            let opening = timeout(SNAPSHOT_LIMIT, link::open(sharing.shared.clone(), Arc::clone(&sharing.leases)));
            context.spawn(opening.into_actor(tracker).map(|opened, tracker, context| tracker.opened(opened, context)));
        });
    }

    fn linked(&mut self, opened: Opened, context: &mut Context<Self>) {
        let Some(sharing) = &mut self.sharing else { return };
        let Opened { link, arriving, health, found } = opened;
        let (writes, waiting) = mpsc::channel(WRITES_WAITING);
        // Not among the actor's own tasks, which run before a caller on the same thread sees its answer.
        let (reports, leases) = (Arc::clone(&link.reports), Arc::clone(&sharing.leases));
        tasks::spawn("report-writer", outbound::write_all(reports, leases, waiting, Arc::clone(&sharing.written), self.clock.clone()));
        sharing.link = Some(link);
        sharing.writes = Some(writes);
        context.add_stream(arriving);
        tasks::spawn("bus-health", tell_health(health, context.address().downgrade()));
        self.take_snapshot(found, context);
        self.step_all(self.clock.now().monotonic, [Input::BusBack, Input::CaughtUp], context);
        self.time_the_bus(TIMED_BY, context);
    }

    /// Takes in what has been said.
    fn take_in(&mut self, messages: &[Message], context: &mut Context<Self>) {
        let now = self.clock.now().monotonic;
        let (Core::Sharing(knowledge), Some(sharing)) = (&self.core, &mut self.sharing) else { return };
        let known = |backoff_key| knowledge.backoff_key(backoff_key);
        let mut inputs = Vec::with_capacity(messages.len());
        let mut missed = false;
        for message in messages {
            let fleet = &sharing.shared.fleet;
            let header = |name| message.headers.get(name);
            if let Some(key) = fleet.key_of(REPORTS, &message.subject) {
                let (sequence, stamp) = (header("Nats-Sequence").and_then(|number| number.parse().ok()), stored::stamp_of(message));
                let (Some(sequence), Some(stamp)) = (sequence, stamp) else {
                    // Nobody but the server publishes here.
                    sharing.counts.refused += 1;
                    continue;
                };
                let age = sharing.late(now, stamp);
                let gap = sharing.follow(sequence);
                sharing.counts.gaps += u64::from(gap);
                missed |= gap;
                let read = ReportKey::read(key);
                if stored::is_gone(message) {
                    continue;
                }
                if let Some(own) = read.as_ref().filter(|key| key.node == sharing.node) {
                    inputs.push(Input::ReportStored(BackoffKeyId(own.backoff_key)));
                    continue;
                }
                let stored = Stored { age, at: Some(stamp) };
                match read.and_then(|key| sharing.reader.heard(key, &message.payload, stored, known)) {
                    Some(heard) => inputs.push(heard),
                    None => sharing.refuse(now, key, &message.payload),
                }
            } else if let Some(key) = fleet.key_of(LEASES, &message.subject) {
                let Some(input) = stored::lease(key, message) else { continue };
                match &input {
                    Input::LeaseTaken { name, holder, .. } => sharing.holders.took(*name, holder.clone()),
                    Input::LeaseFreed(name) => {
                        sharing.holders.freed(*name);
                        if let Some(freed) = sharing.asked.get_mut(name) {
                            *freed = true;
                        }
                    }
                    _ => {}
                }
                inputs.push(input);
            } else if let Some(key) = fleet.key_of(PAUSES, &message.subject) {
                let value = (!stored::is_gone(message)).then_some(&*message.payload);
                inputs.extend(stored::pause(key, value, Duration::ZERO));
            }
        }
        self.step_all(now, inputs, context);
        if missed {
            self.catch_up(LONGEST_SPREAD_OF_FEW, context);
        }
    }

    /// The bus can be reached again. If the connection was lost, the node missed reports, and goes by its own rule until it has read them.
    fn bus_is_back(&mut self, context: &mut Context<Self>) {
        let Some(sharing) = &mut self.sharing else { return };
        // What was begun before may hang for as long as it may.
        sharing.catching_up = false;
        if sharing.disconnected {
            return self.catch_up(LONGEST_SPREAD_OF_FEW, context);
        }
        self.step(Input::BusBack, context);
        self.catch_up(LONGEST_SPREAD, context);
    }

    /// Whether the bus has said before how it is.
    fn greeted(&mut self) -> bool {
        self.sharing.as_mut().is_some_and(|sharing| std::mem::replace(&mut sharing.greeted, true))
    }

    /// While the bus is gone although it was there: asks it each second.
    pub(crate) fn find_the_bus(&mut self, context: &mut Context<Self>) {
        let Core::Sharing(knowledge) = &self.core else { return };
        let (alone, within) = (knowledge.is_without_bus(), knowledge.bus_answers_within());
        let Some(sharing) = self.sharing.as_mut().filter(|sharing| alone && !sharing.pinging && sharing.link.is_some()) else { return };
        sharing.pinging = true;
        context.run_later(TRIED_EVERY, move |tracker, context| {
            let asked = tracker.clock.now().monotonic;
            let Some(asking) = tracker.ask_the_bus() else { return };
            context.spawn(asking.into_actor(tracker).map(move |answered, tracker, context| tracker.found(asked, answered, context)));
            // An answer that is late says how slow the bus is; the next question does not wait for it.
            context.run_later(within, |tracker, context| {
                if let Some(sharing) = &mut tracker.sharing {
                    sharing.pinging = false;
                }
                tracker.find_the_bus(context);
            });
        });
    }

    /// A small question to the bus: true if it is answered within [`BUS_ANSWER_MOST`]. None if there is no connection yet.
    fn ask_the_bus(&self) -> Option<impl Future<Output = bool> + use<>> {
        let sharing = self.sharing.as_ref().filter(|sharing| sharing.link.is_some())?;
        let leases = Arc::clone(&sharing.leases);
        Some(async move { timeout(BUS_ANSWER_MOST, leases.look("try.anybody", "")).await.is_ok_and(|answer| answer.is_ok()) })
    }

    /// Measures the bus's round trip by this many questions, one after the other. Otherwise it would be learned from answers about leases that
    /// come too late, and each of those costs a request that is made without a lease.
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
        let (Core::Sharing(knowledge), Some(sharing)) = (&self.core, &mut self.sharing) else { return };
        let misses = knowledge.counts().bus_misses_total;
        if std::mem::replace(&mut sharing.misses_timed, misses) != misses {
            self.time_the_bus(TIMED_BY, context);
        }
    }

    /// The bus has answered what it was asked while it was gone, or has not.
    fn found(&mut self, asked: Duration, answered: bool, context: &mut Context<Self>) {
        if !answered {
            return;
        }
        self.step(Input::BusAnswered { asked }, context);
        let (Core::Sharing(knowledge), Some(sharing)) = (&self.core, &self.sharing) else { return };
        let reads = sharing.disconnected && sharing.catching_up;
        if knowledge.is_without_bus() && !reads && self.clock.now().monotonic <= asked + knowledge.bus_answers_within() {
            self.bus_is_back(context);
        }
    }

    /// Reads all reports soon, within this however many nodes there are: something was missed.
    pub(crate) fn catch_up(&mut self, longest: Duration, context: &mut Context<Self>) {
        let now = self.clock.now().monotonic;
        let Some(sharing) = self.sharing.as_mut().filter(|sharing| !sharing.catching_up && sharing.link.is_some()) else { return };
        sharing.catching_up = true;
        let all = SPREAD_OF_ONE.saturating_mul(u32::try_from(sharing.alive).unwrap_or(u32::MAX)).min(longest);
        let spread = all.mul_f64(sharing.random.fraction());
        let apart = sharing.caught_up_at.map(|at| (at + SNAPSHOTS_APART).saturating_sub(now)).unwrap_or_default();
        context.run_later(spread.max(apart), move |tracker, context| {
            let Some(link) = tracker.sharing.as_ref().and_then(|sharing| sharing.link.as_ref()) else { return };
            let reading = timeout(SNAPSHOT_LIMIT, link.read());
            context.spawn(reading.into_actor(tracker).map(move |read, tracker, context| {
                if let Some(sharing) = &mut tracker.sharing {
                    sharing.catching_up = false;
                }
                match read {
                    Ok(Ok(found)) => {
                        let was_lost = tracker.sharing.as_mut().is_some_and(|sharing| std::mem::take(&mut sharing.disconnected));
                        tracker.take_snapshot(found, context);
                        let now = tracker.clock.now().monotonic;
                        tracker.step_all(now, was_lost.then_some(Input::BusBack).into_iter().chain([Input::CaughtUp]), context);
                    }
                    Ok(Err(_)) | Err(_) => {
                        if let Some(sharing) = &mut tracker.sharing {
                            sharing.caught_up_at = Some(tracker.clock.now().monotonic);
                        }
                        tracker.catch_up(longest, context);
                    }
                }
            }));
        });
    }

    /// Takes in all that is stored; in a bucket that was made anew, or when own words did not get through, says them again.
    fn take_snapshot(&mut self, found: Found, context: &mut Context<Self>) {
        let now = self.clock.now();
        let (Core::Sharing(knowledge), Some(sharing)) = (&self.core, &mut self.sharing) else { return };
        let known = |backoff_key| knowledge.backoff_key(backoff_key);
        sharing.counts.snapshots += 1;
        sharing.caught_up_at = Some(now.monotonic);
        let status = &found.reports.status;
        if let Some(asked) = stored::stored_at(status, Duration::ZERO) {
            // The first change may come late. When a snapshot was begun, is a bound.
            sharing.late(now.monotonic, asked);
        }
        let wiped = !sharing.followed.created.is_empty() && sharing.followed.created != status.created;
        let ahead = sharing.followed.sequence.saturating_sub(status.sequence);
        if wiped || ahead == 0 || ahead > PLAUSIBLY_AHEAD {
            sharing.followed.sequence = status.sequence;
        }
        sharing.followed.created.clone_from(&status.created);
        let mut inputs = Vec::with_capacity(found.reports.entries.len());
        let anew = sharing.counts.snapshots == 1;
        // In the order in which the bus has stored them.
        let mut entries: Vec<_> = found.reports.entries.iter().collect();
        entries.sort_by_key(|stored| stored.entry.revision);
        for stored in entries {
            // Later a node knows better than the server what it has said: its last word may not be there.
            let read = ReportKey::read(&stored.entry.key);
            if let Some(own) = read.as_ref().filter(|key| !anew && key.node == sharing.node) {
                inputs.push(Input::ReportStored(BackoffKeyId(own.backoff_key)));
                continue;
            }
            let when = Stored { age: stored.age, at: stored::stored_at(status, stored.age) };
            match read.and_then(|key| sharing.reader.heard(key, &stored.entry.value, when, known)) {
                Some(heard) => inputs.push(heard),
                None => sharing.refuse(now.monotonic, &stored.entry.key, &stored.entry.value),
            }
        }
        let again = wiped || sharing.owes_reports();
        if anew && knowledge.has(PlantedBug::StartsAnew) {
            inputs.clear();
        }
        inputs.extend(self.pauses_found(&found.pauses, context));
        self.step_all(now.monotonic, inputs, context);
        if again {
            self.say_again(now.monotonic);
        }
    }

    fn say_again(&mut self, now: Duration) {
        let (Core::Sharing(knowledge), Some(sharing)) = (&self.core, &mut self.sharing) else { return };
        for (report, age) in knowledge.own_reports(now) {
            sharing.write(Write::Report { report, date: now.saturating_sub(age) });
        }
        sharing.clear_again(now);
    }

    /// Says again what the bus did not take, although it is there: now and then, as it may be full.
    fn say_what_was_not_taken(&mut self, context: &mut Context<Self>) {
        let now = self.clock.now().monotonic;
        let Core::Sharing(knowledge) = &self.core else { return };
        let Some(sharing) =
            self.sharing.as_mut().filter(|sharing| !knowledge.is_without_bus() && sharing.said_again_at + SAID_AGAIN_EVERY <= now)
        else {
            return;
        };
        let (owes_pauses, owes_reports) = (!sharing.unstored_pauses.is_empty(), sharing.owes_reports());
        if owes_pauses || owes_reports {
            sharing.said_again_at = now;
        }
        if owes_reports {
            self.say_again(now);
        }
        if owes_pauses {
            self.store_unstored_pauses(context);
        }
    }

    /// The registrar says how the fleet stands.
    pub(crate) fn see_fleet(&mut self, seen: &FleetSeen, context: &mut Context<Self>) {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (alive, alive_in_zone) = (seen.place.alive.min(ALIVE_MAX), seen.place.alive_in_zone.min(ALIVE_MAX));
        let Some(sharing) = &mut self.sharing else { return };
        let in_common = seen.digest.as_ref().and_then(|digest| digest.version);
        sharing.written.version.store(version::to_write(version::READS, in_common), Ordering::Relaxed);
        if alive > 0 {
            sharing.alive = alive;
            let fleet = Input::Fleet { alive: count(alive), rank: seen.place.rank.map(count) };
            let zone = (alive_in_zone > 0).then(|| Input::Zone(count(alive_in_zone)));
            self.step_all(self.clock.now().monotonic, [fleet].into_iter().chain(zone), context);
        }
        self.say_what_was_not_taken(context);
        let (Some(digest), Some(sharing)) = (&seen.digest, &self.sharing) else { return };
        let followed = &sharing.followed;
        let created = &digest.reports_created;
        if !created.is_empty() && !followed.created.is_empty() && *created != followed.created {
            return self.catch_up(LONGEST_SPREAD, context);
        }
        let told = digest.reports_sequence;
        let is_behind = told > followed.sequence;
        if let Some(sharing) = &mut self.sharing {
            sharing.announced = told;
        }
        if is_behind {
            // What is told of may be on its way still.
            let Core::Sharing(knowledge) = &self.core else { return };
            context.run_later(knowledge.bus_answers_within(), move |tracker, context| {
                let Some(sharing) = tracker.sharing.as_mut().filter(|sharing| sharing.followed.sequence < told) else { return };
                sharing.counts.gaps += 1;
                tracker.catch_up(LONGEST_SPREAD_OF_FEW, context);
            });
        }
    }
}
