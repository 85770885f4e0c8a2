//! The actor's state about the bus.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actors::bucket_spec;
use bus::Message;
use bytes::Bytes;
use clock::{Clock, Random};
use contract::know::{ReportKey, SharedBucket, StoredClear, other_version};
use contract::messages::backoff_tracker::SharedCounts;
use contract::{DEADLINES, NodeName};
use lease::{LeaseParts, LeaseStore};
use replication::{Effect, Follower, Input};

use super::link::{Link, SharedBus};
use super::refusals::Refusals;
use crate::core::knowledge::{BackoffKey, BackoffKeyId, Input as CoreInput, LONGEST_KEPT, LeaseName};
use crate::outbound::{Value, Write, Written};
use crate::stored::{self, ReadsReports, Stored};

/// Registries paused by operators on this node, remembered so that the pauses can be stored again.
const PAUSES_REMEMBERED: usize = 64;
/// Clears remembered so that they can be published again: an operator makes a few while a bus is lost.
const CLEARS_REMEMBERED: usize = 64;

pub(crate) struct Sharing {
    pub(crate) node: NodeName,
    pub(crate) shared: SharedBus,
    pub(crate) read_report: ReadsReports,
    pub(crate) random: Random,
    pub(crate) link: Option<Link>,
    pub(crate) written: Arc<Written>,
    /// How far the replica has followed the bucket of reports.
    pub(crate) follower: Follower,
    /// When the known bucket of pauses was created: another bucket has forgotten the pauses.
    pub(crate) pauses_created: String,
    /// Whether the bus is being asked if it is back.
    pub(crate) pinging: bool,
    /// Answers that had been missed when the bus was timed last.
    pub(crate) misses_timed: u64,
    /// Reports that had not reached the bus when own reports were last written again.
    pub(crate) unsent_seen: u64,
    /// When own reports were last published again while the bus was connected.
    pub(crate) published_again_at: Duration,
    /// Operators' clears on this node, with key and date, for as long as any node may still know a failure before them.
    clears: VecDeque<(String, StoredClear, Duration)>,
    /// Leads, slots and probes in their bucket.
    pub(crate) leases: Arc<LeaseStore>,
    /// Leases asked for, and whether they were freed since.
    pub(crate) asked: BTreeMap<LeaseName, bool>,
    /// What the shell counts.
    pub(crate) counts: SharedCounts,
    refusals: Refusals,
    /// Registries that an operator paused on this node, so that the pause is stored again if the bus forgets it; none: all registries.
    pub(crate) paused_here: BTreeSet<Option<String>>,
    /// Operators' pauses that could not be stored, by registry. They are stored when the bus is back.
    pub(crate) unstored_pauses: BTreeMap<Option<String>, UnstoredPause>,
}

/// A pause, or the end of one, that an operator ordered while the bus did not take it.
#[derive(Clone, Debug)]
pub(crate) struct UnstoredPause {
    /// When it was ordered, on this node's clock.
    pub(crate) ordered_at: Duration,
    /// When the pause expires. If this is not after `ordered_at`, it is the end of a pause.
    pub(crate) until: Duration,
    pub(crate) by: String,
}

impl Sharing {
    pub(crate) fn new(node: NodeName, shared: SharedBus, random: Random, clock: Clock) -> Self {
        let (bus, bucket) = (shared.bus.clone(), bucket_spec(SharedBucket::leases(&shared.fleet)));
        // Every node receives each lease, and only the node's name matters: its processes are not distinguished.
        let of_leases =
            LeaseParts { state: bus, bucket, holder: node.clone(), instance: String::new(), term: DEADLINES.attempt_lease, clock };
        let leases = Arc::new(LeaseStore::new(of_leases));
        Self {
            node,
            shared,
            read_report: Arc::new(stored::read_report),
            random,
            link: None,
            written: Arc::default(),
            follower: Follower::default(),
            pauses_created: String::new(),
            pinging: false,
            misses_timed: 0,
            unsent_seen: 0,
            published_again_at: Duration::ZERO,
            clears: VecDeque::new(),
            leases,
            asked: BTreeMap::new(),
            counts: SharedCounts::default(),
            refusals: Refusals::default(),
            paused_here: BTreeSet::new(),
            unstored_pauses: BTreeMap::new(),
        }
    }

    /// Puts a write into the queue. A write without room is counted, and written again later.
    pub(crate) fn write(&mut self, write: Write) {
        let taken = self.link.as_ref().is_some_and(|link| link.writes.try_send(write).is_ok());
        if !taken {
            self.written.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Publishes an operator's clear.
    pub(crate) fn clear(&mut self, key: String, clear: StoredClear, date: Duration) {
        self.clears.retain(|(known, _, at)| *known != key && date < *at + LONGEST_KEPT);
        self.clears.truncate(CLEARS_REMEMBERED - 1);
        self.clears.push_front((key.clone(), clear.clone(), date));
        self.write(Write::Store(Value::Clear { key, clear, date }));
    }

    /// Publishes operators' clears again. Nodes that know them do nothing.
    pub(crate) fn clear_again(&mut self, now: Duration) {
        self.clears.retain(|(_, _, date)| now < *date + LONGEST_KEPT);
        for (key, clear, date) in self.clears.clone() {
            self.write(Write::Store(Value::Clear { key, clear, date }));
        }
    }

    /// An operator has ordered a pause on this node, or its end.
    pub(crate) fn note_pause(&mut self, registry: Option<String>, begins: bool) {
        if !begins {
            self.paused_here.remove(&registry);
        } else if self.paused_here.len() < PAUSES_REMEMBERED {
            self.paused_here.insert(registry);
        }
    }

    /// A pause, or its end, could not be stored: it will be.
    pub(crate) fn keep_unstored_pause(&mut self, registry: Option<String>, pause: UnstoredPause) {
        if self.unstored_pauses.len() < PAUSES_REMEMBERED || self.unstored_pauses.contains_key(&registry) {
            self.unstored_pauses.insert(registry, pause);
        }
    }

    /// The input that a change of a pause on the bus amounts to. An operator's command to another node replaces the one to this node that is
    /// not stored yet; the expiry of an earlier pause does not.
    pub(crate) fn read_pause(&mut self, key: &str, message: &Message) -> Option<CoreInput> {
        let value = (!stored::is_deleted(message)).then_some(&*message.payload);
        let input = stored::pause(key, value, Duration::ZERO)?;
        if let CoreInput::Pause { registry, .. } = &input
            && self.unstored_pauses.contains_key(registry)
        {
            if stored::has_expired(message) {
                return None;
            }
            self.unstored_pauses.remove(registry);
        }
        Some(input)
    }

    /// Passes an input to the follower of the reports.
    pub(crate) fn follow(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        let is_lost = input == Input::Disconnected;
        let effects = self.follower.step(now, &mut self.random, input);
        if is_lost || effects.contains(&Effect::MadeAgain) {
            // The bucket of leases may be lost too, and messages about leases in the new bucket may be missed.
            self.leases.forget_released();
        }
        effects
    }

    /// How much later than the fastest message this one came, given the server's time stamp.
    pub(crate) fn late(&mut self, now: Duration, stamp: i128) -> Duration {
        let late = self.follower.late(now, stamp);
        self.written.knows_server_ahead_by(self.follower.server_ahead());
        late
    }

    /// The version that this node writes.
    pub(crate) fn version(&self) -> u32 {
        self.written.version.load(Ordering::Relaxed)
    }

    /// The input that a value of the reports bucket amounts to. If `own_is_known`, a report of this node is only noted as stored.
    pub(crate) fn read(
        &mut self,
        now: Duration,
        key: &str,
        value: &Bytes,
        stored: Stored,
        known: impl Fn(BackoffKeyId) -> Option<Arc<BackoffKey>>,
        own_is_known: bool,
    ) -> Option<CoreInput> {
        let read = ReportKey::read(key);
        if let Some(own) = read.as_ref().filter(|key| own_is_known && key.node == self.node) {
            return Some(CoreInput::ReportStored(BackoffKeyId(own.backoff_key)));
        }
        let input = read.and_then(|key| match key.class {
            Some(_) => (self.read_report)(key, value, &known).map(|read| read.into_input(stored)),
            None => stored::cleared(value, stored),
        });
        if input.is_none() {
            self.refuse(now, key, value);
        }
        input
    }

    /// Refuses a value of another node that cannot be read, or does not match its key. It counts as no report.
    fn refuse(&mut self, now: Duration, key: &str, value: &[u8]) {
        self.counts.reports_refused_total += 1;
        if let Some(version) = other_version(value) {
            if self.counts.other_version_total == 0 {
                tracing::warn!(
                    key,
                    version,
                    "a value of another node has a version that this agent cannot read: update all agents to compatible versions"
                );
            }
            self.counts.other_version_total += 1;
        } else if let Some((writer, reports)) = self.refusals.count(now, key) {
            tracing::warn!(
                writer,
                reports,
                "values under the reports of this writer are not valid reports and are ignored: check the agent on that node"
            );
        }
    }

    /// Whether reports of this node did not reach the bus since the last call.
    pub(crate) fn has_unsent_reports(&mut self) -> bool {
        let unsent = read(&self.written.unsent);
        std::mem::replace(&mut self.unsent_seen, unsent) != unsent
    }
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use bus::memory::MemoryBus;
    use contract::subject::Fleet;
    use replication::{Position, Reading};

    use super::*;

    const KEY: &str = "lead.1.0";

    #[tokio::test(start_paused = true)]
    async fn revisions_of_released_leases_are_forgotten_with_the_connection_and_with_the_bucket() {
        let read = |created: &str| {
            let position = Position { created: created.to_owned(), sequence: 1 };
            Input::Read { reading: Reading::default(), position, newest: None }
        };
        for loss in [Input::Disconnected, read("2")] {
            let (shown, fleet, clock) = (format!("{loss:?}"), Fleet::default(), Clock::simulated(Duration::from_secs(1_000_000)));
            let bus = MemoryBus::new(clock.clone());
            let shared = SharedBus { bus: Arc::new(bus.connect()), fleet: fleet.clone() };
            let mut sharing = Sharing::new("n1".parse().unwrap(), shared, Random::seeded(1), clock.clone());
            sharing.follow(Duration::ZERO, read("1"));
            sharing.leases.saw_released(KEY, 2);
            sharing.follow(Duration::ZERO, loss);
            let of_another = LeaseParts {
                state: Arc::new(bus.connect()),
                bucket: bucket_spec(SharedBucket::leases(&fleet)),
                holder: "n2".parse().unwrap(),
                instance: String::new(),
                term: DEADLINES.attempt_lease,
                clock,
            };
            let another = LeaseStore::new(of_another);
            let held = another.create(KEY, "", 0).await.unwrap().unwrap();
            assert_eq!(another.renew(KEY, "", held.epoch).await.unwrap().unwrap().revision, 2, "{shown}");
            assert_eq!(sharing.leases.create(KEY, "", 0).await.unwrap(), None, "{shown}");
        }
    }
}
