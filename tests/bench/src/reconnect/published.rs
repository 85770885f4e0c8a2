//! Which reports reach the bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bus::Bus as _;
use bus::nats::{NatsBus, NatsOptions};
use clock::Clock;
use contract::AttemptId;
use contract::know::{REPORTS, ReportKey, StoredReport, decode};
use contract::subject::Fleet;
use futures::StreamExt as _;

use super::LIMIT;

/// A report that was stored.
pub(super) struct Report {
    pub(super) at: Duration,
    node: String,
    key: u128,
    pub(super) attempt: AttemptId,
}

/// Who listens to all reports, on a connection of its own that is back at once.
pub(super) struct Published {
    reports: Arc<Mutex<Vec<Report>>>,
    _bus: NatsBus,
}

impl Published {
    pub(super) async fn watch(url: &str, clock: &Clock) -> Result<Self> {
        let bus = NatsBus::connect(NatsOptions { urls: Some(url.to_owned()), ..NatsOptions::default() }).await?;
        bus.wait_connected(LIMIT).await?;
        let fleet = Fleet::default();
        let mut stored = bus.subscribe(&format!("{}.>", fleet.knowledge(REPORTS)), None).await?;
        let reports: Arc<Mutex<Vec<Report>>> = Arc::default();
        let (seen, clock) = (Arc::clone(&reports), clock.clone());
        tokio::spawn(async move {
            while let Some(message) = stored.next().await {
                let key = fleet.key_of(REPORTS, &message.subject).and_then(ReportKey::read);
                if let (Some(key), Ok(report)) = (key, decode::<StoredReport>(&message.payload)) {
                    let (node, key) = (key.node.to_string(), key.topic);
                    let report = Report { at: clock.now().monotonic, node, key, attempt: report.attempt };
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(report);
                }
            }
        });
        Ok(Self { reports, _bus: bus })
    }

    pub(super) fn take(&self) -> Vec<Report> {
        std::mem::take(&mut *self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The most nodes on one key.
pub(super) fn nodes_on_a_key<'a>(reports: impl Iterator<Item = &'a Report>) -> usize {
    let mut nodes: BTreeMap<u128, BTreeSet<&str>> = BTreeMap::new();
    for report in reports {
        nodes.entry(report.key).or_default().insert(&report.node);
    }
    nodes.into_values().map(|nodes| nodes.len()).max().unwrap_or_default()
}

/// The most reports on one key.
pub(super) fn reports_on_a_key<'a>(reports: impl Iterator<Item = &'a Report>) -> usize {
    let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
    for report in reports {
        *counts.entry(report.key).or_default() += 1;
    }
    counts.into_values().max().unwrap_or_default()
}
