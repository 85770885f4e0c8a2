//! `e2e transcripts`: compares the terminal output in five incidents with golden files.

use std::path::Path;

use crate::command;

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let tests = ["test", "--locked", "--package", "e2e", "--features", "transcripts", "--test", "all", "transcripts::"];
    let mut tested = command::cargo(root);
    command::run(tested.args(tests).args(["--", "--nocapture", "--test-threads=5"]))
}
