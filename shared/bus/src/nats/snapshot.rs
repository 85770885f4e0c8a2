//! Reads a whole bucket in pages of direct gets: any replica of the stream answers, and no consumer is made.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::{HeaderMap, Subscriber};
use futures::StreamExt;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::timeout;
use tracing::debug;

use super::connection::other;
use super::jetstream::JetStream;
use super::stored::is_marker;
use super::streams::{Existing, ensure_bucket, stream_of};
use crate::error::BusError;
use crate::shared_state::{AgedEntry, BucketSpec, BucketStatus, Entry, Snapshot};

/// Messages per page: about 2 MiB, and half of what a subscription holds. A server may search its index of all keys for each page: with
/// pages of 512 a bucket of 160,000 keys took 30 s.
const PAGE: usize = 4_096;
/// All subjects of the bucket's stream. With the bucket's own wildcard, a server would search that index even if nothing was changed.
const EVERYTHING: &str = ">";
/// How long the next message of a page may take.
const MESSAGE_LIMIT: Duration = Duration::from_secs(5);
/// Statuses that end a page: the end of a batch, and no message.
const END_OF_BATCH: u16 = 204;
const NOTHING_THERE: u16 = 404;

/// The pauses before a server that may lag behind the bucket's leader is asked again; the usual lag is milliseconds.
const LAGS: [Duration; 6] = [
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

/// How many of these pauses are used if only new values are read. A newest change that the server has removed never arrives. Then all
/// keys are read, because only their total number is known.
const LAGS_OF_NEW: usize = 3;

/// The messages read so far.
#[derive(Default)]
struct Read {
    /// Only changes after this sequence; 0: all.
    after: u64,
    /// The newest value of each key; none: a marker.
    newest: BTreeMap<String, Option<AgedEntry>>,
    last: u64,
}

/// Reads all values, or those stored after `since`.
///
/// Any server of a replicated bucket may answer, and may lag behind the leader. What is missing is read as soon as it is there; if it does
/// not come, the snapshot itself says how far it goes.
pub(super) async fn read(jetstream: &JetStream, spec: &BucketSpec, since: Option<&BucketStatus>) -> Result<Snapshot, BusError> {
    let mut existing = ensure_bucket(jetstream, spec).await?;
    let server_time = existing.server_time();
    let after = |existing: &Existing| since.filter(|since| since.created == existing.created).map_or(0, |since| since.sequence);
    let mut read = Read::all_after(after(&existing));
    let inbox = jetstream.connection.client.new_inbox();
    let mut subscriber = jetstream.connection.subscribe(&inbox, None).await?;
    let mut lags = LAGS.iter();
    loop {
        while read.last < existing.last_sequence {
            let request = json!({ "seq": read.last + 1, "batch": PAGE, "next_by_subj": EVERYTHING });
            jetstream.ask_for_page(&stream_of(&spec.name), &request, &inbox).await?;
            if !read_page(&mut subscriber, spec, server_time, &mut read).await? {
                break;
            }
        }
        if read.is_whole(&existing) {
            return Ok(read.snapshot(existing.status(), after(&existing)));
        }
        if read.after > 0 && LAGS.len() - lags.len() == LAGS_OF_NEW {
            read = Read::default();
            continue;
        }
        let Some(lag) = lags.next() else {
            let (sequence, last) = (read.last, existing.last_sequence);
            debug!(bucket = spec.name, sequence, last, "a snapshot is not whole: the server that was asked lags behind");
            return Ok(read.snapshot(BucketStatus { sequence, ..existing.status() }, after(&existing)));
        };
        tokio::time::sleep(*lag).await;
        let again = ensure_bucket(jetstream, spec).await?;
        if again.created != existing.created {
            read = Read::default();
        }
        existing = again;
    }
}

impl Read {
    fn all_after(after: u64) -> Self {
        Self { after, last: after, ..Self::default() }
    }

    /// Whether the answering server had everything that the leader has: its last change or, if the server has removed that, the same
    /// number of keys.
    fn is_whole(&self, existing: &Existing) -> bool {
        self.last >= existing.last_sequence || (self.after == 0 && self.newest.len() as u64 >= existing.subjects)
    }

    /// The values that were stored after `after`.
    fn snapshot(self, status: BucketStatus, after: u64) -> Snapshot {
        let entries = self.newest.into_values().flatten();
        let mut entries: Vec<_> = entries.filter(|aged| aged.entry.revision > after).collect();
        entries.sort_by_key(|aged| aged.entry.revision);
        Snapshot { status, entries }
    }
}

/// Reads a page; returns whether it had any message.
async fn read_page(
    subscriber: &mut Subscriber,
    spec: &BucketSpec,
    server_time: Option<OffsetDateTime>,
    read: &mut Read,
) -> Result<bool, BusError> {
    let before = read.last;
    loop {
        let subject = format!("the bucket {}", spec.name);
        let message = match timeout(MESSAGE_LIMIT, subscriber.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => return Err(BusError::Closed),
            Err(_) => return Err(BusError::TimedOut { subject, timeout: MESSAGE_LIMIT }),
        };
        match message.status.map(|status| status.as_u16()) {
            Some(END_OF_BATCH | NOTHING_THERE) => return Ok(read.last > before),
            Some(status) => return Err(other(format!("reading {subject}: {status} {}", message.description.unwrap_or_default()))),
            None => {}
        }
        let headers = message.headers.unwrap_or_default();
        let revision = header(&headers, "Nats-Sequence").and_then(|number| number.parse().ok());
        let Some(revision) = revision else { return Err(other(format!("reading {subject}: a message has no sequence"))) };
        read.last = revision;
        if let Some(key) = header(&headers, "Nats-Subject").and_then(|subject| subject.splitn(3, '.').nth(2)) {
            let entry = Entry { key: key.to_owned(), value: message.payload, revision };
            let aged = AgedEntry { entry, age: age(&headers, server_time) };
            read.newest.insert(key.to_owned(), (!is_marker(&headers)).then_some(aged));
        }
    }
}

/// How long a message has been stored, by the server's clock alone; 0 if unknown.
fn age(headers: &HeaderMap, server_time: Option<OffsetDateTime>) -> Duration {
    let stored = header(headers, "Nats-Time-Stamp").and_then(|stamp| OffsetDateTime::parse(stamp, &Rfc3339).ok());
    let since = server_time.zip(stored).map(|(now, stored)| now - stored);
    since.and_then(|since| since.try_into().ok()).unwrap_or_default()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.as_str())
}
