//! The test executables of the workspace, built by one call of cargo.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::command;

/// The targets that are built: unit tests, integration tests, programs.
pub(super) const EVERYTHING: &[&str] = &["--lib", "--bins", "--tests"];

/// One test executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Executable {
    pub(super) package: String,
    /// `lib`, `bin` or `test`.
    pub(super) kind: String,
    /// The name of the target: `all`, `fleet`, or the crate's name.
    pub(super) target: String,
    folder: PathBuf,
    path: PathBuf,
}

/// When an executable gets a core.
#[derive(Clone, Copy, Debug)]
pub(super) enum Priority {
    Usual,
    /// A third as much as others that want one; with much less, a wait within one test ends before its answer comes.
    Low,
    /// Only while no other wants one: any other that wakes up takes it at once (Linux: `SCHED_IDLE`).
    Idle,
}

impl Executable {
    /// The command that runs it as `cargo test` does: in its crate's folder.
    pub(super) fn command(&self, priority: Priority) -> Command {
        let before: &[&str] = match priority {
            Priority::Usual => &[],
            Priority::Low => &["nice", "-n", "5"],
            Priority::Idle => &["chrt", "--idle", "0"],
        };
        let mut words = before.iter().map(OsStr::new).chain([self.path.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    fn of(message: &Value) -> Option<Self> {
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let (path, target) = (message["executable"].as_str()?, &message["target"]);
        Some(Self {
            package: package(message["package_id"].as_str()?)?.to_owned(),
            kind: target["kind"][0].as_str()?.to_owned(),
            target: target["name"].as_str()?.to_owned(),
            folder,
            path: path.into(),
        })
    }
}

/// The package's name in `path+file:///w/shared/bus#0.1.0` or `path+file:///w/shared/bus#name@0.1.0`.
fn package(id: &str) -> Option<&str> {
    let (place, version) = id.rsplit_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => place.rsplit('/').next(),
    }
}

/// Builds these targets of every crate of the workspace: with fewer crates cargo would choose other features for dependencies and build
/// them again. Returns their test executables.
pub(super) fn build(root: &Path, targets: &[&str]) -> anyhow::Result<Vec<Executable>> {
    let mut cargo = command::cargo(root);
    cargo.args(["test", "--locked", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]).args(targets);
    eprintln!("$ {}", command::shown(&cargo));
    let built = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !built.status.success() {
        bail!("the tests cannot be built: see above");
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    let executables: Vec<Executable> = messages.lines().filter_map(|line| Executable::of(&serde_json::from_str(line).ok()?)).collect();
    anyhow::ensure!(!executables.is_empty(), "cargo named no test executable");
    Ok(executables)
}

#[cfg(test)]
pub(super) fn made_up(package: &str, kind: &str, target: &str) -> Executable {
    Executable {
        package: package.to_owned(),
        kind: kind.to_owned(),
        target: target.to_owned(),
        folder: PathBuf::from("/w").join(package),
        path: format!("/w/target/debug/deps/{target}-0").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(reason: &str, test: bool, executable: Option<&str>) -> Value {
        json!({
            "reason": reason, "package_id": "path+file:///w/shared/bus#0.1.0", "manifest_path": "/w/shared/bus/Cargo.toml",
            "target": { "kind": ["test"], "name": "all" }, "profile": { "test": test }, "executable": executable,
        })
    }

    #[test]
    fn test_executables_are_read_from_the_messages_of_cargo() {
        let executable = Executable::of(&message("compiler-artifact", true, Some("/w/target/debug/deps/all-1"))).unwrap();
        assert_eq!((&*executable.package, &*executable.kind, &*executable.target), ("bus", "test", "all"));
        assert_eq!(executable.command(Priority::Usual).get_current_dir(), Some(Path::new("/w/shared/bus")));
        let shown = [Priority::Usual, Priority::Low, Priority::Idle].map(|priority| command::shown(&executable.command(priority)));
        let path = "/w/target/debug/deps/all-1";
        assert_eq!(shown, ["all-1".to_owned(), format!("nice -n 5 {path}"), format!("chrt --idle 0 {path}")]);
        assert_eq!(Executable::of(&message("compiler-artifact", false, Some("/w/target/debug/fleetpull"))), None);
        assert_eq!(Executable::of(&message("build-finished", true, None)), None);
    }

    #[test]
    fn a_package_is_named_after_its_folder_or_by_itself() {
        assert_eq!(package("path+file:///w/shared/bus#0.1.0"), Some("bus"));
        assert_eq!(package("path+file:///w/tests/xtask#other@0.1.0"), Some("other"));
        assert_eq!(package("nothing"), None);
    }
}
