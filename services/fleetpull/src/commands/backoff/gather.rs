//! Gathers back-off entries from nodes with small answers in a large fleet: a few nodes send all shared entries, the others only the keys.

use std::collections::BTreeSet;
use std::rc::Rc;

use contract::NodeName;
use contract::messages::backoff_tracker::{BackoffList, EntryQuery, ListBackoffs, Pause};

use crate::exit::Exit;
use crate::fleet::FleetClient;
use crate::output;
use crate::output::known_failures::{Known, Merger, note_pauses};

/// Nodes that send all their entries: shared entries are the same on all nodes with one view, and a fleet has few views.
pub(in crate::commands) const IN_FULL: usize = 20;
/// The share mode of a node that only observes.
const OBSERVE: &str = "observe";
/// Further nodes that are asked for entries that the first nodes do not have. A fleet with more views is listed with `-l` or `--node`.
const ASKED_FOR_MORE: usize = 100;

/// The merged entries of the nodes that answered, and the nodes that did not answer.
pub(in crate::commands) struct GatheredEntries {
    /// All entries; a shared entry is listed once.
    pub(in crate::commands) known: Vec<Known>,
    pub(in crate::commands) members: Vec<Member>,
    /// Each pause once, with the longest remaining time.
    pub(in crate::commands) pauses: Vec<Pause>,
    /// The nodes that did not answer, with the reason.
    pub(in crate::commands) unanswered: Vec<(NodeName, String)>,
    /// Entries for which the merged list has no room.
    pub(in crate::commands) left_out: u64,
}

/// A node that answered.
pub(in crate::commands) struct Member {
    pub(super) node: NodeName,
    pub(super) share: String,
    pub(in crate::commands) alone: bool,
    /// Entries that the node left out of its list.
    pub(in crate::commands) left_out: u64,
    /// Entries of the node that do not match the query.
    pub(super) others: u64,
}

impl Member {
    /// True if the node refuses nothing by shared entries.
    pub(super) fn observes(&self) -> bool {
        self.share == OBSERVE
    }
}

impl GatheredEntries {
    /// Asks `nodes` for the entries of the query, and reports on stderr the nodes that do not answer.
    pub(in crate::commands) async fn by(client: &FleetClient, nodes: &[NodeName], list: &ListBackoffs) -> Self {
        let gathered = Self::ask(client, nodes, list).await;
        gathered.unanswered.iter().for_each(|(node, silence)| output::remark(&format!("{node}: {silence}")));
        gathered
    }

    /// Asks `nodes` for the entries of the query.
    pub(in crate::commands) async fn ask(client: &FleetClient, nodes: &[NodeName], list: &ListBackoffs) -> Self {
        // A query for a name has few results.
        let in_full = if list.what.is_some() { nodes.len() } else { nodes.len().min(IN_FULL) };
        let (first, others) = nodes.split_at(in_full);
        let mut gathering = Gathering::new(list);
        client.for_each_answer(first, list, |node, answer| gathering.add(node, answer)).await;
        let by_key = ListBackoffs { shared_by_key: true, ..list.clone() };
        client.for_each_answer(others, &by_key, |node, answer| gathering.add(node, answer)).await;
        for _ in 0..ASKED_FOR_MORE {
            let Some(node) = gathering.merger.node_with_more() else { break };
            let answers = client.ask_each(std::slice::from_ref(&node), list).await;
            let entries = answers.into_iter().find_map(|(_, answer)| answer.ok()).map(|list| list.entries).unwrap_or_default();
            gathering.merger.complete(&node, entries);
        }
        gathering.end()
    }

    /// Success if all nodes answered.
    pub(in crate::commands) fn exit(&self) -> Exit {
        if self.unanswered.is_empty() { Exit::Success } else { Exit::Failure }
    }

    /// The largest number of entries that a node left out of its list.
    pub(in crate::commands) fn most_left_out(&self) -> u64 {
        self.members.iter().map(|member| member.left_out).max().unwrap_or_default()
    }
}

/// The answers so far.
struct Gathering {
    entry_query: Option<EntryQuery>,
    merger: Merger,
    members: Vec<Member>,
    pauses: Vec<Pause>,
    unanswered: Vec<(NodeName, String)>,
}

impl Gathering {
    fn new(list: &ListBackoffs) -> Self {
        let entry_query = list.what.as_deref().map(EntryQuery::of);
        Self { entry_query, merger: Merger::default(), members: Vec::new(), pauses: Vec::new(), unanswered: Vec::new() }
    }

    fn add(&mut self, node: NodeName, answer: Result<BackoffList, String>) {
        let list = match answer {
            Ok(list) => list,
            Err(silence) => return self.unanswered.push((node, silence)),
        };
        let BackoffList { mut entries, shared_keys, left_out, others, share, alone, pauses } = list;
        // An older agent ignores the query and sends all its entries.
        entries.retain(|entry| self.entry_query.as_ref().is_none_or(|entry_query| entry_query.names(entry)));
        self.merger.add(&node, entries);
        self.merger.add_keys(&node, shared_keys);
        add_pauses(&mut self.pauses, pauses);
        self.members.push(Member { node, share, alone, left_out, others });
    }

    fn end(self) -> GatheredEntries {
        let Self { merger, members, mut pauses, unanswered, .. } = self;
        pauses.sort_by(|one, other| one.registry.cmp(&other.registry));
        let left_out = merger.left_out();
        let mut known = merger.into_known();
        let those = |is: fn(&Member) -> bool| -> BTreeSet<NodeName> {
            members.iter().filter(|member| is(member)).map(|member| member.node.clone()).collect()
        };
        let (without_bus, observers) = (those(|member| member.alone), Rc::new(those(Member::observes)));
        for known in &mut known {
            known.note_nodes_without_bus(&without_bus);
            known.note_observers(&observers);
        }
        note_pauses(&mut known, &pauses);
        GatheredEntries { known, members, pauses, unanswered, left_out }
    }
}

fn add_pauses(pauses: &mut Vec<Pause>, of_node: Vec<Pause>) {
    for pause in of_node {
        match pauses.iter_mut().find(|known| known.registry == pause.registry) {
            Some(known) if known.left_ms >= pause.left_ms => {}
            Some(known) => *known = pause,
            None => pauses.push(pause),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, MessageResult};
    use actors::Ask;
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::View;
    use contract::messages::backoff_tracker::BackoffEntry;
    use contract::subject::Fleet;

    use super::*;

    /// A tracker with this many shared entries and one failure of its own.
    struct Tracker {
        keys: std::ops::Range<u32>,
        /// The number of entries that all trackers sent in full.
        sent_in_full: Rc<Cell<usize>>,
    }

    impl Actor for Tracker {
        type Context = Context<Self>;
    }

    impl Handler<Ask<ListBackoffs>> for Tracker {
        type Result = MessageResult<Ask<ListBackoffs>>;

        fn handle(&mut self, Ask(list): Ask<ListBackoffs>, _: &mut Self::Context) -> Self::Result {
            let entry = |key: String, view| BackoffEntry { key, view, ..BackoffEntry::default() };
            let keys = self.keys.clone().map(|key| format!("{key:032x}"));
            let own = entry("busybox".to_owned(), None);
            if list.body.shared_by_key {
                return MessageResult(Ok(BackoffList { shared_keys: keys.collect(), entries: vec![own], ..BackoffList::default() }));
            }
            let shared = keys.map(|key| entry(key, Some(View::default())));
            let entries: Vec<BackoffEntry> = shared.chain([own]).collect();
            self.sent_in_full.set(self.sent_in_full.get() + entries.len());
            MessageResult(Ok(BackoffList { entries, ..BackoffList::default() }))
        }
    }

    #[test]
    fn few_nodes_send_the_entries_that_all_of_them_have() {
        actix::System::new().block_on(async {
            // Time passes only when nothing is left to do, so no answer is late on a busy machine.
            tokio::time::pause();
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            let (sent_in_full, mut served, mut nodes) = (Rc::new(Cell::new(0)), Vec::new(), Vec::new());
            for number in 0..500_u32 {
                // The last two have another view and entries that the others do not have.
                let keys = if number < 498 { 0..100 } else { 90..120 };
                let node: NodeName = format!("n{number:03}").parse().expect("a name");
                let tracker = Tracker { keys, sent_in_full: sent_in_full.clone() }.start();
                served.push(actors::serve::<ListBackoffs>(&client.wiring(&node), tracker.recipient()).await.expect("the bus is open"));
                nodes.push(node);
            }
            let all = GatheredEntries::by(&client, &nodes, &ListBackoffs::default()).await;
            assert_eq!(sent_in_full.get(), IN_FULL * 101 + 31, "one node of the other view sent the rest");
            let holders = |key: u32| {
                let key = format!("{key:032x}");
                all.known.iter().find(|known| known.entry.key == key).map(|known| known.nodes.len())
            };
            assert_eq!([holders(0), holders(90), holders(119), holders(120)], [Some(498), Some(500), Some(2), None]);
            assert_eq!((all.known.len(), all.members.len(), all.left_out), (120 + 500, 500, 0));
            // A query for a name gets full answers from every node.
            let named = ListBackoffs { what: Some(format!("{:032x}", 5)), ..ListBackoffs::default() };
            let one = GatheredEntries::by(&client, &nodes, &named).await;
            assert_eq!((one.known.len(), one.known[0].nodes.len()), (1, 498), "every node sends the named entry in full");
        });
    }

    #[test]
    fn shared_entry_holds_no_node_that_only_observes() {
        let node = |name: &str| name.parse::<NodeName>().expect("a name");
        let entry = BackoffEntry { key: "5".repeat(32), view: Some(View::default()), ..BackoffEntry::default() };
        let mut gathering = Gathering::new(&ListBackoffs::default());
        for (name, share) in [("n1", "enforce"), ("n2", OBSERVE)] {
            let list = BackoffList { entries: vec![entry.clone()], share: share.to_owned(), ..BackoffList::default() };
            gathering.add(node(name), Ok(list));
        }
        let gathered = gathering.end();
        let known = &gathered.known[0];
        assert_eq!([known.holds(&node("n1")), known.holds(&node("n2")), known.concerns(&node("n2"))], [true, false, true]);
        assert!(!known.is_only_observed());
    }

    #[test]
    fn pause_that_many_nodes_know_is_listed_once() {
        let pause = |registry: Option<&str>, left_ms| Pause { registry: registry.map(str::to_owned), left_ms, by: "me@here".to_owned() };
        let list = |pauses| Ok(BackoffList { pauses, ..BackoffList::default() });
        let node = |name: &str| name.parse().expect("a name");
        let mut gathering = Gathering::new(&ListBackoffs::default());
        gathering.add(node("n1"), list(vec![pause(Some("r.example"), 5_000), pause(None, 60_000)]));
        gathering.add(node("n2"), list(vec![pause(Some("r.example"), 5_100)]));
        let shared = BackoffEntry { key: "5".repeat(32), view: Some(View::default()), next_attempt_ms: 9_000, ..BackoffEntry::default() };
        gathering.add(node("n3"), Ok(BackoffList { entries: vec![shared], ..BackoffList::default() }));
        let gathered = gathering.end();
        assert_eq!(gathered.pauses, [pause(None, 60_000), pause(Some("r.example"), 5_100)]);
        assert_eq!(gathered.known[0].due_ms(), 0, "the entry refuses nothing");
    }
}
