//! The program under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// The program, built first if it is older than its sources. `FLEETPULL_BINARY` names another program instead.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("FLEETPULL_BINARY").map_or_else(fresh, PathBuf::from)).clone()
}

/// Builds the program only if needed, because building takes cargo's lock and has other features than the whole workspace.
fn fresh() -> PathBuf {
    // target/<profile>/deps/<this test>
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test.ancestors().nth(2).expect("cargo puts tests two folders deep");
    let binary = folder.join("fleetpull");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let newest = ["services", "shared"].iter().filter_map(|group| newest_source(&root.join(group))).max();
    let built = fs::metadata(&binary).and_then(|entry| entry.modified()).ok();
    if built < newest {
        build(folder);
    }
    binary
}

/// The newest change of a source below `folder`: files in `src` and `proto` folders, and build scripts.
fn newest_source(folder: &Path) -> Option<SystemTime> {
    let changed = |entry: fs::DirEntry| {
        let (path, kind) = (entry.path(), entry.file_type().ok()?);
        if kind.is_dir() {
            let none = ["tests", "examples", "benches"].iter().any(|name| path.ends_with(name));
            return if none { None } else { newest_source(&path) };
        }
        let source = path.extension().is_some_and(|extension| extension == "rs" || extension == "proto");
        entry.metadata().ok().filter(|_| source)?.modified().ok()
    };
    fs::read_dir(folder).ok()?.filter_map(|entry| changed(entry.ok()?)).max()
}

fn build(folder: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "fleetpull"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if folder.file_name().is_some_and(|profile| profile == "release") {
        command.arg("--release");
    }
    let built = command.output().expect("cargo can be run");
    assert!(built.status.success(), "fleetpull cannot be built:\n{}", String::from_utf8_lossy(&built.stderr));
}
