//! Reading all of a bucket in pages of direct gets: any replica of the stream answers, and no consumer is made.

use std::time::Duration;

use async_nats::{HeaderMap, Subscriber};
use futures::StreamExt;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::timeout;

use super::connection::other;
use super::jetstream::JetStream;
use super::key_value::is_marker;
use super::streams::{ensure_bucket, stream_of};
use crate::port::{AgedEntry, BucketSpec, BusError, Entry, Snapshot};

/// Messages a page: a few hundred KiB, well under what a subscription holds.
const PAGE: usize = 512;
/// How long the next message of a page may take.
const MESSAGE_LIMIT: Duration = Duration::from_secs(5);
/// Statuses that end a page: the end of a batch, and nothing there.
const END_OF_BATCH: u16 = 204;
const NOTHING_THERE: u16 = 404;

/// Reads all values.
pub(super) async fn read(jetstream: &JetStream, spec: &BucketSpec) -> Result<Snapshot, BusError> {
    let existing = ensure_bucket(jetstream, spec).await?;
    let mut snapshot = Snapshot { status: existing.status(), entries: Vec::new() };
    let server_time = existing.server_time();
    let inbox = jetstream.connection.client.new_inbox();
    let mut subscriber = jetstream.connection.subscribe(&inbox, None).await?;
    let mut from = 1;
    while from <= existing.last_sequence {
        let request = json!({ "seq": from, "batch": PAGE, "next_by_subj": format!("$KV.{}.>", spec.name) });
        jetstream.ask_for_page(&stream_of(&spec.name), &request, &inbox).await?;
        match read_page(&mut subscriber, spec, server_time, &mut snapshot.entries).await? {
            Some(last) => from = last + 1,
            None => break,
        }
    }
    Ok(snapshot)
}

/// Reads a page; returns the last sequence in it, none if there is nothing more.
async fn read_page(
    subscriber: &mut Subscriber,
    spec: &BucketSpec,
    server_time: Option<OffsetDateTime>,
    entries: &mut Vec<AgedEntry>,
) -> Result<Option<u64>, BusError> {
    let mut last = None;
    loop {
        let subject = format!("the bucket {}", spec.name);
        let message = match timeout(MESSAGE_LIMIT, subscriber.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => return Err(BusError::Closed),
            Err(_) => return Err(BusError::TimedOut { subject, timeout: MESSAGE_LIMIT }),
        };
        match message.status.map(|status| status.as_u16()) {
            Some(END_OF_BATCH | NOTHING_THERE) => return Ok(last),
            Some(status) => return Err(other(format!("reading {subject}: {status} {}", message.description.unwrap_or_default()))),
            None => {}
        }
        let headers = message.headers.unwrap_or_default();
        let revision = header(&headers, "Nats-Sequence").and_then(|number| number.parse().ok());
        let Some(revision) = revision else { return Err(other(format!("reading {subject}: a message has no sequence"))) };
        last = Some(revision);
        let key = header(&headers, "Nats-Subject").and_then(|subject| subject.splitn(3, '.').nth(2));
        if let (Some(key), false) = (key, is_marker(&headers)) {
            let entry = Entry { key: key.to_owned(), value: message.payload, revision };
            entries.push(AgedEntry { entry, age: age(&headers, server_time) });
        }
    }
}

/// How long a message has been stored, by the server's clock alone; nothing is older than it can say.
fn age(headers: &HeaderMap, server_time: Option<OffsetDateTime>) -> Duration {
    let stored = header(headers, "Nats-Time-Stamp").and_then(|stamp| OffsetDateTime::parse(stamp, &Rfc3339).ok());
    let since = server_time.zip(stored).map(|(now, stored)| now - stored);
    since.and_then(|since| since.try_into().ok()).unwrap_or_default()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.as_str())
}
