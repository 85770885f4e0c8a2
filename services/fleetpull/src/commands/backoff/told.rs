//! What nodes know of failures, asked for and put together so that a large fleet's answers stay small: a few nodes tell all of what
//! is shared, the others what they hold of it.

use backoff_tracker::sought::Sought;
use contract::NodeName;
use contract::messages::backoff_tracker::{BackoffList, ListBackoffs, Pause};

use crate::exit::Exit;
use crate::fleet::FleetClient;
use crate::output;
use crate::output::known::{Known, Merger};

/// How many nodes tell all that they know: what is shared is the same on all with one view, and a fleet has few views.
const IN_FULL: usize = 20;
/// How many others are asked for what none of these knows; a fleet with more views than that is listed with `-l` or `--node`.
const ASKED_FOR_MORE: usize = 100;

/// What the nodes that answered know, put together, and whether all answered.
pub(super) struct Told {
    /// All of it, what is shared once.
    pub(super) known: Vec<Known>,
    pub(super) members: Vec<Member>,
    /// Each pause once, with the longest time that is told of it.
    pub(super) pauses: Vec<Pause>,
    pub(super) exit: Exit,
    /// Rows that there was no room for.
    pub(super) left_out: u64,
}

/// One node that answered.
pub(super) struct Member {
    pub(super) node: NodeName,
    pub(super) share: String,
    pub(super) alone: bool,
    /// How many entries were left out of its list.
    pub(super) left_out: u64,
    /// How many entries it has that were not looked for.
    pub(super) others: u64,
}

impl Told {
    /// Asks `nodes` for what is looked for; says on stderr who did not answer.
    pub(super) async fn by(client: &FleetClient, nodes: &[NodeName], list: &ListBackoffs) -> Self {
        // Of what has a name there is little.
        let in_full = if list.what.is_some() { nodes.len() } else { nodes.len().min(IN_FULL) };
        let (first, others) = nodes.split_at(in_full);
        let mut gathering = Gathering::new(list);
        client.hear_each(first, list, |node, answer| gathering.hear(node, answer)).await;
        let by_key = ListBackoffs { shared_by_key: true, ..list.clone() };
        client.hear_each(others, &by_key, |node, answer| gathering.hear(node, answer)).await;
        for _ in 0..ASKED_FOR_MORE {
            let Some(node) = gathering.merger.who_knows_more() else { break };
            let told = client.ask_each(std::slice::from_ref(&node), list).await;
            let entries = told.into_iter().find_map(|(_, answer)| answer.ok()).map(|list| list.entries).unwrap_or_default();
            gathering.merger.complete(&node, entries);
        }
        gathering.end()
    }

    /// The most entries that any node left out of its list.
    pub(super) fn most_left_out(&self) -> u64 {
        self.members.iter().map(|member| member.left_out).max().unwrap_or_default()
    }
}

/// What has come so far.
struct Gathering {
    sought: Option<Sought>,
    merger: Merger,
    members: Vec<Member>,
    pauses: Vec<Pause>,
    exit: Exit,
}

impl Gathering {
    fn new(list: &ListBackoffs) -> Self {
        let sought = list.what.as_deref().map(Sought::of);
        Self { sought, merger: Merger::default(), members: Vec::new(), pauses: Vec::new(), exit: Exit::Success }
    }

    fn hear(&mut self, node: NodeName, answer: Result<BackoffList, String>) {
        let list = match answer {
            Ok(list) => list,
            Err(silence) => {
                output::remark(&format!("{node}: {silence}"));
                self.exit = Exit::Failure;
                return;
            }
        };
        let BackoffList { mut entries, shared_keys, left_out, others, share, alone, pauses } = list;
        // An agent of an older version tells all that it has.
        entries.retain(|entry| self.sought.as_ref().is_none_or(|sought| sought.names(entry)));
        self.merger.add(&node, entries);
        self.merger.add_keys(&node, shared_keys);
        add_pauses(&mut self.pauses, pauses);
        self.members.push(Member { node, share, alone, left_out, others });
    }

    fn end(self) -> Told {
        let Self { merger, members, mut pauses, exit, .. } = self;
        pauses.sort_by(|one, other| one.registry.cmp(&other.registry));
        Told { left_out: merger.left_out(), known: merger.into_known(), members, pauses, exit }
    }
}

fn add_pauses(pauses: &mut Vec<Pause>, told: Vec<Pause>) {
    for pause in told {
        match pauses.iter_mut().find(|known| known.registry == pause.registry) {
            Some(known) if known.left_ms >= pause.left_ms => {}
            Some(known) => *known = pause,
            None => pauses.push(pause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_many_nodes_know_stands_once() {
        let pause = |registry: Option<&str>, left_ms| Pause { registry: registry.map(str::to_owned), left_ms, by: "me@here".to_owned() };
        let list = |pauses| Ok(BackoffList { pauses, ..BackoffList::default() });
        let node = |name: &str| name.parse().expect("a name");
        let mut gathering = Gathering::new(&ListBackoffs::default());
        gathering.hear(node("n1"), list(vec![pause(Some("r.example"), 5_000), pause(None, 60_000)]));
        gathering.hear(node("n2"), list(vec![pause(Some("r.example"), 5_100)]));
        assert_eq!(gathering.end().pauses, [pause(None, 60_000), pause(Some("r.example"), 5_100)]);
    }
}
