//! `fleetpull backoff`: shows and overrules the back-off entries of the nodes.

mod clear;
mod explain;
mod forget_quota;
mod gather;
mod list;
mod pause;

use anyhow::Result;
use contract::NodeName;
use contract::messages::backoff_tracker::ListBackoffs;

use super::status::{self, ToClear};
use crate::cli::{BackoffArgs, BackoffCommand, QuestionArgs};
use crate::exit::Exit;
use crate::fleet::FleetClient;

pub(super) use explain::{of_image, show};
use gather::Member;
pub(super) use gather::{GatheredEntries, IN_FULL};
pub(super) use pause::line as pause_line;

/// Runs the subcommand.
pub(super) fn carry_out(args: &BackoffArgs) -> Result<Exit> {
    match &args.command {
        BackoffCommand::List(args) => list::carry_out(args),
        BackoffCommand::Explain(args) => explain::carry_out(args),
        BackoffCommand::Clear(args) => clear::carry_out(args),
        BackoffCommand::Pause(args) => pause::pause(args),
        BackoffCommand::Resume(args) => pause::resume(args),
    }
}

/// What `backoff clear` is to clear.
struct Found {
    /// The key or image that names the entries.
    name: String,
    gathered: GatheredEntries,
    /// The owner of a budget whose quota is used up, if the row of that quota was named.
    spent_owner: Option<String>,
}

/// Finds what is to clear by a name, which is a key, an image, or the ID of a row of `fleetpull status`.
async fn find(client: &FleetClient, question: &QuestionArgs, nodes: &[NodeName], what: &str) -> Result<Found> {
    let gathered = GatheredEntries::by(client, nodes, &named(what)).await;
    let mut found = Found { name: what.to_owned(), gathered, spent_owner: None };
    if found.gathered.known.is_empty()
        && let Some(ToClear { name, spent_owner }) = status::to_clear(client, question, what).await?
    {
        found.spent_owner = spent_owner;
        if let Some(name) = name {
            found.gathered = GatheredEntries::by(client, nodes, &named(&name)).await;
            found.name = name;
        }
    }
    Ok(found)
}

/// A query for all entries of a key or an image.
fn named(what: &str) -> ListBackoffs {
    ListBackoffs { what: Some(what.to_owned()), ..ListBackoffs::default() }
}
