//! The job on other nodes, through their agents.

use anyhow::Result;

use crate::cli::PullArgs;
use crate::configuration::Configuration;
use crate::exit::Exit;

pub(super) fn pull(_args: &PullArgs, _configuration: &Configuration) -> Result<Exit> {
    anyhow::bail!("not there yet")
}
