//! `fleetpull images`

mod fleet;
mod here;

use anyhow::Result;

use crate::cli::ImagesArgs;
use crate::exit::{Exit, UsageError};

/// Lists the images of this machine, or of nodes of the fleet.
pub(super) fn carry_out(args: &ImagesArgs) -> Result<Exit> {
    let usage = |text: &str| Err(UsageError(text.to_owned()).into());
    let is_reached = args.asked.question.fleet.nats.nats.is_some();
    match (args.has_target(), args.runtime.is_given()) {
        (true, true) => usage("--runtime, --store, --runtime-endpoint and --authfile are for this machine: other nodes have their own"),
        (true, false) => fleet::list(args),
        (false, _) if is_reached => usage(
            "--nats needs to know which nodes: add --node NAME, --all-nodes or --selector LABELS (without them this machine is meant)",
        ),
        (false, _) => here::list(args),
    }
}
