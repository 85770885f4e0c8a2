//! The nodes of which this process answers what `status` asks.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Handler, MessageResult};
use actors::{Ask, Delivery, Served, Wiring};
use anyhow::Result;
use bus::SharedState as _;
use bus::nats::{NatsBus, NatsOptions};
use contract::know::{SharedBucket, StoredMember, encode, member_key};
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::messages::backoff_tracker::{BackoffEntry, BackoffList, EntryKind, KeyParts, ListBackoffs};
use contract::messages::pull_coordinator::{ListPulls, ListStandingPulls, PullList, PullState, PullStatus, StandingPullList};
use contract::messages::throttler::{BudgetList, ListBudgets};
use contract::subject::Fleet;
use contract::{FailureClass, NodeName, View};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};

const REGISTRY: &str = "registry.example";
const IMAGE: &str = "registry.example/team/app:1";
/// How many nodes share one connection.
const NODES_OF_CONNECTION: usize = 500;
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// The records of members that are written at once.
const WRITES_AT_ONCE: usize = 200;

/// The nodes, while they answer.
pub(super) struct Answering {
    _served: Vec<Served>,
}

/// A node without pulls, or one that waits because a registry is down.
struct Node(NodeDescription);

impl Answering {
    /// Nodes that answer, of which the first `waiting` wait. Each has a record among the members.
    pub(super) async fn start(url: &str, nodes: usize, waiting: usize) -> Result<Self> {
        let (fleet, mut served) = (Fleet::default(), Vec::new());
        for first in (0..nodes).step_by(NODES_OF_CONNECTION) {
            let bus = NatsBus::connect(NatsOptions { urls: Some(url.to_owned()), ..NatsOptions::default() }).await?;
            bus.wait_connected(CONNECTED_WITHIN).await?;
            let bus = Arc::new(bus);
            let names = (first..nodes.min(first + NODES_OF_CONNECTION)).map(name).collect::<Result<Vec<_>>>()?;
            for (number, node) in (first..).zip(&names) {
                let wiring = Wiring { bus: bus.clone(), fleet: fleet.clone(), node: node.clone(), delivery: Delivery::Bus };
                served.extend(Node(described(node, number < waiting)).serve(&wiring, number < waiting).await?);
            }
            let members = bus.bucket(&actors::bucket_spec(SharedBucket::members(&fleet))).await?;
            stream::iter(&names)
                .map(|node| {
                    let members = &members;
                    async move { anyhow::Ok(members.put(&member_key(node), encode(&StoredMember::default())?.into(), None).await?) }
                })
                .buffer_unordered(WRITES_AT_ONCE)
                .try_collect::<Vec<_>>()
                .await?;
        }
        Ok(Self { _served: served })
    }
}

impl Node {
    async fn serve(self, wiring: &Wiring, waiting: bool) -> Result<Vec<Served>> {
        let node = self.start();
        let mut served = vec![
            actors::serve_everywhere::<DescribeNode>(wiring, node.clone().recipient()).await?,
            actors::serve::<ListBackoffs>(wiring, node.clone().recipient()).await?,
            actors::serve::<ListBudgets>(wiring, node.clone().recipient()).await?,
        ];
        if waiting {
            served.push(actors::serve::<ListPulls>(wiring, node.clone().recipient()).await?);
            served.push(actors::serve::<ListStandingPulls>(wiring, node.recipient()).await?);
        }
        Ok(served)
    }
}

fn name(number: usize) -> Result<NodeName> {
    Ok(format!("ip-10-{}-{}.region-1.compute.internal", number / 256, number % 256).parse()?)
}

fn described(node: &NodeName, waits: bool) -> NodeDescription {
    let labels = [("topology.kubernetes.io/zone", "a"), ("node.kubernetes.io/instance-type", "m5.xlarge"), ("pool", "default")];
    let count = u64::from(waits);
    NodeDescription {
        node: node.clone(),
        instance: format!("{node}-1"),
        host: node.to_string(),
        started_ms: 1_700_000_000_000,
        version: "0.1.0".to_owned(),
        state: "ok".to_owned(),
        since_ms: 3_600_000,
        runtime: "containerd v2.1.4".to_owned(),
        labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        zone: "a".to_owned(),
        pulling: 0,
        waiting: count,
        standing: count,
        backoff: count,
        oldest_unsent_ms: 0,
        share: "enforce".to_owned(),
        reads_versions: vec![1],
        policy_revision: 0,
        bus_loss: None,
        bus_unset: false,
    }
}

/// The outage of the registry, as each node lists it.
fn unavailable() -> BackoffEntry {
    BackoffEntry {
        key: format!("{:0<32}", "7f3a"),
        key_parts: KeyParts { endpoint: format!("{REGISTRY}:443"), ..KeyParts::of(EntryKind::Registry, REGISTRY) },
        view: Some(View { scope: "default".to_owned(), registry: REGISTRY.to_owned(), ..View::default() }),
        class: FailureClass::RegistryUnavailable,
        binds: "everybody".to_owned(),
        reporters: vec!["n1".to_owned()],
        reporter_count: 3,
        step: 3,
        since_ms: 252_000,
        last_ms_ago: 3_000,
        next_attempt_ms: 3_400,
        cause: "ErrImagePull: registry.example: 503 Service Unavailable for manifest 1".to_owned(),
        ..BackoffEntry::default()
    }
}

impl Actor for Node {
    type Context = Context<Self>;
}

impl Handler<Ask<DescribeNode>> for Node {
    type Result = MessageResult<Ask<DescribeNode>>;

    fn handle(&mut self, _: Ask<DescribeNode>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(self.0.clone()))
    }
}

impl Handler<Ask<ListBackoffs>> for Node {
    type Result = MessageResult<Ask<ListBackoffs>>;

    fn handle(&mut self, Ask(list): Ask<ListBackoffs>, _: &mut Self::Context) -> Self::Result {
        let entry = (self.0.backoff > 0).then(unavailable);
        let (shared_keys, entries) = match entry {
            Some(entry) if list.body.shared_by_key => (vec![entry.key], Vec::new()),
            entry => (Vec::new(), entry.into_iter().collect()),
        };
        MessageResult(Ok(BackoffList { entries, shared_keys, share: "enforce".to_owned(), ..BackoffList::default() }))
    }
}

impl Handler<Ask<ListBudgets>> for Node {
    type Result = MessageResult<Ask<ListBudgets>>;

    fn handle(&mut self, _: Ask<ListBudgets>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(BudgetList::default()))
    }
}

impl Handler<Ask<ListPulls>> for Node {
    type Result = MessageResult<Ask<ListPulls>>;

    fn handle(&mut self, _: Ask<ListPulls>, _: &mut Self::Context) -> Self::Result {
        let pull = PullStatus {
            image: IMAGE.to_owned(),
            state: PullState::Waiting,
            since_ms: 240_000,
            callers: 1,
            pods: Vec::new(),
            done_bytes: 0,
            total_bytes: 0,
            layers: Vec::new(),
        };
        MessageResult(Ok(PullList { pulls: vec![pull], ..PullList::default() }))
    }
}

impl Handler<Ask<ListStandingPulls>> for Node {
    type Result = MessageResult<Ask<ListStandingPulls>>;

    fn handle(&mut self, _: Ask<ListStandingPulls>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(StandingPullList::default()))
    }
}
