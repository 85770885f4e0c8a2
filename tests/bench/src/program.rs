//! Finds programs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// The `fleetpull` that was built in the same folder as this program.
///
/// # Errors
/// It was not built.
pub(crate) fn fleetpull() -> Result<PathBuf> {
    let this = std::env::current_exe().context("this program's own path cannot be read")?;
    let program = this.with_file_name("fleetpull");
    ensure!(program.is_file(), "{} is not there: run `cargo xtask bench`, which builds it", program.display());
    Ok(program)
}

/// A program on `PATH`.
///
/// # Errors
/// It is not there.
pub(crate) fn installed(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("{name} is not installed: run `cargo xtask tools` as root, or install Debian's package {name}"))
}

/// A command of `program` without this user's settings and logins.
pub(crate) fn isolated(program: &Path, home: &Path) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", home).env("TMPDIR", home);
    command.current_dir(home).kill_on_drop(true);
    command
}
