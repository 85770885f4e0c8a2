//! `e2e jaeger`: a real Jaeger receives the spans of real pulls.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::command;

/// The tool module: go.mod and go.sum fix the version and all dependencies. Jaeger's own go.mod has a `replace`, which `go install`
/// refuses.
const MODULE: &str = "tests/xtask/jaeger";
const PACKAGE: &str = "github.com/jaegertracing/jaeger/cmd/jaeger";
/// The version in go.mod. It is a part of the program's file name, so that another version is built again.
const VERSION: &str = "v1.76.0";
/// The path of go after Go's own archive was installed.
const GO: &str = "/usr/local/go/bin/go";

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let program = ensure(root)?;
    let tests = ["test", "--package", "e2e", "--features", "jaeger", "--test", "all", "traces::"];
    let mut tested = command::cargo(root);
    tested.args(tests).args(["--", "--nocapture", "--test-threads=1"]);
    command::run(tested.env("FLEETPULL_JAEGER", program))
}

/// The program; built first if it is missing.
pub(super) fn ensure(root: &Path) -> anyhow::Result<PathBuf> {
    let program = place(root);
    if program.is_file() {
        return Ok(program);
    }
    if let Some(folder) = program.parent() {
        fs::create_dir_all(folder)?;
    }
    let go = if Path::new(GO).is_file() { GO } else { "go" };
    eprintln!("building Jaeger {VERSION}: 4 minutes on 2 cores, once");
    let built = program.with_file_name(format!("jaeger-{VERSION}.{}", std::process::id()));
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&built).arg(PACKAGE).current_dir(root.join(MODULE));
    command::run(&mut build).context("Jaeger cannot be built: it takes Go 1.24 or later, and Go's module proxy")?;
    // The file is moved atomically, so that another work tree never finds an incomplete one.
    fs::rename(&built, &program).with_context(|| format!("it cannot be put at {}", program.display()))?;
    Ok(program)
}

/// The path of the program in this user's cache, so that several work trees build it once.
fn place(root: &Path) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|place| place.is_absolute());
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let folder = cache.map_or_else(|| root.join(".tools"), |cache| cache.join("fleetpull"));
    folder.join(format!("jaeger-{VERSION}"))
}
