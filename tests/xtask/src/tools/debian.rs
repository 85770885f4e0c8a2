//! Installs Debian packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Part;
use crate::command;

/// The program, its package, and the tests that use it.
const SERVERS: [(&str, &str, &str); 6] = [
    ("docker-registry", "docker-registry", "pulls from a real registry"),
    ("containerd", "containerd", "pulls through CRI"),
    ("runc", "runc", "what containerd runs"),
    ("skopeo", "skopeo", "a second opinion on images, and the benchmarks' reference"),
    ("strace", "strace", "which system calls a pull makes, in which order"),
    ("systemd-analyze", "systemd", "the checks of the unit by systemd"),
];

/// The same for Docker Engine.
const DOCKER: [(&str, &str, &str); 2] =
    [("dockerd", "docker.io", "building and running the image"), ("docker-compose", "docker-compose", "the check of the Compose file")];

/// Gets the servers and tools that Debian has.
pub(super) fn servers() -> Vec<Part> {
    ensure(&SERVERS)
}

/// Gets Docker Engine and Compose.
pub(super) fn docker() -> Vec<Part> {
    ensure(&DOCKER)
}

/// Installs the programs that are missing.
fn ensure(programs: &[(&'static str, &str, &'static str)]) -> Vec<Part> {
    let missing: Vec<&str> = programs.iter().filter(|(program, ..)| find(program).is_none()).map(|(_, package, _)| *package).collect();
    let outcome = if missing.is_empty() { Ok(()) } else { install(&missing) };
    let part = |&(program, package, used_for): &(&'static str, &str, &'static str)| Part {
        name: program,
        used_for,
        found: find(program).map(|place| place.display().to_string()).ok_or_else(|| match &outcome {
            Ok(()) => format!("the package {package} does not bring it"),
            Err(why) => why.clone(),
        }),
    };
    programs.iter().map(part).collect()
}

/// Installs packages. Needs root and apt-get.
pub(super) fn install(packages: &[&str]) -> Result<(), String> {
    let advice = format!("apt-get install {}", packages.join(" "));
    if find("apt-get").is_none() {
        return Err(format!("this is not Debian: get it by your own means (there it would be `{advice}`)"));
    }
    if !is_root() {
        return Err(format!("needs root: sudo {advice}"));
    }
    let update = quiet_apt().args(["update", "-q"]).status();
    let installed = command::run(quiet_apt().args(["install", "-q", "-y", "--no-install-recommends"]).args(packages));
    match (update, installed) {
        (_, Ok(())) => Ok(()),
        (_, Err(error)) => Err(format!("{error:#}; try `{advice}` by hand")),
    }
}

/// A command of apt-get that asks no question and starts no service, because tests start their own services on free ports.
fn quiet_apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    apt
}

/// Downloads a package into `folder` and unpacks it there. Needs no root.
pub(super) fn unpack(package: &str, folder: &Path) -> anyhow::Result<()> {
    command::run(Command::new("apt-get").args(["download", "-q", package]).current_dir(folder))?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            command::run(Command::new("dpkg-deb").arg("-x").arg(&path).arg(folder))?;
        }
    }
    Ok(())
}

/// The path of a program on PATH, or in Debian's folders of programs for root.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|place| place.is_file())
}

fn is_root() -> bool {
    let id = command::output(Command::new("id").arg("-u"));
    id.is_ok_and(|id| id.trim() == "0")
}
