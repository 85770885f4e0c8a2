//! `fleetpull backoff`: what nodes know of failures, and how to overrule it.

mod clear;
mod explain;
mod list;
mod pause;

use anyhow::Result;
use backoff_tracker::sought::Sought;
use contract::NodeName;
use contract::messages::backoff_tracker::{BackoffList, ListBackoffs, Pause};

use crate::cli::{BackoffArgs, BackoffCommand};
use crate::exit::Exit;
use crate::fleet::FleetClient;
use crate::output;
use crate::output::known::{Known, Merger};

pub(super) use explain::{of_image, show};

/// Does what is asked.
pub(super) fn carry_out(args: &BackoffArgs) -> Result<Exit> {
    match &args.command {
        BackoffCommand::List(args) => list::carry_out(args),
        BackoffCommand::Explain(args) => explain::carry_out(args),
        BackoffCommand::Clear(args) => clear::carry_out(args),
        BackoffCommand::Pause(args) => pause::pause(args),
        BackoffCommand::Resume(args) => pause::resume(args),
    }
}

/// What the nodes that answered know, put together, and whether all answered.
struct Told {
    /// All of it, what is shared once.
    known: Vec<Known>,
    members: Vec<Member>,
    /// Each pause once, with the longest time that is told of it.
    pauses: Vec<Pause>,
    exit: Exit,
    /// Rows that there was no room for.
    left_out: u64,
}

/// One node that answered.
struct Member {
    node: NodeName,
    share: String,
    alone: bool,
    /// How many entries were left out of its list.
    left_out: u64,
    /// How many entries it has that were not looked for.
    others: u64,
}

impl Told {
    /// Asks `nodes` for what is looked for; says on stderr who did not answer.
    async fn by(client: &FleetClient, nodes: &[NodeName], list: &ListBackoffs) -> Self {
        let (mut merger, mut members, mut pauses, mut exit) = (Merger::default(), Vec::new(), Vec::new(), Exit::Success);
        let sought = list.what.as_deref().map(Sought::of);
        let hear = |node: NodeName, answer: Result<BackoffList, String>| match answer {
            Ok(list) => {
                let BackoffList { mut entries, left_out, others, share, alone, pauses: told } = list;
                // An agent of an older version tells all that it has.
                entries.retain(|entry| sought.as_ref().is_none_or(|sought| sought.names(entry)));
                merger.add(&node, entries);
                add_pauses(&mut pauses, told);
                members.push(Member { node, share, alone, left_out, others });
            }
            Err(silence) => {
                output::remark(&format!("{node}: {silence}"));
                exit = Exit::Failure;
            }
        };
        client.hear_each(nodes, list, hear).await;
        pauses.sort_by(|one, other| one.registry.cmp(&other.registry));
        Self { left_out: merger.left_out(), known: merger.into_known(), members, pauses, exit }
    }

    /// The most entries that any node left out of its list.
    fn most_left_out(&self) -> u64 {
        self.members.iter().map(|member| member.left_out).max().unwrap_or_default()
    }
}

/// All that is about a key or an image.
fn named(what: &str) -> ListBackoffs {
    ListBackoffs { what: Some(what.to_owned()), ..ListBackoffs::default() }
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

/// Who acts, for the event that tells of it.
fn by() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let host = hostname::get().ok().map(|host| host.to_string_lossy().into_owned()).filter(|host| !host.is_empty());
    format!("{}@{}", user.as_deref().unwrap_or("somebody"), host.as_deref().unwrap_or("somewhere"))
}
