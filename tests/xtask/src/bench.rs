//! `bench`: the benchmarks are a crate of their own, because they need a release build.

use std::path::Path;

use crate::command;

/// Runs the crate `bench`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    // Quiet, so that `--output json` leaves nothing else on stdout.
    command::cargo(root).args(["build", "--quiet", "--release", "--locked", "-p", "fleetpull"]).status()?;
    let status = command::cargo(root).args(["run", "--quiet", "--release", "--locked", "-p", "bench", "--"]).args(arguments).status()?;
    anyhow::ensure!(status.success(), "the benchmarks failed: {status}");
    Ok(())
}
