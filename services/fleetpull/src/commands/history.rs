//! Events from the fleet's stream: of nodes that are gone too, a page at a time.

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

/// Messages that are read at a time.
const PAGE: usize = 1_000;
/// Events that are held back to be put into the order of their time: a node that was without NATS sends what it kept. Some MiB.
const REORDERED: usize = 10_000;
/// An event may reach the stream so much later than it happened, and is still found by its time: a day without NATS.
const LATE_AT_MOST: Duration = Duration::from_secs(86_400);

/// What is read of the stream.
pub(super) struct History<'a> {
    /// What happened at this time or later, since 1970.
    pub(super) since: Duration,
    /// What happened before this time.
    pub(super) until: Option<Duration>,
    /// The newest of all, so many.
    pub(super) limit: Option<usize>,
    /// Of this reason.
    pub(super) reason: Option<EventReason>,
    /// Of this node, with those of nodes that are stored under the same subject.
    pub(super) node: Option<&'a NodeName>,
}

/// How far reading has come.
pub(super) struct Read {
    /// Events that were read.
    pub(super) events: u64,
    /// When the last of them was stored, since 1970.
    pub(super) stored_at: Duration,
}

impl History<'_> {
    /// Shows the events of the stream that are taken, in the order of their time, and after each page how far it is. Returns the number
    /// shown; none if there is no such stream, or one agent is asked through its socket.
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

/// The nodes whose events are meant; none: all, also those that do not answer any more.
pub(super) async fn nodes_meant(asked: &NodesQuestionArgs, client: &FleetClient) -> Result<Option<Vec<NodeName>>> {
    Ok(match (asked.nodes.as_slice(), &asked.question.fleet.selector) {
        ([], None) => None,
        (named @ [_, ..], _) => Some(named.to_vec()),
        ([], Some(_)) => Some(client.meant(asked).await?),
    })
}

/// The reason as a token of the subject; of an unknown one all are read.
fn reason_in_subject(reason: Option<EventReason>) -> Option<EventReason> {
    reason.filter(|reason| EventReason::ALL.contains(reason))
}

/// When it happened, since 1970, and the event.
fn read(stored: &StoredMessage) -> Option<(Duration, Value)> {
    let event: Value = serde_json::from_slice(&stored.message.payload).ok()?;
    let time = humantime::parse_rfc3339(event["time"].as_str()?).ok()?;
    Some((time.duration_since(std::time::UNIX_EPOCH).ok()?, event))
}

/// Puts events into the order of their time, as far as it holds back; of a limit, the newest.
pub(super) struct Ordered {
    held: BinaryHeap<Reverse<Held>>,
    limit: Option<usize>,
    shown: usize,
}

/// Compared by time, then by its place in the stream.
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
    fn of_a_million_events_no_more_are_held_than_are_put_in_order() {
        let (mut ordered, mut seen) = (Ordered::new(None), 0);
        for sequence in 0..1_000_000 {
            ordered.push(Duration::from_millis(sequence), sequence, Value::Null, &mut |_| seen += 1);
            assert!(ordered.held.len() <= REORDERED, "{}", ordered.held.len());
        }
        assert_eq!((seen, ordered.end(&mut |_| ())), (1_000_000 - REORDERED, 1_000_000));
    }
}
