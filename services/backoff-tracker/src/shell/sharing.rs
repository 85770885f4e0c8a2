//! What the actor keeps of its dealings with the bus.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actors::bucket_spec;
use clock::{Clock, Random};
use contract::NodeName;
use contract::know::{SharedBucket, StoredClear, other_version};
use lease::{LeaseParts, LeaseStore};
use replication::{Effect, Follower, Input};
use tokio::sync::mpsc;

use super::link::{Link, SharedBus};
use super::refusals::Refusals;
use crate::core::knowledge::{LONGEST_KEPT, LeaseName, PROBE_DEADLINE};
use crate::outbound::{Write, Written};
use crate::reader::Reader;

/// Leases of others remembered to say who probes; each is out for 15 s.
const HOLDERS_REMEMBERED: usize = 1_024;

/// Registries paused by operators on this node, remembered to be said again: as many as a node has pauses of.
const PAUSES_REMEMBERED: usize = 64;
/// Clears remembered to be said again: an operator makes a few while a bus is gone.
const CLEARS_REMEMBERED: usize = 64;

/// The sharing part of the actor.
pub(crate) struct Sharing {
    pub(crate) node: NodeName,
    pub(crate) shared: SharedBus,
    pub(crate) reader: Reader,
    pub(crate) random: Random,
    pub(crate) link: Option<Link>,
    pub(crate) writes: Option<mpsc::Sender<Write>>,
    pub(crate) written: Arc<Written>,
    /// How far the replica has followed the bucket of reports.
    pub(crate) follower: Follower,
    /// Which bucket of pauses is known: another one has forgotten them.
    pub(crate) pauses_created: String,
    /// Whether the bus has said how it is.
    pub(crate) greeted: bool,
    /// Whether the bus is being asked whether it is there.
    pub(crate) pinging: bool,
    /// Answers that had been missed when the bus was timed last.
    pub(crate) misses_timed: u64,
    /// Reports that did not reach the bus when own words were last written again.
    pub(crate) unsent_seen: u64,
    /// When own words were last offered again while the bus was there.
    pub(crate) said_again_at: Duration,
    /// What operators cleared on this node, by its key, and when: for as long as anybody may still know of a failure before it.
    clears: VecDeque<(String, StoredClear, Duration)>,
    /// Leads, slots and probes in their bucket.
    pub(crate) leases: Arc<LeaseStore>,
    /// Leases asked for, and whether they were freed since.
    pub(crate) asked: BTreeMap<LeaseName, bool>,
    pub(crate) holders: Holders,
    pub(crate) counts: Counts,
    refusals: Refusals,
    /// Registries whose pause this node was told by an operator, so that it is said again if the bus forgets it; none: all of them.
    pub(crate) paused_here: BTreeSet<Option<String>>,
    /// What operators told this node of pauses and could not be stored, by registry: it is stored when the bus is back.
    pub(crate) unstored_pauses: BTreeMap<Option<String>, UnstoredPause>,
}

/// What an operator told this node of a pause while the bus did not take it.
#[derive(Clone, Debug)]
pub(crate) struct UnstoredPause {
    /// When, on this node's clock.
    pub(crate) told_at: Duration,
    /// When the pause ends by itself; what is over by `told_at` is the end of a pause.
    pub(crate) until: Duration,
    pub(crate) by: String,
}

/// Counted by the shell.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) for_all: u64,
    pub(crate) abandoned: u64,
    pub(crate) lapsed: u64,
    pub(crate) refused: u64,
    pub(crate) other_version: u64,
}

impl Sharing {
    pub(crate) fn new(node: NodeName, shared: SharedBus, random: Random, clock: Clock) -> Self {
        let (bus, bucket) = (shared.bus.clone(), bucket_spec(SharedBucket::leases(&shared.fleet)));
        // Every node hears of each lease, and what matters is the node: its processes are not told apart.
        let of_leases = LeaseParts { state: bus, bucket, holder: node.clone(), instance: String::new(), term: PROBE_DEADLINE, clock };
        let leases = Arc::new(LeaseStore::new(of_leases));
        Self {
            node,
            shared,
            reader: Reader::default(),
            random,
            link: None,
            writes: None,
            written: Arc::default(),
            follower: Follower::default(),
            pauses_created: String::new(),
            greeted: false,
            pinging: false,
            misses_timed: 0,
            unsent_seen: 0,
            said_again_at: Duration::ZERO,
            clears: VecDeque::new(),
            leases,
            asked: BTreeMap::new(),
            holders: Holders::default(),
            counts: Counts::default(),
            refusals: Refusals::default(),
            paused_here: BTreeSet::new(),
            unstored_pauses: BTreeMap::new(),
        }
    }

    /// Puts a write into the queue; what has no room is written again later.
    pub(crate) fn write(&mut self, write: Write) {
        let taken = self.writes.as_ref().is_some_and(|writes| writes.try_send(write).is_ok());
        if !taken {
            self.written.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Says what an operator has cleared here.
    pub(crate) fn clear(&mut self, key: String, clear: StoredClear, date: Duration) {
        self.clears.retain(|(known, _, at)| *known != key && date < *at + LONGEST_KEPT);
        self.clears.truncate(CLEARS_REMEMBERED - 1);
        self.clears.push_front((key.clone(), clear.clone(), date));
        self.write(Write::Clear { key, clear, date });
    }

    /// Publishes again what operators have cleared here. Nodes that know of it do nothing.
    pub(crate) fn clear_again(&mut self, now: Duration) {
        self.clears.retain(|(_, _, date)| now < *date + LONGEST_KEPT);
        for (key, clear, date) in self.clears.clone() {
            self.write(Write::Clear { key, clear, date });
        }
    }

    /// An operator has told this node of a pause, or of its end.
    pub(crate) fn was_told_of_pause(&mut self, registry: Option<String>, begins: bool) {
        if !begins {
            self.paused_here.remove(&registry);
        } else if self.paused_here.len() < PAUSES_REMEMBERED {
            self.paused_here.insert(registry);
        }
    }

    /// A pause, or its end, could not be stored: it will be.
    pub(crate) fn owes_pause(&mut self, registry: Option<String>, pause: UnstoredPause) {
        if self.unstored_pauses.len() < PAUSES_REMEMBERED || self.unstored_pauses.contains_key(&registry) {
            self.unstored_pauses.insert(registry, pause);
        }
    }

    /// Tells the follower of the reports what has come to pass.
    pub(crate) fn follow(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        self.follower.step(now, &mut self.random, input)
    }

    /// How much later than the fastest a message came that the server stored then.
    pub(crate) fn late(&mut self, now: Duration, stamp: i128) -> Duration {
        let late = self.follower.late(now, stamp);
        self.written.knows_server_ahead_by(self.follower.server_ahead());
        late
    }

    /// In which version this node writes.
    pub(crate) fn version(&self) -> u32 {
        self.written.version.load(Ordering::Relaxed)
    }

    /// What another wrote is not believed: it cannot be read, or is not what its key says. It counts as nothing said.
    pub(crate) fn refuse(&mut self, now: Duration, key: &str, value: &[u8]) {
        self.counts.refused += 1;
        if let Some(version) = other_version(value) {
            if self.counts.other_version == 0 {
                tracing::warn!(key, version, "what other nodes write is not read here: bring all agents to versions that go together");
            }
            self.counts.other_version += 1;
        } else if let Some((writer, reports)) = self.refusals.count(now, key) {
            tracing::warn!(
                writer,
                reports,
                "reports under this node's name are no reports, and count as nothing said: see what runs there"
            );
        }
    }

    /// Whether words of this node did not reach the bus since this was last asked.
    pub(crate) fn owes_reports(&mut self) -> bool {
        let unsent = read(&self.written.unsent);
        std::mem::replace(&mut self.unsent_seen, unsent) != unsent
    }
}

/// Who holds which lease of others.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    by_name: BTreeMap<LeaseName, NodeName>,
    order: VecDeque<LeaseName>,
}

impl Holders {
    pub(crate) fn took(&mut self, name: LeaseName, holder: NodeName) {
        if self.by_name.insert(name, holder).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > HOLDERS_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_name.remove(&oldest);
        }
    }

    pub(crate) fn freed(&mut self, name: LeaseName) {
        self.by_name.remove(&name);
        self.order.retain(|known| *known != name);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&LeaseName, &NodeName)> {
        self.by_name.iter()
    }
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
