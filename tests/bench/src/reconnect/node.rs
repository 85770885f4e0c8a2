//! One node: its tracker with a connection of its own, and a caller that wants an image on it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::{Actor as _, Addr};
use actors::Ask;
use anyhow::{Context as _, Result};
use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::{BackoffTracker, Share, SharedBus, TrackerParts};
use bus::nats::{NatsBus, NatsOptions};
use bus::{Bus as _, BusRef};
use clock::{Clock, Random};
use contract::messages::backoff_tracker::{
    AttemptFailure, BeginAttempt, Clearance, CountBackoffs, ListBackoffs, LocalKey, ReportAttempt, RequestClearance, ResolveAttempt,
    SeeFleet,
};
use contract::messages::registrar::{FleetSeen, Place};
use contract::subject::Fleet;
use contract::{AttemptId, ClearanceId, Command, Envelope, FailureClass, Meta, NodeName, Stage as RegistryStage, Target, View};
use tokio::sync::{Semaphore, watch};

use super::{LIMIT, Progress, Stage};
use crate::report::remark;

const REGISTRY: &str = "registry.example";
const IMAGE: &str = "registry.example/team/app:1";
/// How long the registry takes to refuse.
const ANSWERS_AFTER: Duration = Duration::from_millis(20);
/// How long the caller waits for the tracker's answer, as the pull coordinator does for standing pulls.
const PATIENCE_MS: u64 = 10_000;
/// The pause between two reads of the entries.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The failure of a registry that refuses connections.
async fn refused() -> AttemptFailure {
    tokio::time::sleep(ANSWERS_AFTER).await;
    AttemptFailure {
        class: FailureClass::RegistryUnavailable,
        cause: "ErrImagePull: connection refused".to_owned(),
        ..AttemptFailure::default()
    }
}

/// The parts of a node.
pub(super) struct Parts {
    pub(super) number: usize,
    pub(super) nodes: usize,
    pub(super) url: String,
    pub(super) clock: Clock,
    /// Limits the nodes that connect at once.
    pub(super) connecting: Arc<Semaphore>,
    pub(super) progress: Arc<Progress>,
    pub(super) stage: watch::Receiver<Stage>,
}

/// Runs a node until its thread ends.
pub(super) async fn node(parts: Parts) {
    let number = parts.number;
    if let Err(error) = run(parts).await {
        remark(&format!("node {number}: {error:#}"));
    }
}

async fn run(parts: Parts) -> Result<()> {
    let Parts { number, nodes, url, clock, connecting, progress, mut stage } = parts;
    let node = {
        let _one_of_few = connecting.acquire().await?;
        Node::start(number, nodes, &url, &clock).await?
    };
    progress.connected.fetch_add(1, Ordering::Relaxed);
    let within_ms = loop {
        stage.changed().await?;
        if let Stage::Want { within_ms } = *stage.borrow_and_update() {
            break within_ms;
        }
    };
    tokio::time::sleep(Duration::from_millis(within_ms).mul_f64(Random::seeded(number as u64).fraction())).await;
    let wanting = node.want(&progress);
    let looking = async {
        stage.wait_for(|stage| *stage == Stage::Look).await?;
        while !node.knows().await? {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        progress.know.fetch_add(1, Ordering::Relaxed);
        anyhow::Ok(())
    };
    futures::future::try_join(wanting, looking).await?;
    std::future::pending::<()>().await;
    Ok(())
}

struct Node {
    tracker: Addr<BackoffTracker>,
}

impl Node {
    async fn start(number: usize, nodes: usize, url: &str, clock: &Clock) -> Result<Self> {
        let bus = NatsBus::connect(NatsOptions { urls: Some(url.to_owned()), ..NatsOptions::default() }).await?;
        bus.wait_connected(LIMIT).await?;
        bus.set_fleet_size(nodes as u64);
        let bus: BusRef = Arc::new(bus);
        let panic_guard = actors::PanicGuard::of;
        let node: NodeName = format!("n{number}").parse()?;
        let tracker = BackoffTracker::sharing(TrackerParts {
            node,
            policy: BackoffPolicy::default(),
            clock: clock.clone(),
            random: Random::seeded(number as u64),
            panic_guard: panic_guard("backoff-tracker"),
            share: Share::Enforce,
            shared: SharedBus { bus, fleet: Fleet::default() },
            planted_bug: None,
        });
        let node = Self { tracker: tracker.start() };
        let shares = async {
            while node.put(CountBackoffs {}).await?.shared.alone {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(LIMIT, shares).await.context("a tracker does not begin to share")??;
        let place = Place { alive: nodes as u64, alive_in_zone: nodes as u64, rank: Some(number as u64) };
        node.put(SeeFleet(FleetSeen { place, digest: None })).await?;
        Ok(node)
    }

    /// Makes an attempt that fails whenever it has clearance, as a standing pull does.
    async fn want(&self, progress: &Progress) -> Result<()> {
        let mut random = Random::from_system();
        let (clearance, mut attempt) = (ClearanceId::random(&mut random), AttemptId::random(&mut random));
        loop {
            match self.put(request(clearance, attempt)).await? {
                Clearance::Granted { .. } => {}
                Clearance::Abandoned => {
                    attempt = AttemptId::random(&mut random);
                    continue;
                }
                _ => continue,
            }
            self.put(BeginAttempt { clearance, attempt }).await?;
            let failure = Some(refused().await);
            self.put(ResolveAttempt { clearance, attempt, failure: failure.clone(), stage: RegistryStage::Manifest }).await?;
            self.put(ReportAttempt { key: key(), attempt, attempt_span: None, failure, target: None }).await?;
            progress.failed.fetch_add(1, Ordering::Relaxed);
            attempt = AttemptId::random(&mut random);
        }
    }

    /// Whether the node has the bus, and the shared entry of the outage.
    async fn knows(&self) -> Result<bool> {
        let list = self.put(ListBackoffs::default()).await?;
        Ok(!list.alone && list.entries.iter().any(|entry| entry.view.is_some() && entry.binds == "everybody"))
    }

    async fn put<C: Command>(&self, body: C) -> Result<C::Reply>
    where
        BackoffTracker: actix::Handler<Ask<C>>,
    {
        let meta = Meta::root(&mut Random::from_system());
        Ok(self.tracker.send(Ask(Envelope { meta, body })).await??)
    }
}

fn key() -> LocalKey {
    LocalKey { pod: None, image: IMAGE.to_owned() }
}

fn request(clearance: ClearanceId, attempt: AttemptId) -> RequestClearance {
    let target = Target {
        view: View { scope: "default".to_owned(), registry: REGISTRY.to_owned(), route: "direct".to_owned(), boot: String::new() },
        endpoint: format!("{REGISTRY}:443"),
        zone: "default".to_owned(),
        repository: "team/app".to_owned(),
        reference: IMAGE.to_owned(),
        platform: "linux/amd64".to_owned(),
        scope: "anonymous".to_owned(),
        budget_owner: "anonymous".to_owned(),
        ..Target::default()
    };
    RequestClearance {
        clearance,
        attempt,
        attempt_span: None,
        key: key(),
        other_keys: Vec::new(),
        target,
        standing: true,
        patience_ms: PATIENCE_MS,
    }
}
