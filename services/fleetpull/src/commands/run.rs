//! `fleetpull run`

use anyhow::Result;

use crate::agent;
use crate::cli::RunArgs;
use crate::configuration::Configuration;
use crate::exit::Exit;

/// Is this node's agent until it is told to stop.
pub(super) fn carry_out(args: &RunArgs) -> Result<Exit> {
    let configuration = Configuration::load(&args.settings, args.flags())?;
    configuration.start_log("info");
    agent::run(&configuration)
}
