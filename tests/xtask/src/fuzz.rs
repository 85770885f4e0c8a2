//! `fuzz`: runs one fuzz target under libFuzzer, guided by coverage.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::command;

/// The workspace with the programs for libFuzzer.
const PROGRAMS: &str = "tests/fuzz/libfuzzer";
/// The kept inputs, a folder for each target.
const CORPORA: &str = "tests/fuzz/corpus";

/// Fuzzes `target` for this many seconds. Inputs that fail are written to `tests/fuzz/libfuzzer/artifacts`.
pub(crate) fn run(root: &Path, target: &str, seconds: u64) -> anyhow::Result<()> {
    let corpus = root.join(CORPORA).join(target);
    if !corpus.is_dir() {
        bail!("there is no target {target:?}; it is one of {}", targets(root)?.join(", "));
    }
    // New inputs go to a folder of their own, because only a few are kept.
    let found = root.join("target/fuzz-corpus").join(target);
    std::fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let mut fuzz = Command::new("rustup");
    fuzz.current_dir(root).args(["run", "nightly", "cargo", "fuzz", "run", "--fuzz-dir", PROGRAMS, target]).arg(&found).arg(&corpus);
    fuzz.args(["--", &format!("-max_total_time={seconds}"), "-max_len=4096"]);
    command::run(&mut fuzz).context("needs a nightly toolchain and cargo-fuzz (`cargo install cargo-fuzz --locked`)")
}

fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join(CORPORA);
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}
