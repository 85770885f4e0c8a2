//! `fleetpull backoff`: shows and overrules the back-off entries of the nodes.

mod clear;
mod explain;
mod gather;
mod list;
mod pause;

use anyhow::Result;
use contract::NodeName;
use contract::messages::backoff_tracker::ListBackoffs;

use super::status;
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

/// The entries with a name, which is a key, an image, or the ID of a row of `fleetpull status`, and the key or image that names them.
async fn find(client: &FleetClient, question: &QuestionArgs, nodes: &[NodeName], what: &str) -> Result<(String, GatheredEntries)> {
    let gathered = GatheredEntries::by(client, nodes, &named(what)).await;
    if gathered.known.is_empty()
        && let Some(name) = status::name_of_row(client, question, what).await?
    {
        let gathered = GatheredEntries::by(client, nodes, &named(&name)).await;
        return Ok((name, gathered));
    }
    Ok((what.to_owned(), gathered))
}

/// A query for all entries of a key or an image.
fn named(what: &str) -> ListBackoffs {
    ListBackoffs { what: Some(what.to_owned()), ..ListBackoffs::default() }
}
