//! `e2e fleets`: all seeds of simulated fleets, all large fleets, and storms of 10,000 nodes that take minutes.

use std::path::Path;

use crate::{command, test};

/// The storms that have cases of that size: see `tests/simulation/tests/bars.rs`.
const LARGE_STORMS: &str = "bars::overloaded_registry";

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let simulation = |arguments: &[&str]| {
        let mut tests = command::cargo(root);
        tests.args(["test", "--locked", "--package", "simulation", "--test"]).args(arguments);
        command::run(tests.env("FLEET_SEEDS", "500").env("FLEET_TREE", test::tree(root)).env("MIMALLOC_PURGE_DELAY", "-1"))
    };
    simulation(&["fleet", "--", "--nocapture"])?;
    simulation(&["all", "--", "--nocapture", "--test-threads", "1", LARGE_STORMS])
}
