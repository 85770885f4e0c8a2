//! `test --quick`: tests what a change affects, without servers.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use super::executables::{Executable, Priority};
use super::lanes::Job;
use crate::command;

/// The targets that are built: all except the tests of the whole program.
pub(super) const TARGETS: &[&str] = &["--lib", "--bins", "--test", "all", "--test", "fleet", "--test", "storm"];
/// Crates whose integration tests run servers or the program, or take minutes.
const NOT_QUICK: [&str; 2] = ["e2e", "bench"];
/// The number of seeds of simulated fleets.
const SEEDS: &str = "20";
/// The variable that tells tests not to start a server; see `support::requirement`.
const NO_SERVERS: &str = "FLEETPULL_NO_SERVERS";

/// The crates that a change affects: those with a file that differs from the last commit of the upstream (without an upstream from the last
/// commit), and all that depend on them. None if there is no such crate.
pub(super) fn affected(root: &Path) -> anyhow::Result<Option<Vec<String>>> {
    let git = |arguments: &[&str]| command::output(std::process::Command::new("git").current_dir(root).args(arguments));
    let base = git(&["merge-base", "HEAD", "@{upstream}"]).unwrap_or_else(|_| "HEAD".to_owned());
    let mut files = git(&["diff", "--name-only", base.trim()]).context("--quick asks git what changed")?;
    if files.is_empty() {
        // Everything is committed and pushed, so take the last commit.
        files = git(&["diff", "--name-only", "HEAD~1"])?;
    }
    files.push_str(&git(&["ls-files", "--others", "--exclude-standard"])?);
    let metadata = command::output(command::cargo(root).args(["metadata", "--no-deps", "--locked", "--format-version", "1"]))?;
    let crates = Crates::of(&serde_json::from_str(&metadata).context("cargo metadata is not JSON")?, root);
    let affected = crates.affected_by(files.lines());
    Ok((!affected.is_empty()).then(|| affected.into_iter().collect()))
}

/// The tests of the affected crates that need no server in one lane, and simulated fleets in another.
pub(super) fn lanes(executables: &[Executable], affected: &[String]) -> Vec<Vec<Job>> {
    let (mut quick, mut simulated) = (Vec::new(), Vec::new());
    for executable in executables {
        if !affected.contains(&executable.package) || NOT_QUICK.contains(&executable.package.as_str()) {
            continue;
        }
        let is_simulated = executable.package == "simulation" && executable.kind == "test";
        let mut command = executable.command(if is_simulated { Priority::Idle } else { Priority::Usual });
        command.env(NO_SERVERS, "1").env(super::SKIP_MISSING, "1").env("FLEET_SEEDS", SEEDS).env("FLEET_LARGE", "0");
        let job = Job::new(executable.package.clone(), command);
        if is_simulated { simulated.push(job) } else { quick.push(job) }
    }
    vec![quick, simulated]
}

/// The workspace's crates with their dependencies, including those of tests.
struct Crates(Vec<Crate>);

struct Crate {
    name: String,
    /// `shared/bus`.
    folder: String,
    dependencies: Vec<String>,
}

impl Crates {
    fn of(metadata: &Value, root: &Path) -> Self {
        let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let of = |package: &Value| {
            let folder = Path::new(package["manifest_path"].as_str()?).parent()?.strip_prefix(root).ok()?;
            let dependencies = array(&package["dependencies"]).iter().filter_map(|one| one["name"].as_str().map(str::to_owned)).collect();
            Some(Crate { name: package["name"].as_str()?.to_owned(), folder: folder.to_string_lossy().into_owned(), dependencies })
        };
        Self(array(&metadata["packages"]).iter().filter_map(of).collect())
    }

    fn affected_by<'a>(&self, files: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
        let mut affected = BTreeSet::new();
        for file in files {
            // The manifest, the lock file and the toolchain affect all crates.
            let of_all = !file.contains('/') && (file.starts_with("Cargo.") || file.starts_with("rust-toolchain"));
            let below = |one: &&Crate| of_all || file.strip_prefix(&one.folder).is_some_and(|rest| rest.starts_with('/'));
            affected.extend(self.0.iter().filter(below).map(|one| one.name.clone()));
        }
        loop {
            let depends = |one: &&Crate| one.dependencies.iter().any(|name| affected.contains(name));
            let more: Vec<String> = self.0.iter().filter(depends).map(|one| one.name.clone()).collect();
            let before = affected.len();
            affected.extend(more);
            if affected.len() == before {
                return affected;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::executables::made_up;
    use super::*;

    fn crates() -> Crates {
        let one = |folder: &str, dependencies: &[&str]| Crate {
            name: folder.rsplit('/').next().unwrap().to_owned(),
            folder: folder.to_owned(),
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
        };
        Crates(vec![
            one("shared/clock", &[]),
            one("shared/bus", &["clock"]),
            one("services/throttler", &["bus"]),
            one("shared/image", &[]),
            one("tests/integration", &["throttler", "image"]),
        ])
    }

    #[test]
    fn a_change_affects_its_crate_and_all_that_depend_on_it() {
        let table: [(&[&str], &[&str]); 7] = [
            (&["shared/bus/src/port.rs"], &["bus", "integration", "throttler"]),
            (&["shared/image/tests/golden/quotes.jsonl"], &["image", "integration"]),
            (&["tests/integration/tests/main.rs"], &["integration"]),
            (&["shared/business/src/lib.rs", "README.md", "config/fleetpull.toml"], &[]),
            (&["Cargo.lock"], &["bus", "clock", "image", "integration", "throttler"]),
            (&["rust-toolchain.toml"], &["bus", "clock", "image", "integration", "throttler"]),
            (&[], &[]),
        ];
        for (files, expected) in table {
            assert_eq!(crates().affected_by(files.iter().copied()).into_iter().collect::<Vec<_>>(), expected, "{files:?}");
        }
    }

    #[test]
    fn only_affected_crates_run_and_none_that_needs_the_program() {
        let executables = [
            made_up("bus", "lib", "bus"),
            made_up("image", "test", "all"),
            made_up("e2e", "test", "all"),
            made_up("simulation", "test", "fleet"),
        ];
        let affected = ["bus", "e2e", "simulation"].map(str::to_owned);
        let lanes = lanes(&executables, &affected);
        let stages: Vec<Vec<&str>> = lanes.iter().map(|lane| lane.iter().map(|job| job.stage.as_str()).collect()).collect();
        assert_eq!(stages, [vec!["bus"], vec!["simulation"]]);
    }
}
