//! A client that may write to the bucket of reports, as any node may below its own name.

use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::knowledge::{BackoffKey, KeyInView};
use bus::nats::{NatsBus, NatsOptions};
use bus::{KeyValue, KeyValueError, Message, Messaging as _, SharedState as _};
use clock::Random;
use contract::know::{Found, KeyKind, ReportKey, SharedBucket, StoredKeyInView, StoredReport, encode};
use contract::subject::Fleet;
use contract::{AttemptId, FailureClass, View};
use support::nats::NatsServer;

/// How long connecting may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many reports are under way at once: fewer than a server queues for a stream.
const AT_ONCE: usize = 4_000;
/// The placeholder of the number in the text of a report.
const NUMBER: &str = "0000000";

/// A client that writes bad reports.
pub(crate) struct Rogue {
    runtime: tokio::runtime::Runtime,
    bus: NatsBus,
    reports: Arc<dyn KeyValue>,
    bucket: String,
}

impl Rogue {
    pub(crate) fn on(server: &NatsServer) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let options = NatsOptions { urls: Some(server.url()), ..NatsOptions::default() };
        let bucket = actors::bucket_spec(SharedBucket::reports(&Fleet::default()));
        let (bus, reports) = runtime.block_on(async {
            let bus = NatsBus::connect(options).await.unwrap();
            bus.wait_connected(PATIENCE).await.unwrap();
            let reports = bus.bucket(&bucket).await.unwrap();
            (bus, reports)
        });
        Self { runtime, bus, reports, bucket: bucket.name }
    }

    pub(crate) fn put(&self, key: &str, value: Vec<u8>) -> Result<u64, KeyValueError> {
        self.runtime.block_on(self.reports.put(key, value.into(), None))
    }

    /// Writes well-formed reports of `count` images as fast as the server takes them, while `goes_on` returns true; returns how many.
    pub(crate) fn floods(&self, writer: &str, count: usize, goes_on: impl Fn(usize) -> bool) -> usize {
        let mut template = Template::new(writer);
        for number in 0..count {
            let (key, value) = template.report(number);
            let message = Message::new(format!("$KV.{}.{key}", self.bucket), value);
            self.runtime.block_on(self.bus.publish(message)).unwrap();
            if number % AT_ONCE == AT_ONCE - 1 {
                // Published messages are not acknowledged; when the server answers this request, it has received all of them.
                self.runtime.block_on(self.reports.status()).unwrap();
                if !goes_on(number + 1) {
                    return number + 1;
                }
            }
        }
        count
    }
}

/// A report with a number in its reference. It is encoded once, because only the number and the key change.
pub(crate) struct Template {
    writer: String,
    view: View,
    value: Vec<u8>,
    number_at: usize,
}

impl Template {
    pub(crate) fn new(writer: &str) -> Self {
        let view =
            View { scope: "default".to_owned(), registry: "flood.example".to_owned(), route: "direct".to_owned(), ..View::default() };
        let in_view = StoredKeyInView {
            kind: KeyKind::Reference,
            reference: reference(0),
            scope: "anonymous".to_owned(),
            ..StoredKeyInView::default()
        };
        let report = StoredReport {
            view: view.clone(),
            in_view,
            attempt: AttemptId::random(&mut Random::seeded(7)),
            trace: None,
            found: Found::Failed,
            message: "ErrImagePull: flood.example: 404 Not Found (MANIFEST_UNKNOWN: manifest unknown)".to_owned(),
            step: 1,
            retry_after_ms: None,
            repository: "shop/web".to_owned(),
            in_a_row: 0,
            failing_for_ms: 0,
            for_all_ago_ms: 0,
            succeeded_ago_ms: None,
            age_ms: 0,
            written_ms: None,
        };
        let value = encode(&report).unwrap();
        let number_at = value.windows(NUMBER.len()).position(|window| window == NUMBER.as_bytes()).unwrap();
        Self { writer: writer.to_owned(), view, value, number_at }
    }

    /// The key and the value of the report of an image.
    pub(crate) fn report(&mut self, number: usize) -> (String, Vec<u8>) {
        let in_view = KeyInView::Reference { reference: reference(number), scope: "anonymous".to_owned(), mirrored: false };
        let backoff_key = BackoffKey::new(self.view.clone(), in_view).id().0;
        let key = ReportKey { node: self.writer.parse().unwrap(), class: Some(FailureClass::NotFound), backoff_key }.text();
        let digits = format!("{number:07}");
        self.value[self.number_at..self.number_at + NUMBER.len()].copy_from_slice(digits.as_bytes());
        (key, self.value.clone())
    }
}

fn reference(number: usize) -> String {
    format!("flood.example/shop/web:{number:07}")
}
