//! `man`: the manual pages, one for each command.

use std::path::Path;

use crate::command;

/// The test that compares the pages also writes them, so that the code that makes pages is neither in the program nor built for this tool.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    command::run(command::cargo(root).env("BLESS", "1").args(["test", "--quiet", "--locked", "-p", "fleetpull", "--test", "all", "man::"]))
}
