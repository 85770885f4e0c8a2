//! What the actor keeps of its dealings with the bus.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actors::bucket_spec;
use bus::BucketStatus;
use clock::{Clock, Random};
use contract::NodeName;
use contract::know::{SharedBucket, StoredClear, other_version};
use lease::{LeaseParts, LeaseStore};
use tokio::sync::mpsc;

use super::link::{Link, SharedBus};
use super::refusals::Refusals;
use crate::core::knowledge::{LONGEST_KEPT, LeaseName, PROBE_DEADLINE};
use crate::outbound::{Write, Written};
use crate::reader::Reader;

/// Leases of others remembered to say who probes; each is out for 15 s.
const HOLDERS_REMEMBERED: usize = 1_024;
/// The least delay of a message is forgotten after so long, in case a server's clock was set back.
const SERVER_TIME_KEPT: Duration = Duration::from_secs(60);
/// The most that a message counts as delayed: beyond it, it is rather a clock that was set.
const LONGEST_DELAY: Duration = Duration::from_secs(60);

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
    pub(crate) followed: BucketStatus,
    /// The newest change of reports that the registrar has announced.
    pub(crate) announced: u64,
    /// Which bucket of pauses is known: another one has forgotten them.
    pub(crate) pauses_created: String,
    /// Whether a snapshot is planned or being read.
    pub(crate) catching_up: bool,
    pub(crate) caught_up_at: Option<Duration>,
    /// Whether the connection was lost since all was read: of a fleet they come back one after the other.
    pub(crate) disconnected: bool,
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
    pub(crate) server_time: ServerTime,
    /// Nodes alive, as far as is known.
    pub(crate) alive: u64,
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
    pub(crate) gaps: u64,
    pub(crate) snapshots: u64,
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
            followed: BucketStatus::default(),
            announced: 0,
            pauses_created: String::new(),
            catching_up: false,
            caught_up_at: None,
            disconnected: false,
            greeted: false,
            pinging: false,
            misses_timed: 0,
            unsent_seen: 0,
            said_again_at: Duration::ZERO,
            clears: VecDeque::new(),
            leases,
            asked: BTreeMap::new(),
            holders: Holders::default(),
            server_time: ServerTime::default(),
            alive: 1,
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

    /// How much later than the fastest a message came that the server stored then.
    pub(crate) fn late(&mut self, now: Duration, stamp: i128) -> Duration {
        let late = self.server_time.late(now, stamp);
        self.written.knows_server_ahead_by(self.server_time.ahead());
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

    /// How many changes the registrar has announced that are not known here.
    pub(crate) fn lag(&self) -> u64 {
        self.announced.saturating_sub(self.followed.sequence)
    }

    /// Follows the bucket of reports by the sequence of a change; whether something was missed.
    pub(crate) fn follow(&mut self, sequence: u64) -> bool {
        let followed = &mut self.followed.sequence;
        if sequence > *followed {
            let gap = sequence != *followed + 1;
            *followed = sequence;
            return gap;
        }
        // Twice the same is nothing; an earlier one came late, or the bucket begins anew.
        sequence < *followed
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

/// How late messages are, by their server's time stamps: compared with the least delay seen, so that it does not matter
/// how the clocks of server and node differ.
#[derive(Debug, Default)]
pub(crate) struct ServerTime {
    /// The least difference between this node's clock and a stamp, in nanoseconds: of now, and of the time before.
    least: Option<i128>,
    least_before: Option<i128>,
    since: Duration,
}

impl ServerTime {
    /// How much later than the fastest this message came.
    pub(crate) fn late(&mut self, now: Duration, stamp: i128) -> Duration {
        if now >= self.since + SERVER_TIME_KEPT {
            (self.least_before, self.least, self.since) = (self.least.take(), None, now);
        }
        let apart = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX) - stamp;
        let least = self.least.map_or(apart, |least| least.min(apart));
        self.least = Some(least);
        let least = self.least_before.map_or(least, |before| before.min(least));
        Duration::from_nanos(u64::try_from(apart - least).unwrap_or_default()).min(LONGEST_DELAY)
    }

    /// By how much the server's clock is ahead of this node's, less the least time that a message takes, in nanoseconds; none: no
    /// message has come yet.
    pub(crate) fn ahead(&self) -> Option<i128> {
        self.least.into_iter().chain(self.least_before).min().map(|least| -least)
    }
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_measured_against_the_fastest_whatever_the_clocks_say() {
        let mut time = ServerTime::default();
        let minute = 60_000_000_000_i128;
        let at = Duration::from_secs;
        // The server's clock is five minutes ahead.
        assert_eq!(time.late(at(10), 10_000_000_000 + 5 * minute), Duration::ZERO);
        assert_eq!(time.late(at(20), 18_000_000_000 + 5 * minute), at(2));
        assert_eq!(time.late(at(30), 30_000_000_000 + 5 * minute), Duration::ZERO);
        // It is set back: for a while everything seems late, by a minute at most; then the new time is known.
        assert_eq!(time.late(at(40), 40_000_000_000), at(60));
        assert_eq!(time.late(at(101), 101_000_000_000), at(60));
        assert_eq!(time.late(at(170), 170_000_000_000), Duration::ZERO);
    }

    #[test]
    fn the_server_s_time_is_known_by_the_fastest_message() {
        let mut time = ServerTime::default();
        let (at, second) = (Duration::from_secs, 1_000_000_000_i128);
        assert_eq!(time.ahead(), None);
        time.late(at(10), 1_010 * second);
        time.late(at(12), 1_011 * second);
        assert_eq!(time.ahead(), Some(1_000 * second));
        // After a long silence too, however late the first message comes that was under way meanwhile.
        time.late(at(500), 1_100 * second);
        assert_eq!(time.ahead(), Some(1_000 * second));
        // A server whose clock was set forward is known at once.
        time.late(at(501), 1_801 * second);
        assert_eq!(time.ahead(), Some(1_300 * second));
    }
}
