//! The way to the bus: the buckets, and what arrives from them.

use std::sync::Arc;

use actors::bucket_spec;
use bus::{BusHealth, BusRef, KeyValue, KeyValueError, Message, Snapshot};
use contract::know::SharedBucket;
use contract::subject::Fleet;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};

/// Messages taken at once: the mailbox has its turn between.
const AT_ONCE: usize = 64;

/// The fleet, and the bus that it shares its knowledge on.
#[derive(Clone)]
pub struct SharedBus {
    /// The bus.
    pub bus: BusRef,
    /// The fleet.
    pub fleet: Fleet,
}

/// An open way to the bus.
pub(crate) struct Link {
    pub(crate) reports: Arc<dyn KeyValue>,
    pub(crate) leases: Arc<dyn KeyValue>,
    pub(crate) pauses: Arc<dyn KeyValue>,
}

/// The way just opened, with what there is.
pub(crate) struct Opened {
    pub(crate) link: Link,
    pub(crate) arriving: BoxStream<'static, Arrived>,
    pub(crate) found: Found,
}

/// All that is stored.
pub(crate) struct Found {
    pub(crate) reports: Snapshot,
    pub(crate) pauses: Snapshot,
}

/// What comes from the bus.
pub(crate) enum Arrived {
    /// Knowledge, in the order in which it was said.
    Knowledge(Vec<Message>),
    /// How the bus is.
    Health(BusHealth),
}

/// Opens the buckets and subscribes, then reads what is there: nothing said in between is missed.
pub(crate) async fn open(shared: SharedBus) -> Result<Opened, KeyValueError> {
    let SharedBus { bus, fleet } = shared;
    let reports = bus.bucket(&bucket_spec(SharedBucket::reports(&fleet))).await?;
    let leases = bus.bucket(&bucket_spec(SharedBucket::leases(&fleet))).await?;
    let pauses = bus.bucket(&bucket_spec(SharedBucket::pauses(&fleet))).await?;
    let knowledge = bus.subscribe(&fleet.all_knowledge(), None).await?;
    let arriving = stream::select(knowledge.ready_chunks(AT_ONCE).map(Arrived::Knowledge), bus.health_changes().map(Arrived::Health));
    let link = Link { reports, leases, pauses };
    let found = link.read().await?;
    Ok(Opened { link, arriving: arriving.boxed(), found })
}

impl Link {
    /// All that is stored now.
    pub(crate) fn read(&self) -> impl Future<Output = Result<Found, KeyValueError>> + 'static {
        let (reports, pauses) = (Arc::clone(&self.reports), Arc::clone(&self.pauses));
        async move { Ok(Found { reports: reports.snapshot().await?, pauses: pauses.snapshot().await? }) }
    }
}
