//! `fleetpull backoff`: what nodes know of failures, and how to overrule it.

mod clear;
mod explain;
mod list;
mod pause;

use anyhow::Result;
use contract::NodeName;
use contract::messages::backoff_tracker::{BackoffList, ListBackoffs};

use crate::cli::{BackoffArgs, BackoffCommand};
use crate::exit::Exit;
use crate::fleet::{Answer, FleetClient};
use crate::output;
use crate::output::known::{self, Known};

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

/// What the nodes that answered know, and whether all answered.
struct Told {
    lists: Vec<(NodeName, BackoffList)>,
    exit: Exit,
}

impl Told {
    /// Asks `nodes`; says on stderr who did not answer.
    async fn by(client: &FleetClient, nodes: &[NodeName]) -> Self {
        let answers: Vec<Answer<BackoffList>> = client.ask_each(nodes, &ListBackoffs {}).await;
        let (mut lists, mut exit) = (Vec::new(), Exit::Success);
        for (node, answer) in answers {
            match answer {
                Ok(list) => lists.push((node, list)),
                Err(silence) => {
                    output::remark(&format!("{node}: {silence}"));
                    exit = Exit::Failure;
                }
            }
        }
        Self { lists, exit }
    }

    /// All of it, what is shared once.
    fn known(&self) -> Vec<Known> {
        known::merged(self.lists.iter().map(|(node, list)| (node, list)))
    }

    /// How many entries were left out of lists that would be too long.
    fn left_out(&self) -> u64 {
        self.lists.iter().map(|(_, list)| list.left_out).sum()
    }
}

/// Who acts, for the event that tells of it.
fn by() -> String {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let host = hostname::get().ok().map(|host| host.to_string_lossy().into_owned()).filter(|host| !host.is_empty());
    format!("{}@{}", user.as_deref().unwrap_or("somebody"), host.as_deref().unwrap_or("somewhere"))
}
