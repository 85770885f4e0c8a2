//! The record that makes a node a member of its fleet. The node writes it, the bus keeps it, and commands read it, so a node that dies
//! stays known even if other nodes die with it.

use std::collections::BTreeMap;
use std::time::Duration;

use actors::{Wiring, bucket_spec};
use bus::{BucketSpec, BusError, KeyValueError, SharedStateRef};
use bytes::Bytes;
use clock::Random;
use contract::know::{KnowError, SharedBucket, StoredMember, encode, member_key};
use contract::messages::registrar::FleetSeen;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::spread::spread_over;

/// Renewals of a record within `gone_after`: two may fail, and a third may be late.
const RENEWALS: u32 = 4;
/// Spreads the renewals of nodes that started together.
const JITTER: f64 = 0.1;
/// How long the server may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The pause after a failed write. A bus that is not connected refuses at once, without sending a message.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// The content of a node's record.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Different for each start of an agent.
    pub instance: String,
    /// `node.labels`.
    pub labels: BTreeMap<String, String>,
    /// `fleet.gone_after`.
    pub gone_after: Duration,
}

/// Keeps a node's record. Dropping it leaves the record to its expiry, as a crash does.
pub(super) struct MemberRecord {
    withdraw: oneshot::Sender<()>,
    keeper: JoinHandle<()>,
}

impl MemberRecord {
    /// Writes the record now and renews it. `seen` is the node's view of the fleet.
    pub(super) fn keep(
        membership: &Membership,
        wiring: &Wiring,
        state: SharedStateRef,
        seen: watch::Receiver<FleetSeen>,
        random: Random,
    ) -> Self {
        let (withdraw, withdrawn) = oneshot::channel();
        let writer = Writer::new(membership, wiring, state);
        let keeper = Keeper { writer, seen, random, members_created: String::new(), complained: false };
        Self { withdraw, keeper: tasks::spawn_local("member-record", keeper.run(withdrawn)) }
    }

    /// Deletes the record, because the node leaves in an orderly way and is no longer a member.
    pub(super) async fn withdraw(self) {
        if self.withdraw.send(()).is_ok() {
            // The keeper ends after one write and one deletion, each with a time limit.
            let _ = self.keeper.await;
        }
    }
}

struct Keeper {
    writer: Writer,
    seen: watch::Receiver<FleetSeen>,
    random: Random,
    /// When the bucket of the record was made, as the registrar reports it. Empty if not reported yet.
    members_created: String,
    /// True if a failed write was already logged.
    complained: bool,
}

impl Keeper {
    async fn run(mut self, mut withdrawn: oneshot::Receiver<()>) {
        let mut revision = None;
        loop {
            let pause = match self.writer.write().await {
                Ok(written) => {
                    revision = Some(written);
                    self.log_written();
                    (self.writer.gone_after / RENEWALS).mul_f64(1.0 - JITTER + 2.0 * JITTER * self.random.fraction())
                }
                Err(error) => {
                    self.complain(&error);
                    WRITE_AGAIN + self.spread()
                }
            };
            tokio::select! {
                biased;
                // An error means that the node ended without leaving.
                left = &mut withdrawn => {
                    if let (Ok(()), Some(revision)) = (left, revision) {
                        self.writer.delete(revision).await;
                    }
                    return;
                }
                () = self.due(pause) => {}
            }
        }
    }

    /// Resolves when the record has to be written again: after `pause`, or sooner if the bucket was lost.
    async fn due(&mut self, pause: Duration) {
        tokio::select! {
            biased;
            spread = self.bucket_lost() => {
                info!(?spread, "the bucket of members is another one than before: this node's record is written again");
                sleep(spread).await;
            }
            () = sleep(pause) => {}
        }
    }

    /// Resolves when the registrar reports that the bucket was made again. Returns how long to wait, because every node writes again.
    async fn bucket_lost(&mut self) -> Duration {
        loop {
            if self.seen.changed().await.is_err() {
                // The node gets no more views of the fleet.
                return std::future::pending().await;
            }
            let created = self.seen.borrow_and_update().digest.as_ref().map(|digest| digest.members_created.clone());
            let Some(created) = created.filter(|created| !created.is_empty() && *created != self.members_created) else { continue };
            if !std::mem::replace(&mut self.members_created, created).is_empty() {
                return self.spread();
            }
        }
    }

    /// A random delay that spreads the writes of the whole fleet.
    fn spread(&mut self) -> Duration {
        let alive = self.seen.borrow().place.alive;
        spread_over(alive).mul_f64(self.random.fraction())
    }

    fn log_written(&mut self) {
        if std::mem::take(&mut self.complained) {
            info!("this node is recorded as a member of its fleet");
        }
    }

    fn complain(&mut self, error: &NotWritten) {
        // The agent itself reports that there is no bus.
        if matches!(error, NotWritten::Bucket(KeyValueError::Bus(BusError::Disconnected { .. } | BusError::Closed))) || self.complained {
            debug!(%error, "this node is not recorded as a member of its fleet");
        } else {
            self.complained = true;
            warn!(%error, "this node is not recorded as a member of its fleet: a command does not know of it while it is silent");
        }
    }
}

/// Why the record was not written.
#[derive(Debug, thiserror::Error)]
enum NotWritten {
    #[error("the bucket of members does not answer: check the server, and that this login may write to it (deploy/nats/accounts.conf)")]
    Silent,
    #[error(transparent)]
    Bucket(#[from] KeyValueError),
    #[error(transparent)]
    Record(#[from] KnowError),
}

/// Writes and deletes one node's record.
struct Writer {
    state: SharedStateRef,
    members: BucketSpec,
    key: String,
    record: StoredMember,
    gone_after: Duration,
}

impl Writer {
    fn new(membership: &Membership, wiring: &Wiring, state: SharedStateRef) -> Self {
        let Membership { instance, labels, gone_after } = membership.clone();
        let gone_after_ms = u64::try_from(gone_after.as_millis()).unwrap_or(u64::MAX);
        Self {
            state,
            members: bucket_spec(SharedBucket::members(&wiring.fleet)),
            key: member_key(&wiring.node),
            record: StoredMember { instance, labels: Some(labels), gone_after_ms },
            gone_after,
        }
    }

    async fn write(&self) -> Result<u64, NotWritten> {
        let value = match encode(&self.record) {
            // Without its labels a record has about 100 bytes.
            Err(KnowError::TooLarge { .. }) => encode(&StoredMember { labels: None, ..self.record.clone() })?,
            value => value?,
        };
        // The bus counts in whole seconds, so the time is rounded up.
        let expires_after = Duration::from_secs(self.gone_after.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX));
        let writing = async {
            let members = self.state.bucket(&self.members).await.map_err(KeyValueError::from)?;
            members.put(&self.key, Bytes::from(value), Some(expires_after)).await
        };
        Ok(tokio::time::timeout(ANSWER_WITHIN, writing).await.map_err(|_| NotWritten::Silent)??)
    }

    /// Deletes the record that this start of the agent wrote, but no later record with the same name.
    async fn delete(&self, revision: u64) {
        let deleting = async {
            let members = self.state.bucket(&self.members).await.map_err(KeyValueError::from)?;
            members.delete(&self.key, Some(revision)).await
        };
        match tokio::time::timeout(ANSWER_WITHIN, deleting).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "this node's record was not deleted: it expires by itself"),
            Err(_) => debug!("this node's record was not deleted: it expires by itself"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use std::sync::Arc;

    use actors::Delivery;
    use bus::memory::MemoryBus;
    use bus::{AgedEntry, SharedState as _};
    use clock::Clock;
    use contract::know::{decode, member_of};
    use contract::messages::registrar::{FleetDigest, Place};
    use contract::subject::Fleet;

    use super::*;

    const GONE_AFTER: Duration = Duration::from_secs(3_600);

    fn paused<F: Future>(test: F) -> F::Output {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        actix::System::with_tokio_rt(runtime).block_on(test)
    }

    struct World {
        hub: MemoryBus,
        seen_sender: watch::Sender<FleetSeen>,
        seen: watch::Receiver<FleetSeen>,
    }

    impl World {
        fn new() -> Self {
            let (seen_sender, seen) = watch::channel(FleetSeen::default());
            Self { hub: MemoryBus::new(Clock::simulated(Duration::from_secs(1_700_000_000))), seen_sender, seen }
        }

        fn start(&self, node: &str, instance: &str, labels: BTreeMap<String, String>) -> MemberRecord {
            let bus: bus::BusRef = Arc::new(self.hub.connect());
            let wiring = Wiring { bus: bus.clone(), fleet: Fleet::default(), node: node.parse().unwrap(), delivery: Delivery::Local };
            let membership = Membership { instance: instance.to_owned(), labels, gone_after: GONE_AFTER };
            MemberRecord::keep(&membership, &wiring, bus, self.seen.clone(), Random::seeded(1))
        }

        async fn records(&self) -> Vec<AgedEntry> {
            let members = self.hub.bucket(&bucket_spec(SharedBucket::members(&Fleet::default()))).await.unwrap();
            members.snapshot(None).await.unwrap().entries
        }

        async fn known(&self) -> Vec<String> {
            self.records().await.iter().map(|aged| member_of(&aged.entry.key).unwrap().to_string()).collect()
        }

        /// The registrar reports this bucket.
        fn publish_digest(&self, members_created: &str, alive: u64) {
            let digest = FleetDigest { members_created: members_created.to_owned(), ..FleetDigest::default() };
            let place = Place { alive, ..Place::default() };
            self.seen_sender.send_replace(FleetSeen { place, digest: Some(digest) });
        }
    }

    async fn pass(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[test]
    fn node_is_listed_at_its_start_and_for_gone_after_when_dead() {
        paused(async {
            let world = World::new();
            let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
            let node = world.start("n1.example", "i", labels.clone());
            pass(2).await;
            assert_eq!(world.known().await, ["n1.example"]);
            let record: StoredMember = decode(&world.records().await[0].entry.value).unwrap();
            assert_eq!(record, StoredMember { instance: "i".to_owned(), labels: Some(labels), gone_after_ms: 3_600_000 });
            let (mut writes, mut revision) = (0, 0);
            for _ in 0..10 * 60 {
                pass(60).await;
                let now = world.records().await[0].entry.revision;
                (writes, revision) = (writes + u32::from(now != revision), now);
            }
            assert!((36..=44).contains(&writes), "{writes} records in 10 h");
            drop(node);
            pass(GONE_AFTER.as_secs() * 7 / 10).await;
            assert_eq!(world.known().await, ["n1.example"], "it is silent");
            pass(GONE_AFTER.as_secs() * 3 / 10).await;
            assert_eq!(world.known().await, Vec::<String>::new(), "it is gone");
        });
    }

    #[test]
    fn a_node_that_leaves_deletes_its_own_record_and_no_later_one() {
        paused(async {
            let world = World::new();
            let first = world.start("n1", "first", BTreeMap::new());
            pass(1).await;
            let second = world.start("n1", "second", BTreeMap::new());
            pass(1).await;
            first.withdraw().await;
            assert_eq!(world.known().await, ["n1"]);
            second.withdraw().await;
            assert_eq!(world.known().await, Vec::<String>::new());
        });
    }

    #[test]
    fn recreated_bucket_gets_every_record_within_the_fleets_spread() {
        paused(async {
            for (alive, within) in [(3, 1), (10_000, 31)] {
                let world = World::new();
                let _node = world.start("n1", "i", BTreeMap::new());
                world.publish_digest("first", alive);
                pass(20).await;
                let before = world.records().await[0].entry.revision;
                world.publish_digest("first", alive);
                pass(20).await;
                assert_eq!(world.records().await[0].entry.revision, before, "the same bucket needs no other record");
                world.hub.lose_bucket("fleetpull-members");
                assert_eq!(world.known().await, Vec::<String>::new());
                world.publish_digest("second", alive);
                pass(within).await;
                assert_eq!(world.known().await, ["n1"], "{alive} nodes");
            }
        });
    }

    #[test]
    fn labels_that_are_too_long_are_left_out_of_the_record() {
        paused(async {
            let world = World::new();
            let labels = (0..64).map(|number| (format!("{number}-{}", "k".repeat(250)), "v".repeat(63))).collect();
            let _node = world.start("n1", "i", labels);
            pass(1).await;
            let record: StoredMember = decode(&world.records().await[0].entry.value).unwrap();
            assert_eq!((record.instance.as_str(), record.labels), ("i", None));
        });
    }
}
