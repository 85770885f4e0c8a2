//! `bench`: runs the benchmarks, which are separate crates because they need a release build.

use std::path::Path;

use crate::{command, tools};

/// The exit status of a benchmark with a wrong command line; it has printed the error.
const WRONG_USAGE: i32 = 2;
/// A benchmark that needs no servers and no binary, because all of it is simulated.
const STORM: &str = "storm";

/// Gets the tools, builds the binary and runs the crate `bench`. Only the benchmarks write to stdout, for `--output json`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    if arguments.iter().find(|argument| !argument.starts_with('-')).is_some_and(|name| name == STORM) {
        return measure(root, "simulation", arguments);
    }
    // The benchmarks themselves report which of them cannot run without a part.
    let _missing = tools::ensure(root)?;
    // Build the program alone, as users do: built together with the benchmarks, its dependencies would have other features.
    command::run(command::cargo(root).args(["build", "--release", "--locked", "-p", "fleetpull"]))?;
    measure(root, "bench", arguments)
}

fn measure(root: &Path, package: &str, arguments: &[String]) -> anyhow::Result<()> {
    let mut cargo = command::cargo(root);
    let status = cargo.args(["run", "--quiet", "--release", "--locked", "-p", package, "--"]).args(arguments).status()?;
    if status.code() == Some(WRONG_USAGE) {
        std::process::exit(WRONG_USAGE);
    }
    anyhow::ensure!(status.success(), "the benchmarks failed: {status}");
    Ok(())
}
