//! `bench`: the benchmarks are crates of their own, because they need a release build.

use std::path::Path;

use crate::{command, tools};

/// How a benchmark ends whose command line was wrong; it has said why.
const WRONG_USAGE: i32 = 2;
/// Needs no servers and no binary: everything in it is simulated.
const STORM: &str = "storm";

/// Gets the tools, builds the binary and runs the crate `bench`. Stdout is the benchmarks' alone, for `--output json`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    if arguments.iter().find(|argument| !argument.starts_with('-')).is_some_and(|name| name == STORM) {
        return measure(root, "simulation", arguments);
    }
    // The benchmarks say by themselves which of them cannot run without a part.
    let _missing = tools::ensure(root)?;
    // The program by itself, as users build it: together with the benchmarks its dependencies would have other features.
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
