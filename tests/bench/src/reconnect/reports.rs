//! The reports of all nodes, as the server republishes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bus::nats::{NatsBus, NatsOptions};
use bus::{BusHealth, Messaging as _};
use clock::Clock;
use contract::know::{Found, REPORTS, ReportKey, StoredReport, decode};
use contract::subject::Fleet;
use futures::StreamExt as _;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A summary of the reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    /// The most nodes that reported, for one back-off key, a failure from before the bus was back.
    pub(super) of_before: usize,
    /// The same for failures since then.
    pub(super) since: usize,
    /// All reports.
    pub(super) reports: usize,
}

#[derive(Debug, Default)]
struct Reports {
    /// When the connection was back.
    back: Duration,
    all: Vec<(u128, String, Kind)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    FailedBefore,
    FailedSince,
    Succeeded,
}

/// All reports.
pub(super) struct PublishedReports(Arc<Mutex<Reports>>);

impl PublishedReports {
    /// Subscribes with a connection of its own.
    pub(super) async fn on(url: &str, clock: Clock) -> Result<Self> {
        let bus = NatsBus::connect(NatsOptions { urls: Some(url.to_owned()), ..NatsOptions::default() }).await?;
        bus.wait_connected(CONNECT_LIMIT).await?;
        let fleet = Fleet::default();
        let mut arriving = bus.subscribe(&fleet.all_knowledge(), None).await?;
        let mut health = bus.health_changes();
        let reports: Arc<Mutex<Reports>> = Arc::default();
        let shared = Arc::clone(&reports);
        tasks::spawn("reports", async move {
            // The connection must live as long as this task.
            let _open = bus;
            loop {
                let message = tokio::select! {
                    biased;
                    health = health.next() => {
                        match health {
                            Some(BusHealth::Connected) => shared.lock().unwrap_or_else(PoisonError::into_inner).back = clock.now().monotonic,
                            Some(_) => {}
                            None => return,
                        }
                        continue;
                    }
                    message = arriving.next() => message,
                };
                let Some(message) = message else { return };
                let key = fleet.key_of(REPORTS, &message.subject).and_then(ReportKey::read);
                let (Some(key), Ok(report)) = (key, decode::<StoredReport>(&message.payload)) else { continue };
                let mut reports = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let was_at = clock.now().monotonic.saturating_sub(Duration::from_millis(report.age_ms));
                let kind = match report.found {
                    Found::Succeeded => Kind::Succeeded,
                    _ if was_at < reports.back => Kind::FailedBefore,
                    _ => Kind::FailedSince,
                };
                reports.all.push((key.backoff_key, key.node.to_string(), kind));
            }
        });
        Ok(Self(reports))
    }

    /// The summary so far.
    pub(super) fn take(&self) -> Summary {
        let reports = std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).all);
        let most = |kind: Kind| {
            let mut nodes: BTreeMap<u128, BTreeSet<&str>> = BTreeMap::new();
            for (backoff_key, node, _) in reports.iter().filter(|(_, _, of)| *of == kind) {
                nodes.entry(*backoff_key).or_default().insert(node);
            }
            nodes.values().map(BTreeSet::len).max().unwrap_or_default()
        };
        let [of_before, since] = [Kind::FailedBefore, Kind::FailedSince].map(most);
        Summary { of_before, since, reports: reports.len() }
    }
}
