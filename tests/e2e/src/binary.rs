//! The program under test.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The program, built once for each test process so that no test runs yesterday's. `FLEETPULL_BINARY` names another instead.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("FLEETPULL_BINARY").map_or_else(build, PathBuf::from)).clone()
}

fn build() -> PathBuf {
    // target/<profile>/deps/<this test>
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test.ancestors().nth(2).expect("cargo puts tests two folders deep").to_owned();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "fleetpull"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    if folder.file_name().is_some_and(|profile| profile == "release") {
        command.arg("--release");
    }
    let built = command.output().expect("cargo can be run");
    assert!(built.status.success(), "fleetpull cannot be built:\n{}", String::from_utf8_lossy(&built.stderr));
    folder.join("fleetpull")
}
