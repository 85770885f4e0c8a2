//! `e2e fleets`: all seeds of simulated fleets, and all large fleets.

use std::path::Path;

use crate::{command, test};

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let mut fleets = command::cargo(root);
    fleets.args(["test", "--locked", "--package", "simulation", "--test", "fleet", "--", "--nocapture"]);
    command::run(fleets.env("FLEET_SEEDS", "500").env("FLEET_TREE", test::tree(root)).env("MIMALLOC_PURGE_DELAY", "-1"))
}
