//! `lint`: all checks of CI except the tests.

use std::path::Path;

use anyhow::bail;

use crate::{command, dependencies, layers, vocabulary};

/// Runs every check, and fails at the end if any failed.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let cargo = |arguments: &[&str]| command::run(command::cargo(root).env("RUSTDOCFLAGS", "-D warnings").args(arguments));
    let outcomes = [
        ("form", cargo(&["fmt", "--all", "--check"])),
        (
            "lints",
            cargo(&["clippy", "--workspace", "--all-targets", "--features", "e2e/jaeger,e2e/chaos", "--locked", "--", "-D", "warnings"]),
        ),
        ("documentation", cargo(&["doc", "--workspace", "--no-deps", "--locked"])),
        ("layers", layers::run(root)),
        ("vocabulary", vocabulary::run(root)),
        ("dependencies", dependencies::run(root)),
    ];
    let checks = outcomes.each_ref().map(|(name, _)| *name);
    let mut failed = Vec::new();
    for (name, outcome) in outcomes {
        if let Err(error) = outcome {
            eprintln!("error: {name}: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("{} of {} checks failed: {}", failed.len(), checks.len(), failed.join(", "));
    }
    println!("{}: all right", checks.join(", "));
    Ok(())
}
