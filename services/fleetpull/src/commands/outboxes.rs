//! Reads events from the agents' outboxes if there is no stream: a page of each agent at a time, merged by time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use anyhow::Result;
use contract::messages::event_recorder::ListEvents;
use contract::{EventReason, NodeName, cloud_event};
use futures::{StreamExt as _, stream};
use serde_json::Value;

use super::history::{History, Ordered};
use crate::fleet::{ANSWER_WITHIN, ASKED_AT_ONCE, FleetClient};

/// Events of all agents together that are held in memory.
const HELD: usize = 20_000;
/// The smallest and the largest page of one agent, in events.
const PAGE_LEAST: usize = 10;
const PAGE_MOST: usize = 500;

/// The number of shown events, and the agents that did not answer.
pub(super) struct Shown {
    pub(super) events: usize,
    pub(super) silent: Vec<(NodeName, String)>,
}

impl Shown {
    /// True if there are no matching events. With a silent agent this is unknown.
    pub(super) fn has_none(&self) -> bool {
        self.events == 0 && self.silent.is_empty()
    }
}

/// An agent's outbox and the read position in it.
struct Outbox {
    node: NodeName,
    page: VecDeque<(u64, Value)>,
    after: u64,
    has_more: bool,
}

/// Shows the matching events of these nodes' outboxes in the order of their time.
pub(super) async fn show(
    history: &History<'_>,
    client: &FleetClient,
    nodes: Vec<NodeName>,
    takes: impl Fn(&Value) -> bool,
    mut show: impl FnMut(&Value),
) -> Shown {
    let limit = (HELD / nodes.len().max(1)).clamp(PAGE_LEAST, PAGE_MOST);
    let begin = |node: NodeName| async move {
        let mut outbox = Outbox { node, page: VecDeque::new(), after: 0, has_more: true };
        let read = outbox.read_on(client, history.reason, limit).await;
        (outbox, read)
    };
    let (mut outboxes, mut silent, mut next) = (Vec::new(), Vec::new(), BinaryHeap::new());
    let mut begun = stream::iter(nodes).map(begin).buffered(ASKED_AT_ONCE);
    while let Some((outbox, read)) = begun.next().await {
        silent.extend(read.err().map(|silence| (outbox.node.clone(), silence)));
        next.extend(outbox.page.front().map(|(time, _)| Reverse((*time, outboxes.len()))));
        outboxes.push(outbox);
    }
    let (mut ordered, mut read) = (Ordered::new(history.limit), 0);
    while let Some(Reverse((time_ms, place))) = next.pop() {
        let outbox: &mut Outbox = &mut outboxes[place];
        let Some((_, event)) = outbox.page.pop_front() else { continue };
        let time = Duration::from_millis(time_ms);
        if takes(&event) && time >= history.since && history.until.is_none_or(|until| time < until) {
            ordered.push(time, read, event, &mut show);
        }
        read += 1;
        if let Err(silence) = outbox.read_on(client, history.reason, limit).await {
            silent.push((outbox.node.clone(), silence));
        }
        next.extend(outbox.page.front().map(|(time, _)| Reverse((*time, place))));
    }
    Shown { events: ordered.end(&mut show), silent }
}

impl Outbox {
    /// Fetches pages until there is a next event or the outbox ends.
    async fn read_on(&mut self, client: &FleetClient, reason: Option<EventReason>, limit: usize) -> Result<(), String> {
        while self.page.is_empty() && self.has_more {
            self.has_more = false;
            let limit = u32::try_from(limit).unwrap_or(u32::MAX);
            // An older agent knows only the cursor `after`, and answers with the events that it keeps.
            let question = ListEvents { reason, image: None, after: self.after, stored_after: Some(self.after), limit };
            let page = match client.ask(&self.node, question, ANSWER_WITHIN).await {
                Ok(page) => page,
                Err(error) => return Err(client.explain_silence(&self.node, &error).await),
            };
            let form = |event: &contract::PullEvent| serde_json::from_slice(&cloud_event::to_json(event).ok()?).ok();
            self.page.extend(page.events.iter().filter_map(|event| Some((event.time_ms, form(event)?))));
            // Stops if an agent repeats the same page.
            self.has_more = page.more && page.next_after > self.after;
            self.after = page.next_after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_events_only_if_every_agent_says_so() {
        let silent = || ("n1".parse().expect("a name"), "the agent of n1 is silent for 3s".to_owned());
        for (events, silent, has_none) in [(0, vec![], true), (0, vec![silent()], false), (1, vec![], false), (1, vec![silent()], false)] {
            assert_eq!(Shown { events, silent }.has_none(), has_none);
        }
    }
}
