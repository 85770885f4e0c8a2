//! `fleetpull run`

use anyhow::Result;

use crate::cli::RunArgs;
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::{agent, process_attributes};

/// Runs this node's agent until SIGTERM or SIGINT.
pub(super) fn carry_out(args: &RunArgs) -> Result<Exit> {
    let configuration = Configuration::load(&args.settings, args.flags())?;
    configuration.start_log_and_traces("info", process_attributes::agent(configuration.settings()));
    agent::run(&configuration)
}
