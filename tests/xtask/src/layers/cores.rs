//! Checks that each service's core compiles alone, without actors and NATS.

use std::path::Path;

use crate::command;

/// The services, and the dependencies of their cores that have a shell of their own.
const CORES: [&str; 7] = ["pull-coordinator", "backoff-tracker", "throttler", "event-recorder", "registrar", "lease", "replication"];
/// Crates that only the shell of a service may depend on.
const SHELL_ONLY: [&str; 3] = ["actix", "async-nats", "bus"];

/// Whether every core compiles without a crate of the shell.
pub(super) fn run(root: &Path) -> anyhow::Result<bool> {
    let mut all_right = true;
    for service in CORES {
        let selection = ["--quiet", "--locked", "--no-default-features", "-p", service];
        let compiles = command::cargo(root).arg("check").args(selection).status()?.success();
        let tree = command::output(command::cargo(root).args(["tree", "-e", "normal", "--prefix", "none"]).args(selection))?;
        let brought = brought_in(&tree);
        let right = compiles && brought.is_empty();
        println!("{} the core of {service} compiles with neither actix nor async-nats", if right { "ok  " } else { "FAIL" });
        if !brought.is_empty() {
            println!("     without default features it still needs {}", brought.join(", "));
        }
        all_right &= right;
    }
    Ok(all_right)
}

/// Crates of the shell in the output of `cargo tree --prefix none`, which has a name and a version in each line.
fn brought_in(tree: &str) -> Vec<&str> {
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    let mut brought: Vec<&str> = names.filter(|name| SHELL_ONLY.contains(name)).collect();
    brought.sort_unstable();
    brought.dedup();
    brought
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_brings_in_the_shell_is_found() {
        let tree =
            "throttler v0.1.0 (/w/services/throttler)\nserde v1.0.0\nactix v0.13.5\nbus v0.1.0 (/w)\nactix v0.13.5 (*)\nactix-rt v2\n";
        assert_eq!(brought_in(tree), ["actix", "bus"]);
        assert_eq!(brought_in("throttler v0.1.0\nserde v1.0.0\n"), Vec::<&str>::new());
    }
}
