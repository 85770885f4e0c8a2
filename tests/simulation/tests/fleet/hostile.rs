//! A hostile node: it has the rights of a node on the bus and in the buckets that all nodes write, and uses them against the others.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actors::bucket_spec;
use backoff_tracker::core::knowledge::{BackoffKey, KeyInView};
use bus::memory::MemoryBus;
use bus::{BucketStatus, Entry, KeyValue, Message, Messaging as _, SharedState as _};
use bytes::Bytes;
use clock::Random;
use contract::know::{AttemptKey, SharedBucket, StoredLease, decode, encode};
use contract::messages::registrar::REGISTRAR_LEASE;
use contract::messages::throttler::{BUDGET_PERMITS_PER_NODE, GrantBudget, KnownLimits, RenewBudget};
use contract::policy::Caps;
use contract::subject::Fleet;
use contract::{Command, NodeName, PermitId, headers};

use crate::plan::{Act, Plan, TOOL, slow_budget};
use crate::registry::Behaviour;
use crate::story::Story;
use crate::world::view;

/// The number of the hostile node.
pub const HOSTILE: usize = 0;
/// The image that all nodes want while it fails, and when it is available again.
pub const APP: &str = "r.example/team/app:1";
pub const HEALED: Duration = Duration::from_secs(140);
/// When the node is hostile.
const FROM: Duration = Duration::from_secs(60);
const UNTIL: Duration = Duration::from_secs(160);
/// The term of the leases that it takes from the others, and how often it writes them again.
const KEEPS_FOR: Duration = Duration::from_secs(400);
/// How often it looks for leases that others have written.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
const KEEPS_EVERY: Duration = Duration::from_secs(1);
/// How often it forges requests: more often than permits lapse.
const EVERY: Duration = Duration::from_secs(1);
/// How many permits it requests each time, in addition to those that it claims to hold.
const ASKED: usize = 100;
/// How many permits it requests in the name of each other node.
const FORGED_FOR_EACH: usize = 2;
/// How long it waits for an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// All nodes want [`TOOL`] one after the other while one node forges budget requests.
pub fn forged_requests(seed: u64, nodes: usize) -> Plan {
    let mut acts: Vec<(Duration, Act)> = (0..nodes).map(|node| (Duration::from_secs(1), Act::Start(node))).collect();
    // An earlier pull makes sure that the budget has a leader.
    acts.push((FROM - Duration::from_secs(10), Act::Want(1, "r.example/team/first:1")));
    let rounds = ((UNTIL - FROM).as_millis() / EVERY.as_millis()) as u32;
    acts.extend((0..rounds).map(|round| (FROM + EVERY * round, Act::Forge)));
    let apart = (UNTIL - FROM).mul_f64(0.8) / nodes as u32;
    acts.extend((1..nodes).map(|node| (FROM + Duration::from_secs(10) + apart * node as u32, Act::Want(node, TOOL))));
    acts.sort_by_key(|(at, _)| *at);
    calm(seed, nodes, acts)
}

/// All nodes want [`TOOL`] one after the other, and another image while it fails, while one node keeps every lease.
pub fn kept_leases(seed: u64, nodes: usize) -> Plan {
    let mut acts: Vec<(Duration, Act)> = (0..nodes).map(|node| (Duration::from_secs(1), Act::Start(node))).collect();
    acts.push((FROM, Act::KeepLeases));
    acts.push((FROM, Act::Registry("app", Behaviour::Unavailable)));
    acts.push((HEALED, Act::Registry("app", Behaviour::Serves)));
    for node in 1..nodes {
        acts.push((FROM + Duration::from_secs(10 + node as u64), Act::Want(node, TOOL)));
        acts.push((FROM + Duration::from_secs(20), Act::Want(node, APP)));
    }
    acts.sort_by_key(|(at, _)| *at);
    calm(seed, nodes, acts)
}

fn calm(seed: u64, nodes: usize, acts: Vec<(Duration, Act)>) -> Plan {
    let ends = FROM + KEEPS_FOR;
    Plan { per_second: slow_budget(nodes), fails_at: FROM, liar: HOSTILE, ends, ..Plan::of_acts(seed, nodes, acts) }
}

/// The longest that a node waited for an image that it wanted after `from`.
pub fn longest_wait(story: &Story, image: &'static str, from: Duration) -> Duration {
    let of_image = story.wanted.iter().filter(|((node, wanted), _)| *wanted == image && *node != HOSTILE);
    let waited = of_image
        .map(|((node, _), wanted)| story.served_at(*node, image).map_or(Duration::MAX, |began| began.saturating_sub((*wanted).max(from))));
    waited.max().unwrap_or_default()
}

/// The hostile node, with its rights on the bus.
pub struct Hostile {
    bus: MemoryBus,
    name: NodeName,
    others: Vec<NodeName>,
    /// The permits of each budget that it claims to hold.
    claimed: BTreeMap<String, Vec<PermitId>>,
    random: Random,
    /// How many leases it has overwritten, its own included.
    pub kept: Arc<AtomicU64>,
}

/// The result of one round of forged requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forged {
    /// Requests in the names of other nodes.
    pub as_others: u64,
    /// Those of [`Self::as_others`] that were refused.
    pub refused: u64,
    /// Requests in its own name.
    pub as_itself: u64,
}

impl Hostile {
    pub fn new(bus: MemoryBus, name: NodeName, others: Vec<NodeName>, random: Random) -> Self {
        Self { bus, name, others, claimed: BTreeMap::new(), random, kept: Arc::default() }
    }

    /// Claims permits and requests more, of each budget with a leader: in its own name and in the names of other nodes.
    pub async fn forge(&mut self) -> Forged {
        let mut forged = Forged::default();
        for entry in self.leaders().await.snapshot(None).await.expect("the bus is open").entries {
            // A lease without an owner belongs to the registrar.
            let Some(lease) = decode::<StoredLease>(&entry.entry.value).ok().filter(|lease| !lease.of.is_empty()) else { continue };
            let (name, owner, leader) = (self.name.clone(), lease.of, lease.holder);
            let random = &mut self.random;
            let fresh = || (0..BUDGET_PERMITS_PER_NODE).map(|_| PermitId::random(random)).collect();
            let permits = self.claimed.entry(owner.clone()).or_insert_with(fresh).clone();
            for permit in permits.iter().take(ASKED) {
                let known = KnownLimits::default();
                self.send(&leader, &GrantBudget { owner: owner.clone(), node: name.clone(), permit: *permit, known, caps: Caps::NONE })
                    .await;
            }
            let renew = |node: NodeName, permits: Vec<PermitId>| RenewBudget {
                owner: owner.clone(),
                node,
                permits,
                limits: Vec::new(),
                known: KnownLimits::default(),
            };
            self.send(&leader, &renew(name, permits)).await;
            forged.as_itself += 1 + ASKED as u64;
            for other in self.others.clone() {
                let permits: Vec<PermitId> = (0..FORGED_FOR_EACH).map(|_| PermitId::random(&mut self.random)).collect();
                forged.as_others += 1;
                forged.refused += u64::from(self.is_refused(&leader, &renew(other, permits)).await);
            }
        }
        forged
    }

    /// Keeps all leases that it has seen or can guess, for ever: the keys of leads, slots and probes, of budget leaders and of the
    /// registrar. It overwrites the leases of others, and writes all of them again each second.
    pub async fn keep_leases(&self) {
        let fleet = Fleet::default();
        let leases = self.bus.bucket(&bucket_spec(SharedBucket::leases(&fleet))).await.expect("the bus is open");
        let lead = |reference: &str| {
            let in_view = KeyInView::Reference { reference: reference.to_owned(), scope: "anonymous".to_owned(), mirrored: false };
            let backoff_key = BackoffKey::new(view(), in_view).id().0;
            (0..3).map(move |which| AttemptKey { kind: "lead".to_owned(), backoff_key, which }.text())
        };
        let own = Bytes::from(encode(&StoredLease::of_node(self.name.clone())).expect("it fits"));
        let name = self.name.clone();
        let kept = move |_: &str, _: &Bytes| Some(own.clone());
        actix::spawn(keep(leases, [TOOL, APP].into_iter().flat_map(lead).collect(), self.kept.clone(), kept));
        let registrar = Bytes::from(encode(&StoredLease::of_node(name.clone())).expect("it fits"));
        let of_leaders = move |key: &str, value: &Bytes| {
            if key == REGISTRAR_LEASE {
                return Some(registrar.clone());
            }
            let lease = decode::<StoredLease>(value).ok().filter(|_| key.ends_with(".lead"))?;
            encode(&StoredLease { holder: name.clone(), epoch: 0, ..lease }).ok().map(Bytes::from)
        };
        actix::spawn(keep(self.leaders().await, BTreeSet::from([REGISTRAR_LEASE.to_owned()]), self.kept.clone(), of_leaders));
    }

    async fn leaders(&self) -> Arc<dyn KeyValue> {
        self.bus.bucket(&bucket_spec(SharedBucket::leaders(&Fleet::default()))).await.expect("the bus is open")
    }

    /// A message on its own subject, the only one that a server lets it send on.
    fn message<C: Command>(&self, leader: &NodeName, body: &C) -> Message {
        let subject = Fleet::default().command_from(&self.name, leader, C::SERVICE, C::VERB);
        let payload = rmp_serde::to_vec_named(body).expect("it is encoded");
        Message::new(subject, payload)
    }

    async fn send<C: Command>(&self, leader: &NodeName, body: &C) {
        let message = Message { reply_to: Some(self.bus.new_inbox()), ..self.message(leader, body) };
        self.bus.publish(message).await.expect("the bus is open");
    }

    async fn is_refused<C: Command>(&self, leader: &NodeName, body: &C) -> bool {
        let answer = self.bus.request(self.message(leader, body), ANSWER_WITHIN).await;
        answer.is_ok_and(|answer| answer.headers.get(headers::SERVICE_ERROR).is_some())
    }
}

/// Writes `value` under each of these keys and under each key that another node writes, until it is stopped.
async fn keep(bucket: Arc<dyn KeyValue>, keys: BTreeSet<String>, kept: Arc<AtomicU64>, value: impl Fn(&str, &Bytes) -> Option<Bytes>) {
    let mut own: BTreeMap<String, Bytes> = keys.iter().filter_map(|key| Some((key.clone(), value(key, &Bytes::new())?))).collect();
    let write = async |key: &str, value: Bytes| {
        kept.fetch_add(1, Ordering::Relaxed);
        bucket.put(key, value, None).await.expect("it is stored");
    };
    let mut seen = BucketStatus::default();
    let mut look = tokio::time::interval(LOOKS_EVERY);
    let mut again = tokio::time::interval(KEEPS_EVERY);
    let end = tokio::time::sleep(KEEPS_FOR);
    tokio::pin!(end);
    loop {
        tokio::select! {
            biased;
            () = &mut end => return,
            _ = look.tick() => {
                let snapshot = bucket.snapshot(Some(&seen)).await.expect("the bus is open");
                seen = snapshot.status;
                for Entry { key, value: written, .. } in snapshot.entries.into_iter().map(|aged| aged.entry) {
                    if own.get(&key) == Some(&written) {
                        continue;
                    }
                    if let Some(kept) = value(&key, &written) {
                        own.insert(key.clone(), kept.clone());
                        write(&key, kept).await;
                    }
                }
            }
            _ = again.tick() => {
                for (key, value) in &own {
                    write(key, value.clone()).await;
                }
            }
        }
    }
}
