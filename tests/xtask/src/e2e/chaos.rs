//! `e2e chaos`: 10,000 pulls while agents and the server are killed, networks are cut and disks are full; the links of refusals are looked
//! up in a real Jaeger.

use std::path::Path;

use super::jaeger;
use crate::command;

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let program = jaeger::ensure(root)?;
    let tests = ["test", "--package", "e2e", "--features", "chaos", "--test", "all", "chaos::"];
    let mut tested = command::cargo(root);
    tested.args(tests).args(["--", "--nocapture", "--test-threads=1"]);
    command::run(tested.env("FLEETPULL_JAEGER", program))
}
