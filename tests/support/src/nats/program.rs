//! Finds the nats-server program.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest supported version.
const OLDEST: (u32, u32, u32) = (2, 11, 7);

const ADVICE: &str = "run `cargo xtask tools`, or name a nats-server of at least 2.11.7 in FLEETPULL_NATS_SERVER";

/// A supported nats-server: the one named in `FLEETPULL_NATS_SERVER`, else that of the workspace's tools, else the one on `PATH`
/// if it is new enough.
///
/// # Errors
/// When none is found: the text explains what to do.
pub fn current_program() -> Result<PathBuf, String> {
    let fit = |program: &PathBuf| version(program).is_some_and(|version| version >= OLDEST);
    if let Some(named) = std::env::var_os("FLEETPULL_NATS_SERVER") {
        let named = PathBuf::from(named);
        let unfit = format!("FLEETPULL_NATS_SERVER names {}, which is no nats-server of at least 2.11.7: {ADVICE}", named.display());
        return if fit(&named) { Ok(named) } else { Err(unfit) };
    }
    let tool = tools().join("nats-server");
    [tool, PathBuf::from("nats-server")].into_iter().find(fit).ok_or_else(|| format!("no nats-server here: {ADVICE}"))
}

/// The oldest supported nats-server.
///
/// # Errors
/// When none is found: the text explains what to do.
pub fn oldest_program() -> Result<PathBuf, String> {
    let tool = tools().join("nats-server-oldest");
    match version(&tool) {
        Some(OLDEST) => Ok(tool),
        _ => Err("no nats-server 2.11.7 here: run `cargo xtask tools`".to_owned()),
    }
}

/// A nats-server that is too old, for testing how it is refused.
///
/// # Errors
/// When none is found: the text explains what to do.
pub fn old_program() -> Result<PathBuf, String> {
    let tool = tools().join("nats-server-old");
    match version(&tool) {
        Some(version) if version < OLDEST => Ok(tool),
        _ => Err("no nats-server older than 2.11.7 here: run `cargo xtask tools` where Debian's packages can be had".to_owned()),
    }
}

fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools")
}

/// The version: 2, 15 and 1 for the output `nats-server: v2.15.1`.
fn version(program: &Path) -> Option<(u32, u32, u32)> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut numbers = text.trim().rsplit_once('v')?.1.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
}
