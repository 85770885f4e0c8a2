//! A server with the accounts of the example, and the buckets of a fleet.

use std::sync::Arc;
use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions, SetupOptions};
use bus::{BucketSpec, BusError, KeyValue, Message, Messaging, SharedState};
use bytes::Bytes;
use futures::StreamExt;
use support::nats::{Accounts, NatsServer};
use tempfile::TempDir;

/// A limit that nothing here reaches on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// A server refuses by not answering, so a message that has not come within this time counts as refused. If it came later, the next run
/// would fail.
pub(super) const REFUSED_AFTER: Duration = Duration::from_secs(1);
/// The buckets of a fleet.
pub(super) const BUCKETS: [&str; 7] = ["reports", "leases", "leaders", "pauses", "members", "policy", "keys"];

/// A server with the example's accounts, with keys that this test has created.
pub(super) struct Fleet {
    server: NatsServer,
    accounts: Accounts,
    contexts: TempDir,
}

impl Fleet {
    /// Starts a server and creates the buckets of a fleet with the login that may do so.
    pub(super) async fn start() -> Self {
        let accounts = Accounts::new();
        let server = NatsServer::start(accounts.config());
        let fleet = Self { server, accounts, contexts: TempDir::new().unwrap() };
        let setup = fleet.connect("setup").await;
        for purpose in BUCKETS {
            setup.set_up(&spec(purpose), SetupOptions::default()).await.unwrap();
        }
        fleet
    }

    /// Connects as the comments of the example describe: by a context with nkey, authority and inbox prefix.
    pub(super) async fn connect(&self, user: &str) -> NatsBus {
        self.accounts.write_context(self.contexts.path(), user, &self.server.address());
        let config_home = Some(self.contexts.path().to_owned());
        let bus = NatsBus::connect(NatsOptions { context: Some(user.to_owned()), config_home, ..NatsOptions::default() }).await.unwrap();
        bus.wait_connected(LIMIT).await.unwrap();
        bus
    }

    /// The configurations of the buckets, and the number of entries in each.
    pub(super) async fn buckets(&self) -> Vec<serde_json::Value> {
        let setup = self.connect("setup").await;
        let mut all = Vec::new();
        for purpose in BUCKETS {
            let asked = Message::new(format!("$JS.API.STREAM.INFO.KV_fleetpull-{purpose}"), "");
            let answer = setup.request(asked, LIMIT).await.unwrap();
            let mut info: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
            assert!(info["error"].is_null(), "{info}");
            all.push(serde_json::json!([info["config"].take(), info["state"]["messages"], info["created"]]));
        }
        all
    }
}

pub(super) fn message(subject: &str) -> Message {
    Message::new(subject.to_owned(), Bytes::from_static(b"x"))
}

/// Waits for the next message; panics if none comes.
pub(super) async fn next(subscription: &mut bus::Subscription) -> Message {
    tokio::time::timeout(LIMIT, subscription.next()).await.expect("a message comes").expect("the subscription stands")
}

/// Answers the next request.
pub(super) async fn answer(bus: &NatsBus, requests: &mut bus::Subscription) {
    let asked = next(requests).await;
    bus.publish(message(&asked.reply_to.expect("it is a request"))).await.unwrap();
}

/// A bucket of the fleet as agents use it.
fn spec(purpose: &str) -> BucketSpec {
    let republish_to = ["reports", "leases", "pauses", "policy"].contains(&purpose).then(|| format!("fleetpull.v1.know.{purpose}"));
    let marker_ttl = (!["policy", "keys"].contains(&purpose)).then_some(Duration::from_secs(60));
    let name = format!("fleetpull-{purpose}");
    BucketSpec { name, marker_ttl, max_bytes: Some(1 << 20), forgets_oldest: false, republish_to }
}

pub(super) async fn bucket(bus: &NatsBus, purpose: &str) -> Result<Arc<dyn KeyValue>, BusError> {
    bus.bucket(&spec(purpose)).await
}

/// Whether a request is refused: a server refuses by not answering. If nobody subscribes, the request fails at once.
pub(super) async fn is_refused<T, E: std::fmt::Debug>(asking: impl Future<Output = Result<T, E>>) -> bool {
    !matches!(tokio::time::timeout(REFUSED_AFTER, asking).await, Ok(Ok(_)))
}
