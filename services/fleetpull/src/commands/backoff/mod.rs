//! `fleetpull backoff`: shows and overrules the back-off entries of the nodes.

mod clear;
mod explain;
mod gather;
mod list;
mod pause;

use anyhow::Result;
use contract::messages::backoff_tracker::ListBackoffs;

use crate::cli::{BackoffArgs, BackoffCommand};
use crate::exit::Exit;

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

/// A query for all entries of a key or an image.
fn named(what: &str) -> ListBackoffs {
    ListBackoffs { what: Some(what.to_owned()), ..ListBackoffs::default() }
}
