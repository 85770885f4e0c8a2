//! `bench`: the benchmarks are a crate of their own, because they need a release build.

use std::path::Path;

use crate::{command, tools};

/// Gets the tools, builds the binary and runs the crate `bench`. Stdout is the benchmarks' alone, for `--output json`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    // The benchmarks say by themselves which of them cannot run without a part.
    let _missing = tools::ensure(root)?;
    command::run(command::cargo(root).args(["build", "--release", "--locked", "-p", "fleetpull", "-p", "bench"]))?;
    let status = command::cargo(root).args(["run", "--quiet", "--release", "--locked", "-p", "bench", "--"]).args(arguments).status()?;
    anyhow::ensure!(status.success(), "the benchmarks failed: {status}");
    Ok(())
}
