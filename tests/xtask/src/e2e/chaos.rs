//! `e2e chaos`: ten thousand pulls while agents and the server are killed, networks are cut and disks are full.

use std::path::Path;

use crate::command;

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let tests = ["test", "--package", "e2e", "--features", "chaos", "--test", "all", "chaos::"];
    let mut tested = command::cargo(root);
    tested.args(tests).args(["--", "--nocapture", "--test-threads=1"]);
    command::run(&mut tested)
}
