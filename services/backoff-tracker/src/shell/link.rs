//! The link to the bus: the buckets, and the messages from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use actors::bucket_spec;
use bus::{AgedEntry, BucketStatus, BusRef, HealthChanges, KeyValue, KeyValueError, Message, Snapshot};
use contract::know::SharedBucket;
use contract::subject::Fleet;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use lease::LeaseStore;
use replication::Position;
use tokio::sync::mpsc;

use crate::core::knowledge::MAX_KEYS_OF_ONE;
use crate::outbound::{WRITES_WAITING, Write};

/// Messages taken at once; the mailbox is served in between. Room for all of them is allocated with the first, so it must be small.
const AT_ONCE: usize = 8;

/// The fleet and its bus.
#[derive(Clone)]
pub struct SharedBus {
    /// The bus.
    pub bus: BusRef,
    /// The fleet.
    pub fleet: Fleet,
}

pub(crate) struct Link {
    pub(crate) reports: Arc<dyn KeyValue>,
    pub(crate) pauses: Arc<dyn KeyValue>,
    pub(crate) writes: mpsc::Sender<Write>,
}

/// A link that was just opened, with the first snapshots.
pub(crate) struct Opened {
    pub(crate) link: Link,
    /// What is written to the link.
    pub(crate) waiting: mpsc::Receiver<Write>,
    /// Messages from the buckets, in the order in which they were published.
    pub(crate) arriving: BoxStream<'static, Vec<Message>>,
    pub(crate) health: HealthChanges,
    pub(crate) found: Found,
}

/// Snapshots of the buckets.
pub(crate) struct Found {
    /// Reports that were not read before.
    pub(crate) reports: Snapshot,
    pub(crate) pauses: Snapshot,
}

/// Opens the buckets and subscribes, then reads the snapshots, so that no message in between is missed.
pub(crate) async fn open(shared: SharedBus, leases: Arc<LeaseStore>) -> Result<Opened, KeyValueError> {
    let SharedBus { bus, fleet } = shared;
    let reports = bus.bucket(&bucket_spec(SharedBucket::reports(&fleet))).await?;
    leases.bucket().await?;
    let pauses = bus.bucket(&bucket_spec(SharedBucket::pauses(&fleet))).await?;
    let (knowledge, health) = (bus.subscribe(&fleet.all_knowledge(), None).await?, bus.health_changes());
    let (writes, waiting) = mpsc::channel(WRITES_WAITING);
    let link = Link { reports, pauses, writes };
    let found = link.read(Position::default()).await?;
    Ok(Opened { link, waiting, arriving: knowledge.ready_chunks(AT_ONCE).boxed(), health, found })
}

/// Keeps the newest [`MAX_KEYS_OF_ONE`] reports of each writer, because the replica would forget the others. `entries` are sorted by age,
/// the oldest first.
fn newest_of_each(entries: &mut Vec<AgedEntry>) {
    let mut of_writer: BTreeMap<String, usize> = BTreeMap::new();
    let mut newest = |stored: &AgedEntry| {
        let count = of_writer.entry(stored.entry.key.split('.').next().unwrap_or_default().to_owned()).or_default();
        *count += 1;
        *count <= MAX_KEYS_OF_ONE
    };
    let mut kept: Vec<AgedEntry> = std::mem::take(entries).into_iter().rev().filter(|stored| newest(stored)).collect();
    kept.reverse();
    *entries = kept;
}

impl Link {
    /// Reads snapshots; of reports only those stored after `since`, because a fleet whose bus loses messages reads often.
    pub(crate) fn read(&self, since: Position) -> impl Future<Output = Result<Found, KeyValueError>> + 'static {
        let (reports, pauses) = (Arc::clone(&self.reports), Arc::clone(&self.pauses));
        async move {
            let since = BucketStatus { created: since.created, sequence: since.sequence, ..BucketStatus::default() };
            let (mut reports, pauses) = (reports.snapshot(Some(&since)).await?, pauses.snapshot(None).await?);
            newest_of_each(&mut reports.entries);
            Ok(Found { reports, pauses })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bus::Entry;

    use super::*;

    #[test]
    fn newest_reports_of_each_writer_are_read_in_stored_order() {
        let stored = |revision: u64| {
            let writer = if revision.is_multiple_of(1_000) { "honest" } else { "rogue" };
            let entry = Entry { key: format!("{writer}.not_found.{revision:032x}"), value: Vec::new().into(), revision };
            AgedEntry { entry, age: Duration::ZERO }
        };
        let mut entries: Vec<AgedEntry> = (1..=10_000).map(stored).collect();
        newest_of_each(&mut entries);
        let revisions: Vec<u64> = entries.iter().map(|stored| stored.entry.revision).collect();
        assert!(revisions.is_sorted());
        assert_eq!(revisions.iter().filter(|revision| revision.is_multiple_of(1_000)).count(), 10);
        assert_eq!(revisions.len(), 10 + MAX_KEYS_OF_ONE);
        assert_eq!(revisions.iter().rev().take(3).collect::<Vec<_>>(), [&10_000, &9_999, &9_998]);
    }
}
