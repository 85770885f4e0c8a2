//! Reading a stream in pages of direct gets: any replica of the stream answers, and no consumer is made.

use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::timeout;

use super::connection::{from_wire, other};
use super::jetstream::JetStream;
use crate::error::BusError;
use crate::event_log::{StoredMessage, StreamPage, StreamQuery, StreamStart};
use crate::message::{Headers, Message};

/// The bytes of a page: half of what a subscription may hold of the largest messages.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// How long the next message of a page may take.
const MESSAGE_LIMIT: Duration = Duration::from_secs(5);
/// Statuses that end a page: the end of a batch, and no message.
const END_OF_BATCH: u16 = 204;
const NOTHING_THERE: u16 = 404;
/// Headers that a server adds to a message that is read; all others are the message's own.
const OF_SERVER: [&str; 5] = ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Last-Sequence"];
/// The header in which a server says how many messages match after this one.
const PENDING: &str = "Nats-Num-Pending";

/// Reads one page.
pub(super) async fn read(jetstream: &JetStream, query: &StreamQuery) -> Result<StreamPage, BusError> {
    let mut pages = Vec::new();
    for subject in &query.subjects {
        pages.push(read_of(jetstream, query, subject).await?);
    }
    Ok(merged(pages))
}

/// Merges several pages, up to where all of them reach.
fn merged(pages: Vec<StreamPage>) -> StreamPage {
    let ends = pages.iter().filter_map(|page| page.next);
    let next = ends.min();
    let read = pages.into_iter().flat_map(|page| page.messages);
    let mut messages: Vec<StoredMessage> = read.filter(|stored| next.is_none_or(|next| stored.sequence < next)).collect();
    messages.sort_by_key(|stored| stored.sequence);
    messages.dedup_by_key(|stored| stored.sequence);
    StreamPage { messages, next }
}

/// Reads what is stored under one subject.
async fn read_of(jetstream: &JetStream, query: &StreamQuery, subject: &str) -> Result<StreamPage, BusError> {
    let inbox = jetstream.connection.client.new_inbox();
    let mut subscriber = jetstream.connection.subscribe(&inbox, None).await?;
    let mut request = json!({ "batch": query.limit.max(1), "max_bytes": PAGE_BYTES, "next_by_subj": subject });
    match query.from {
        StreamStart::Sequence(sequence) => request["seq"] = json!(sequence.max(1)),
        StreamStart::Time(time) => request["start_time"] = Value::String(rfc3339(time)),
    }
    jetstream.ask_for_page(&query.stream, &request, &inbox).await?;
    let mut page = StreamPage::default();
    loop {
        let message = match timeout(MESSAGE_LIMIT, subscriber.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => return Err(BusError::Closed),
            Err(_) => return Err(BusError::TimedOut { subject: format!("the stream {}", query.stream), timeout: MESSAGE_LIMIT }),
        };
        let (status, description) = (message.status.map(|status| status.as_u16()), message.description.clone());
        let Message { headers, payload, .. } = from_wire(message);
        match status {
            Some(NOTHING_THERE) => return Ok(page),
            Some(END_OF_BATCH) => {
                let pending = headers.get(PENDING).and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
                page.next = page.messages.last().filter(|_| pending > 0).map(|last| last.sequence + 1);
                return Ok(page);
            }
            Some(503) => return Err(BusError::NoResponders { subject: format!("the stream {}", query.stream) }),
            Some(status) => {
                let description = description.unwrap_or_default();
                return Err(other(format!("reading the stream {}: {status} {description}", query.stream)));
            }
            None => {}
        }
        let stored = stored(&headers, payload);
        page.messages.push(stored.ok_or_else(|| other(format!("reading the stream {}: a message has no sequence", query.stream)))?);
    }
}

/// A message as a server returns it, without the headers that the server has added.
fn stored(headers: &Headers, payload: bytes::Bytes) -> Option<StoredMessage> {
    let sequence = headers.get("Nats-Sequence")?.parse().ok()?;
    let subject = headers.get("Nats-Subject")?.to_owned();
    let stamp = headers.get("Nats-Time-Stamp").and_then(|stamp| OffsetDateTime::parse(stamp, &Rfc3339).ok());
    let stored_at = stamp.and_then(|stamp| (stamp - OffsetDateTime::UNIX_EPOCH).try_into().ok()).unwrap_or_default();
    let mut own = Headers::new();
    let lines = headers.iter().filter(|(name, _)| !OF_SERVER.contains(name) && *name != PENDING);
    lines.for_each(|(name, value)| own.set(name.to_owned(), value.to_owned()));
    Some(StoredMessage { sequence, stored_at, message: Message::new(subject, payload).with_headers(own) })
}

fn rfc3339(time: Duration) -> String {
    let time = OffsetDateTime::UNIX_EPOCH.checked_add(time.try_into().unwrap_or_default()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(&Rfc3339).unwrap_or_else(|_| "1970-01-01T00:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(sequences: &[u64], next: Option<u64>) -> StreamPage {
        let stored = |sequence: &u64| StoredMessage { sequence: *sequence, stored_at: Duration::ZERO, message: Message::new("a", "") };
        StreamPage { messages: sequences.iter().map(stored).collect(), next }
    }

    #[test]
    fn pages_of_several_subjects_merge_up_to_the_shortest() {
        assert_eq!(merged(Vec::new()), StreamPage::default());
        assert_eq!(merged(vec![page(&[2, 5], None), page(&[1, 4, 9], None)]), page(&[1, 2, 4, 5, 9], None));
        assert_eq!(merged(vec![page(&[2, 5], Some(6)), page(&[1, 4, 9], None)]), page(&[1, 2, 4, 5], Some(6)));
        assert_eq!(merged(vec![page(&[2, 5], Some(6)), page(&[1, 4], Some(5))]), page(&[1, 2, 4], Some(5)));
        assert_eq!(merged(vec![page(&[1, 2], None), page(&[2, 3], None)]), page(&[1, 2, 3], None), "one that fits both is there once");
    }
}
