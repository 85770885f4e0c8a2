//! What nodes told each other, as the server republished it.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bus::Bus as _;
use bus::memory::MemoryBus;
use clock::Clock;
use contract::know::{Found, REPORTS, ReportKey, StoredReport, decode};
use contract::subject::Fleet;
use futures::StreamExt as _;

/// One report.
#[derive(Clone, Debug)]
pub struct Told {
    /// When the server had stored it.
    pub at: Duration,
    pub node: String,
    /// What it is about.
    pub backoff_key: u128,
    pub failed: bool,
    /// How long before that it was so.
    pub age: Duration,
}

/// Every report of a run.
pub struct AllTold(Rc<RefCell<Vec<Told>>>);

impl AllTold {
    pub async fn on(hub: &MemoryBus, clock: Clock) -> Self {
        let fleet = Fleet::default();
        let told: Rc<RefCell<Vec<Told>>> = Rc::default();
        let (connection, all) = (hub.connect(), Rc::clone(&told));
        let mut arriving = connection.subscribe(&fleet.all_knowledge(), None).await.expect("the bus is open");
        actix::spawn(async move {
            let _open = connection;
            while let Some(message) = arriving.next().await {
                let key = fleet.key_of(REPORTS, &message.subject).and_then(ReportKey::read);
                let (Some(key), Ok(report)) = (key, decode::<StoredReport>(&message.payload)) else { continue };
                let (at, age) = (clock.now().monotonic, Duration::from_millis(report.age_ms));
                let failed = report.found != Found::Succeeded;
                all.borrow_mut().push(Told { at, node: key.node.to_string(), backoff_key: key.backoff_key, failed, age });
            }
        });
        Self(told)
    }

    pub fn take(&self) -> Vec<Told> {
        self.0.take()
    }
}
