//! The members of the fleet: the agents that answer, the nodes that are known but silent, and the servers that hold their records.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use actors::{Sender, bucket_spec};
use anyhow::{Result, anyhow};
use bus::{AgedEntry, BucketServers, BusRef, KeyValueError};
use contract::know::{SharedBucket, StoredMember, decode, member_of};
use contract::messages::agent::NodeDescription;
use contract::messages::registrar::ListNodes;
use contract::{DEADLINES, NodeName};
use futures::FutureExt as _;
use futures::future::{LocalBoxFuture, Shared};

use super::FleetClient;
use crate::cli::{Format, NodesQuestionArgs, Selector};
use crate::node::root_envelope;
use crate::output::silent::{Silent, milliseconds};
use crate::output::{self, units};

/// How long the registrar's list may take. The registrar answers within milliseconds, and a person waits.
const REGISTRAR_WITHIN: Duration = Duration::from_secs(1);
/// How long reading the members' records may take. 10,000 of them have about 3 MB.
const RECORDS_WITHIN: Duration = Duration::from_secs(5);
/// How long a request may take that only explains why a node does not answer: its command has waited already.
pub(super) const EXPLAINED_WITHIN: Duration = Duration::from_secs(1);
/// For how long an answer when nodes were last seen is used again. An agent reports that it is alive as often.
const CONTACTS_USED_FOR: Duration = Duration::from_secs(5);
/// The registrar forgets a node that is silent for this long.
const REGISTRAR_KNOWS_FOR: Duration = DEADLINES.known_for;

/// The nodes of a fleet that a command selects.
pub struct Members {
    /// The agents that answer, one for each name, by name.
    pub answering: Vec<NodeDescription>,
    /// Duplicate agents: the fleet does not reach them by their names.
    pub duplicates: Vec<NodeDescription>,
    /// The nodes that are known but do not answer, by name. With a selector: those that it selects, and those with unknown labels.
    pub silent: Vec<Silent>,
    /// The NATS servers that hold the records of the members. None if they are unknown, or if one agent is asked through its socket.
    pub servers: Option<BucketServers>,
}

/// When it was asked how long ago each node was last seen, on the monotonic clock, and the answer, which all that ask share.
pub(super) type AskedContacts = (Duration, Shared<LocalBoxFuture<'static, Rc<BTreeMap<NodeName, Silent>>>>);

/// The records of the members.
#[derive(Default)]
struct Records {
    /// Each member as it is reported if it is silent.
    members: BTreeMap<NodeName, Silent>,
    servers: Option<BucketServers>,
}

impl FleetClient {
    /// The nodes that `selector` selects. At least one of them answers, or is known but silent.
    ///
    /// # Errors
    /// No node answers or is known, `selector` selects none of them, or the bus did not accept the request.
    pub async fn members(&self, selector: Option<&Selector>) -> Result<Members> {
        let (mut answering, mut duplicates) = without_duplicates(self.nodes().await?);
        self.check_socket(&answering)?;
        let names: Vec<NodeName> = answering.iter().map(|node| node.node.clone()).collect();
        let (mut silent, servers) = self.silent(&names).await;
        if answering.is_empty() && silent.is_empty() {
            return Err(self.nobody_answers());
        }
        if let Some(selector) = selector {
            let (answered, known_silent) = (answering.len(), silent.len());
            answering.retain(|node| selector.matches(&node.labels));
            duplicates.retain(|node| selector.matches(&node.labels));
            retain_selected(&mut silent, Some(selector));
            if answering.is_empty() && !silent.iter().any(|silent| silent.labels.is_some()) {
                return Err(no_node_has(selector, answered, known_silent));
            }
        }
        Ok(Members { answering, duplicates, silent, servers })
    }

    /// Nodes that the fleet knows but that are not in `answering`: with a selector those that it selects, and those with unknown labels.
    /// Empty if nodes were given by name.
    pub async fn silent_of<F: Format>(&self, args: &NodesQuestionArgs<F>, answering: &[NodeName]) -> Vec<Silent> {
        if !args.nodes.is_empty() {
            return Vec::new();
        }
        let (mut silent, _) = self.silent(answering).await;
        retain_selected(&mut silent, args.question.fleet.selector.as_ref());
        silent
    }

    /// Nodes that the fleet knows but that are not in `answering`, by name, and the servers that hold the records of the members. Warns if
    /// the records cannot be read.
    async fn silent(&self, answering: &[NodeName]) -> (Vec<Silent>, Option<BucketServers>) {
        // An agent behind a socket answers only for itself.
        let Some(bus) = self.bus() else { return (Vec::new(), None) };
        let (Records { members: mut known, servers }, last_seen) = futures::join!(self.recorded(bus), self.last_seen(answering.first()));
        add_last_seen(&mut known, last_seen);
        let answering: BTreeSet<&NodeName> = answering.iter().collect();
        (known.into_values().filter(|silent| !answering.contains(&silent.node)).collect(), servers)
    }

    /// How long ago a node was last seen. The fleet is asked once for all nodes that fall silent together, because the records of a large
    /// fleet have megabytes.
    pub(super) async fn last_contact(&self, node: &NodeName) -> Option<Duration> {
        let now = self.clock.now().monotonic;
        let asked = self.contacts.borrow().clone().filter(|(asked_at, _)| now < *asked_at + CONTACTS_USED_FOR);
        let contacts = match asked {
            Some((_, contacts)) => contacts,
            None => {
                // The client of the reading does not keep the reading, which keeps the client.
                let (client, any) = (Self { contacts: Rc::default(), ..self.clone() }, node.clone());
                let contacts = async move { Rc::new(client.last_contacts(&any).await) }.boxed_local().shared();
                self.contacts.replace(Some((now, contacts.clone())));
                contacts
            }
        };
        contacts.await.get(node).map(|silent| silent.ago)
    }

    /// Each node that is known by its record or to the registrar, which is reached through the wiring of `any`. Empty if neither can
    /// be read.
    async fn last_contacts(&self, any: &NodeName) -> BTreeMap<NodeName, Silent> {
        // An agent behind a socket answers only for itself.
        let Some(bus) = self.bus() else { return BTreeMap::new() };
        let (records, last_seen) = futures::join!(self.records(bus, EXPLAINED_WITHIN), self.last_seen(Some(any)));
        let mut known = records.unwrap_or_default().members;
        add_last_seen(&mut known, last_seen);
        known
    }

    /// The records of the members. Empty, with a warning, if they cannot be read.
    async fn recorded(&self, bus: &BusRef) -> Records {
        self.records(bus, RECORDS_WITHIN).await.unwrap_or_else(|why| {
            output::warn(&format!("nodes that are down may be missing: the list of the fleet's members cannot be read: {why}"));
            Records::default()
        })
    }

    /// The records of the members, or why they cannot be read within this time.
    async fn records(&self, bus: &BusRef, within: Duration) -> Result<Records, String> {
        let reading = async {
            let members = bus.bucket(&bucket_spec(SharedBucket::members(&self.fleet))).await.map_err(KeyValueError::from)?;
            members.snapshot(None).await
        };
        match tokio::time::timeout(within, reading).await {
            Ok(Ok(snapshot)) => {
                let members = snapshot.entries.iter().filter_map(member).map(|silent| (silent.node.clone(), silent)).collect();
                Ok(Records { members, servers: snapshot.status.servers })
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => {
                let limit = units::milliseconds(milliseconds(within));
                Err(format!("no answer within {limit}: may this login read the fleet's members (deploy/nats/accounts.conf)?"))
            }
        }
    }

    /// How long ago the registrar last received something from each node. It is reached through the wiring of `any`. Empty if there is no
    /// registrar.
    async fn last_seen(&self, any: Option<&NodeName>) -> BTreeMap<NodeName, Duration> {
        let Some(any) = any else { return BTreeMap::new() };
        match Sender::<ListNodes>::to_leader(self.wiring(any)).call(root_envelope(ListNodes {}), REGISTRAR_WITHIN).await {
            Ok(list) => list.last_seen_ms_ago.into_iter().map(|(node, ago)| (node, Duration::from_millis(ago))).collect(),
            Err(error) => {
                tracing::debug!(%error, "no registrar answers when it last saw the nodes");
                BTreeMap::new()
            }
        }
    }
}

/// The first agent of each name, and the others. `nodes` are sorted by name.
pub(super) fn without_duplicates(nodes: Vec<NodeDescription>) -> (Vec<NodeDescription>, Vec<NodeDescription>) {
    let (mut first, mut others) = (Vec::<NodeDescription>::with_capacity(nodes.len()), Vec::new());
    for node in nodes {
        let is_other = first.last().is_some_and(|last| last.node == node.node);
        if is_other { others.push(node) } else { first.push(node) }
    }
    (first, others)
}

/// Adds the registrar's times, which are newer than the records, and the nodes that only it knows: agents of a version that writes no
/// record.
fn add_last_seen(known: &mut BTreeMap<NodeName, Silent>, last_seen: BTreeMap<NodeName, Duration>) {
    for (node, ago) in last_seen {
        let silent = known.entry(node.clone());
        let silent = silent.or_insert_with(|| Silent { node, ago, labels: None, known_for: REGISTRAR_KNOWS_FOR });
        silent.ago = silent.ago.min(ago);
    }
}

/// Removes the nodes whose known labels do not match `selector`.
fn retain_selected(silent: &mut Vec<Silent>, selector: Option<&Selector>) {
    silent.retain(|silent| silent.labels.as_ref().is_none_or(|labels| selector.is_none_or(|selector| selector.matches(labels))));
}

/// The error if neither a node that answered nor a silent node with known labels matches `selector`.
pub(super) fn no_node_has(selector: &Selector, answered: usize, silent: usize) -> anyhow::Error {
    let silent = if silent > 0 { format!(", {silent} are silent") } else { String::new() };
    anyhow!("no node has the labels {}: {answered} answered{silent}, `fleetpull nodes -o json` shows theirs", selector.as_str())
}

/// The member of a record, as it is reported if it is silent. None if the key names no node.
fn member(AgedEntry { entry, age }: &AgedEntry) -> Option<Silent> {
    let node = member_of(&entry.key)?;
    // An unreadable record still shows that the node exists.
    let record: StoredMember = decode(&entry.value).unwrap_or_default();
    Some(Silent { node, ago: *age, labels: record.labels, known_for: Duration::from_millis(record.gone_after_ms) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#[path = "members_tests.rs"]
mod tests;
