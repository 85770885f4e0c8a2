//! The reports that nodes published, as the server republished them.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bus::Messaging as _;
use bus::memory::MemoryBus;
use clock::Clock;
use contract::know::{Found, REPORTS, ReportKey, StoredReport, decode};
use contract::subject::Fleet;
use futures::StreamExt as _;

/// A published report.
#[derive(Clone, Debug)]
pub struct PublishedReport {
    /// When the server had stored the report.
    pub at: Duration,
    pub node: String,
    /// The back-off key of the report.
    pub backoff_key: u128,
    pub failed: bool,
    /// How long before [`Self::at`] the node made the finding.
    pub age: Duration,
}

/// All published reports of a run.
pub struct PublishedReports(Rc<RefCell<Vec<PublishedReport>>>);

impl PublishedReports {
    pub async fn on(hub: &MemoryBus, clock: Clock) -> Self {
        let fleet = Fleet::default();
        let reports: Rc<RefCell<Vec<PublishedReport>>> = Rc::default();
        let (connection, all) = (hub.connect(), Rc::clone(&reports));
        let mut arriving = connection.subscribe(&fleet.all_knowledge(), None).await.expect("the bus is open");
        actix::spawn(async move {
            let _open = connection;
            while let Some(message) = arriving.next().await {
                let key = fleet.key_of(REPORTS, &message.subject).and_then(ReportKey::read);
                let (Some(key), Ok(report)) = (key, decode::<StoredReport>(&message.payload)) else { continue };
                let (at, age) = (clock.now().monotonic, Duration::from_millis(report.age_ms));
                let failed = report.found != Found::Succeeded;
                all.borrow_mut().push(PublishedReport { at, node: key.node.to_string(), backoff_key: key.backoff_key, failed, age });
            }
        });
        Self(reports)
    }

    pub fn take(&self) -> Vec<PublishedReport> {
        self.0.take()
    }
}
