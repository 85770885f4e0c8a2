//! `test`: runs everything that can be tested here, and reports what could not be.
//!
//! One call of cargo builds every test executable, with one set of features and one profile, so that nothing is built twice. Then
//! the executables run in stages (see [`stages`]), some of them at the same time.

mod account;
mod executables;
mod lanes;
mod quick;
mod stages;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::bail;

use self::account::Account;
use self::executables::Executable;
use self::lanes::{Finished, Job, Phase, Plan};
use crate::{command, limits, tools};

/// The variable that lets tests without their part be skipped with a message; without it they fail.
const SKIP_MISSING: &str = "FLEETPULL_SKIP_MISSING";

/// Gets the tools, builds and runs the requested tests, and prints the sum.
pub(crate) fn run(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    limits::raise_open_files()?;
    let mut report = Report::start();
    let missing = report.timed("tools", || tools::ensure(root))?;
    let must_have_all = std::env::var("CI").is_ok_and(|value| value == "true");
    if arguments.is_empty() {
        let executables = report.timed("build", || executables::build(root, executables::EVERYTHING))?;
        report.add(lanes::run(everything(root, &executables, must_have_all))?);
    } else {
        let mut cargo = command::cargo(root);
        cargo.args(["test", "--locked", "--no-fail-fast"]);
        if !arguments.iter().any(|argument| argument.starts_with("-p") || argument.starts_with("--package")) {
            cargo.arg("--workspace");
        }
        allow_missing(cargo.args(arguments), !must_have_all);
        report.add(lanes::run(Phase { lanes: vec![vec![Job::new("tests", cargo)]], ..Phase::default() })?);
    }
    report.print(&missing);
    report.account.verdict(report.succeeded, must_have_all, &missing)
}

/// Builds and runs the tests that can show a result within minutes of a change; see `quick`.
pub(crate) fn run_quick(root: &Path) -> anyhow::Result<()> {
    limits::raise_open_files()?;
    let mut report = Report::start();
    let Some(changed) = quick::affected(root)? else {
        println!("nothing changed that is compiled");
        return Ok(());
    };
    println!("changed, or depends on it: {}", changed.join(", "));
    let executables = report.timed("build", || executables::build(root, quick::TARGETS))?;
    report.add(lanes::run(Phase { lanes: quick::lanes(&executables, &changed), ..Phase::default() })?);
    report.print(&[]);
    if !report.succeeded {
        bail!("tests failed, or could not be built: see above");
    }
    Ok(())
}

/// Each stage with its executables, and the examples of the documentation.
fn everything(root: &Path, executables: &[Executable], must_have_all: bool) -> Plan {
    let mut examples = command::cargo(root);
    examples.args(["test", "--locked", "--workspace", "--doc"]);
    let mut plan = stages::plan(executables, &tree(root), Job::new("examples", examples));
    let in_phases = plan.phases.iter_mut().flat_map(|phase| phase.lanes.iter_mut().flatten().chain(&mut phase.shared));
    in_phases.chain(&mut plan.background).for_each(|job| allow_missing(&mut job.command, !must_have_all));
    plan
}

/// The hash of the present sources, committed or not; empty if git cannot tell.
pub(crate) fn tree(root: &Path) -> String {
    let git = |arguments: &[&str]| command::output(Command::new("git").current_dir(root).args(arguments)).unwrap_or_default();
    let changed = git(&["stash", "create"]);
    let commit = if changed.trim().is_empty() { "HEAD" } else { changed.trim() };
    git(&["rev-parse", &format!("{commit}^{{tree}}")]).trim().to_owned()
}

fn allow_missing(command: &mut Command, allowed: bool) {
    if allowed {
        command.env(SKIP_MISSING, "1");
    } else {
        command.env_remove(SKIP_MISSING);
    }
}

/// The results of the stages, with their durations.
struct Report {
    started: Instant,
    times: Vec<(String, Duration)>,
    account: Account,
    succeeded: bool,
}

impl Report {
    #[expect(clippy::disallowed_methods, reason = "how long it took, for the person who waits; nothing is decided by it")]
    fn start() -> Self {
        Self { started: Instant::now(), times: Vec::new(), account: Account::default(), succeeded: true }
    }

    fn timed<T>(&mut self, stage: &str, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let before = self.started.elapsed();
        let done = work()?;
        let took = self.started.elapsed() - before;
        eprintln!("stage {stage}: {}", minutes(took));
        self.times.push((stage.to_owned(), took));
        Ok(done)
    }

    fn add(&mut self, finished: Vec<Finished>) {
        for Finished { stage, took, account, succeeded } in finished {
            self.times.push((stage, took));
            self.account.add(account);
            self.succeeded &= succeeded;
        }
    }

    /// Prints every stage with its duration, the missing parts, the skipped tests, and the sum.
    fn print(&self, missing: &[String]) {
        for (stage, took) in &self.times {
            println!("stage {stage:<16} {}", minutes(*took));
        }
        for line in missing {
            println!("{line}");
        }
        for left_out in &self.account.left_out {
            println!("NOT RUN {left_out}");
        }
        println!("total {}", minutes(self.started.elapsed()));
        println!("{}", self.account.sum());
    }
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{:>2} min {:02} s", seconds / 60, seconds % 60)
}
