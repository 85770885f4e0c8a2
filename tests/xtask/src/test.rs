//! `test`: everything that can be tested here, and a true account of what could not.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};

use crate::{command, limits, tools};

/// Lets tests that need a missing part be left out aloud; without it they fail.
const SKIP_MISSING: &str = "FLEETPULL_SKIP_MISSING";
/// What such a test writes to stderr, before its name and the reason.
const SKIPPED: &str = "SKIPPED: ";

/// Gets the tools, runs the tests, sums up.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "how long it took for whoever waits; nothing is decided by it")]
    let started = Instant::now();
    limits::raise_open_files()?;
    let missing = tools::ensure(root)?;
    let must_have_all = std::env::var("CI").is_ok_and(|value| value == "true");
    let mut runs = vec![tests(root, arguments)];
    if arguments.is_empty() {
        runs.push(fleets(root));
    }
    let (mut account, mut succeeded) = (Account::default(), true);
    for cargo in &mut runs {
        if must_have_all {
            cargo.env_remove(SKIP_MISSING);
        } else {
            cargo.env(SKIP_MISSING, "1");
        }
        let (heard, all_well) = watch(cargo)?;
        account.add(heard);
        succeeded &= all_well;
    }
    for line in &missing {
        println!("{line}");
    }
    for left_out in &account.left_out {
        println!("NOT RUN {left_out}");
    }
    let seconds = started.elapsed().as_secs();
    println!("total {} min {:02} s", seconds / 60, seconds % 60);
    println!("{}", account.sum());
    account.verdict(succeeded, must_have_all, &missing)
}

/// The tests that are asked for; of the whole workspace if no package is named.
fn tests(root: &Path, arguments: &[String]) -> Command {
    let mut cargo = command::cargo(root);
    cargo.args(["test", "--locked", "--no-fail-fast"]);
    if !arguments.iter().any(|argument| argument.starts_with("-p") || argument.starts_with("--package")) {
        cargo.arg("--workspace");
    }
    cargo.args(arguments);
    cargo
}

/// Hundreds of simulated fleets, built optimised, which say how often each kind of fault acted. With the other tests there are few.
fn fleets(root: &Path) -> Command {
    let mut cargo = command::cargo(root);
    cargo.args(["test", "--locked", "--no-fail-fast", "--profile", "simulated", "-p", "simulation", "--test", "storm", "--test", "fleet"]);
    cargo.args(["--", "--nocapture"]);
    // What one fleet leaves is kept for the next: giving it back to the system in between costs a tenth of the time.
    cargo.env("MIMALLOC_PURGE_DELAY", "-1");
    cargo
}

/// Runs cargo with its output passed on, and listens to it.
fn watch(cargo: &mut Command) -> anyhow::Result<(Account, bool)> {
    eprintln!("$ {}", command::shown(cargo));
    let mut child = cargo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start cargo")?;
    let (stdout, stderr) = (child.stdout.take().context("stdout is piped")?, child.stderr.take().context("stderr is piped")?);
    let listener = std::thread::spawn(move || pass_on(stderr, &mut std::io::stderr()));
    let mut account = pass_on(stdout, &mut std::io::stdout());
    let of_stderr = listener.join().map_err(|_| anyhow::anyhow!("the listener of stderr panicked"))?;
    account.left_out.extend(of_stderr.left_out);
    let status = child.wait().context("cargo cannot be waited for")?;
    Ok((account, status.success()))
}

fn pass_on(from: impl Read, to: &mut impl Write) -> Account {
    let mut account = Account::default();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // Whoever closed our output wants no more of it; the tests go on all the same.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        account.hear(&String::from_utf8_lossy(&line));
        line.clear();
    }
    account
}

/// What was heard of the tests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Name and reason.
    left_out: Vec<String>,
}

impl Account {
    fn add(&mut self, heard: Self) {
        self.passed += heard.passed;
        self.failed += heard.failed;
        self.ignored += heard.ignored;
        self.left_out.extend(heard.left_out);
        self.left_out.sort();
    }

    fn hear(&mut self, line: &str) {
        if let Some(at) = line.find(SKIPPED) {
            self.left_out.push(line[at + SKIPPED.len()..].trim_end().to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let count = |what: &str| {
            let words: Vec<&str> = result.split([' ', ';']).collect();
            words.windows(2).find(|pair| pair[1] == what).and_then(|pair| pair[0].parse().ok()).unwrap_or(0_usize)
        };
        self.passed += count("passed");
        self.failed += count("failed");
        self.ignored += count("ignored");
    }

    /// A test that was left out counts as passed for the harness, not here.
    fn sum(&self) -> String {
        let not_run = self.left_out.len() + self.ignored;
        let rest = if not_run == 0 { String::new() } else { format!(", {not_run} not run") };
        format!("{} passed, {} failed{rest}", self.passed.saturating_sub(self.left_out.len()), self.failed)
    }

    fn verdict(&self, succeeded: bool, must_have_all: bool, missing: &[String]) -> anyhow::Result<()> {
        if !succeeded {
            bail!("tests failed, or could not be built: see above");
        }
        if must_have_all && !missing.is_empty() {
            bail!("CI=true and {} parts could not be had", missing.len());
        }
        let not_run = self.left_out.len() + self.ignored;
        if must_have_all && not_run > 0 {
            bail!("CI=true and {not_run} tests did not run");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Account {
        let mut account = Account::default();
        lines.iter().for_each(|line| account.hear(line));
        account
    }

    #[test]
    fn results_are_summed_and_left_out_tests_are_not_called_passed() {
        let account = heard(&[
            "running 8 tests\n",
            "test a ... ok\n",
            "test result: ok. 8 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.08s\n",
            "test result: FAILED. 7 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.08s\n",
            "SKIPPED: pulls_through_cri: containerd needs root\n",
            "test b ... SKIPPED: b: no nats-server here\n",
        ]);
        assert_eq!(account.left_out, ["pulls_through_cri: containerd needs root", "b: no nats-server here"]);
        assert_eq!(account.sum(), "13 passed, 2 failed, 3 not run");
        assert_eq!(heard(&["test result: ok. 2 passed; 0 failed; 0 ignored\n"]).sum(), "2 passed, 0 failed");
    }

    #[test]
    fn ci_fails_where_something_did_not_run() {
        let all = heard(&["test result: ok. 2 passed; 0 failed; 0 ignored\n"]);
        let some = heard(&["SKIPPED: a: b\n"]);
        let ignored = heard(&["test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n"]);
        let part = ["MISSING containerd".to_owned()];
        assert!(all.verdict(true, true, &[]).is_ok());
        assert!(all.verdict(false, false, &[]).is_err());
        assert!(all.verdict(true, true, &part).is_err());
        assert!(all.verdict(true, false, &part).is_ok());
        assert!(some.verdict(true, true, &[]).is_err());
        assert!(some.verdict(true, false, &part).is_ok());
        assert!(ignored.verdict(true, true, &[]).is_err() && ignored.verdict(true, false, &[]).is_ok());
    }

    #[test]
    fn output_is_passed_on_byte_for_byte() {
        let given = b"test result: ok. 1 passed; 0 failed\n\xff\xfe not UTF-8\nlast line without end";
        let mut passed_on = Vec::new();
        let account = pass_on(&given[..], &mut passed_on);
        assert_eq!(passed_on, given);
        assert_eq!(account.passed, 1);
    }
}
