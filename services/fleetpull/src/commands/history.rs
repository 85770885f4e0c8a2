//! Reads events from the fleet's stream page by page, also those of nodes that no longer exist.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bus::{BusError, StoredMessage, StreamQuery, StreamStart};
use contract::subject::Fleet;
use contract::{EventReason, NodeName};
use serde_json::Value;

use crate::cli::NodesQuestionArgs;
use crate::fleet::FleetClient;

/// Messages per page.
const PAGE: usize = 1_000;
/// Events that are held back to sort them by time, because a node that was without NATS sends its events later. They take some MiB.
const REORDERED: usize = 10_000;
/// How much later than its time an event may be stored and is still found: a day without NATS.
const LATE_AT_MOST: Duration = Duration::from_secs(86_400);

/// The part of the stream that is read.
pub(super) struct History<'a> {
    /// Events at or after this time, since 1970-01-01.
    pub(super) since: Duration,
    /// Events before this time, since 1970-01-01.
    pub(super) until: Option<Duration>,
    /// The maximum number of events; the newest are kept.
    pub(super) limit: Option<usize>,
    /// The reason of the events.
    pub(super) reason: Option<EventReason>,
    /// The node of the events. Events of other nodes may be stored under the same subject.
    pub(super) node: Option<&'a NodeName>,
}

/// The progress of reading.
pub(super) struct Read {
    /// Events read so far.
    pub(super) events: u64,
    /// When the last of them was stored, since 1970-01-01.
    pub(super) stored_at: Duration,
}

impl History<'_> {
    /// Shows the matching events of the stream in the order of their time, and reports the progress after each page. Returns the number of
    /// shown events. None if there is no such stream, or if one agent is asked through its socket.
    pub(super) async fn show(
        &self,
        client: &FleetClient,
        takes: impl Fn(&Value) -> bool,
        mut show: impl FnMut(&Value),
        mut progress: impl FnMut(&Read),
    ) -> Result<Option<usize>> {
        let Some(bus) = client.bus() else { return Ok(None) };
        let (mut heap, mut events) = (Ordered::new(self.limit), 0);
        let mut from = StreamStart::Time(self.since);
        loop {
            let query = StreamQuery { stream: client.fleet().event_stream(), subjects: self.subjects(client.fleet()), from, limit: PAGE };
            let page = match bus.read(&query).await {
                Ok(page) => page,
                Err(BusError::NoResponders { .. } | BusError::Unsupported { .. }) => return Ok(None),
                Err(error) => return Err(error).context("the fleet's events cannot be read"),
            };
            for stored in &page.messages {
                let Some((time, event)) = read(stored) else { continue };
                if takes(&event) && time >= self.since && self.until.is_none_or(|until| time < until) {
                    heap.push(time, stored.sequence, event, &mut show);
                }
            }
            events += page.messages.len() as u64;
            let stored_at = page.messages.last().map_or(Duration::ZERO, |last| last.stored_at);
            progress(&Read { events, stored_at });
            match page.next.filter(|_| self.until.is_none_or(|until| stored_at <= until + LATE_AT_MOST)) {
                Some(next) => from = StreamStart::Sequence(next),
                None => return Ok(Some(heap.end(&mut show))),
            }
        }
    }
}

impl History<'_> {
    fn subjects(&self, fleet: &Fleet) -> Vec<String> {
        let reason = reason_in_subject(self.reason);
        self.node.map_or_else(|| vec![fleet.events(reason, None)], |node| fleet.stored_events_of(reason, node))
    }
}

/// The selected nodes. None selects all nodes, including those that no longer answer.
pub(super) async fn nodes_meant(asked: &NodesQuestionArgs, client: &FleetClient) -> Result<Option<Vec<NodeName>>> {
    Ok(match (asked.nodes.as_slice(), &asked.question.fleet.selector) {
        ([], None) => None,
        (named @ [_, ..], _) => Some(named.to_vec()),
        ([], Some(_)) => Some(client.selected_nodes(asked).await?),
    })
}

/// The reason for the subject. For an unknown reason the events of all reasons are read.
fn reason_in_subject(reason: Option<EventReason>) -> Option<EventReason> {
    reason.filter(|reason| EventReason::ALL.contains(reason))
}

/// The time of the event since 1970-01-01, and the event.
fn read(stored: &StoredMessage) -> Option<(Duration, Value)> {
    let event: Value = serde_json::from_slice(&stored.message.payload).ok()?;
    let time = humantime::parse_rfc3339(event["time"].as_str()?).ok()?;
    Some((time.duration_since(std::time::UNIX_EPOCH).ok()?, event))
}

/// Sorts events by time, within the number that it holds back. With a limit it keeps the newest.
pub(super) struct Ordered {
    held: BinaryHeap<Reverse<Held>>,
    limit: Option<usize>,
    shown: usize,
}

/// Compared by time, then by position in the stream.
struct Held {
    key: (Duration, u64),
    event: Value,
}

impl Ordered {
    pub(super) fn new(limit: Option<usize>) -> Self {
        Self { held: BinaryHeap::new(), limit, shown: 0 }
    }

    pub(super) fn push(&mut self, time: Duration, sequence: u64, event: Value, show: &mut impl FnMut(&Value)) {
        self.held.push(Reverse(Held { key: (time, sequence), event }));
        if self.held.len() <= self.limit.unwrap_or(REORDERED) {
            return;
        }
        let oldest = self.held.pop();
        if let (Some(Reverse(oldest)), None) = (oldest, self.limit) {
            show(&oldest.event);
            self.shown += 1;
        }
    }

    pub(super) fn end(mut self, show: &mut impl FnMut(&Value)) -> usize {
        while let Some(Reverse(held)) = self.held.pop() {
            show(&held.event);
            self.shown += 1;
        }
        self.shown
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(limit: Option<usize>, times: &[u64]) -> Vec<u64> {
        let mut seen = Vec::new();
        let mut show = |event: &Value| seen.push(event["at"].as_u64().expect("a number"));
        let mut ordered = Ordered::new(limit);
        for (sequence, time) in times.iter().enumerate() {
            ordered.push(Duration::from_secs(*time), sequence as u64, json!({ "at": time }), &mut show);
        }
        let total = ordered.end(&mut show);
        assert_eq!(total, seen.len());
        seen
    }

    #[test]
    fn events_come_in_the_order_of_their_time_and_of_a_limit_the_newest() {
        assert_eq!(shown(None, &[3, 1, 2]), [1, 2, 3]);
        assert_eq!(shown(Some(2), &[3, 1, 2, 9, 4]), [4, 9]);
        let many: Vec<u64> = (0..3 * REORDERED as u64).collect();
        assert_eq!(shown(None, &many), many, "more than are held back");
    }

    #[test]
    fn sorting_a_million_events_is_bounded() {
        for (limit, most, expected) in [(None, REORDERED, (1_000_000 - REORDERED, 1_000_000)), (Some(100), 100, (0, 100))] {
            let (mut ordered, mut seen) = (Ordered::new(limit), 0);
            for sequence in 0..1_000_000 {
                ordered.push(Duration::from_millis(sequence), sequence, Value::Null, &mut |_| seen += 1);
                assert!(ordered.held.len() <= most, "{}", ordered.held.len());
            }
            assert_eq!((seen, ordered.end(&mut |_| ())), expected);
        }
    }
}
