//! The workspace's own commands: `cargo xtask help`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool of the command line speaks there")]

mod bench;
mod command;
mod dependencies;
mod e2e;
mod fuzz;
mod layers;
mod limits;
mod lint;
mod man;
mod test;
mod tools;
mod vocabulary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

/// The commands of the workspace. Each does all of its own set-up and prints what it runs.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "\
Examples:
  cargo xtask test                     everything that CI tests, real servers included
  cargo xtask test --quick             what a change affects, without servers: within minutes
  cargo xtask test -p bus              the tests of one crate
  cargo xtask test back_off            the tests with that in their names
  cargo xtask lint                     what CI checks in addition to the tests
  cargo xtask bench --output json      the benchmarks and their references
  cargo xtask bench waiting            what a pull costs an agent while 20 to 2,000 others wait
  cargo xtask e2e chaos                10,000 pulls under faults: no event is lost or doubled
  cargo xtask e2e fleets               all seeds of simulated fleets, of which each test run has some
  cargo xtask e2e image                Docker Engine builds the image and runs it
  cargo xtask e2e jaeger               a real Jaeger shows the trees and links of real pulls
  cargo xtask e2e promtool             Prometheus' checker on rules, their tests and metrics"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Gets what is needed (see `tools`), then runs every test of the workspace.
    ///
    /// A part that cannot be had makes its tests be left out, each named at the end with the reason; with CI=true in the
    /// environment that is a failure. Each stage's time is printed; the last line is the sum: `N passed, N failed`.
    Test {
        /// Within minutes of a change: only the tests that need no servers, with 20 seeds of simulated fleets, of the crates that the
        /// change affects. These are the crates with a file that differs from the last commit of the branch's upstream (without
        /// an upstream: from the last commit; if nothing differs: from the one before), and all that depend on them.
        #[arg(long, conflicts_with = "arguments")]
        quick: bool,
        /// Passed to `cargo test`: a filter, `-p CRATE`, `-- --nocapture`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Checks form, lints, documentation, layers, vocabulary, and what dependencies bring: licences, sources, duplicates. Every check runs,
    /// also after one failed.
    Lint,
    /// Checks the architecture invariants that services/README.md states: who may depend on what, and what is written where.
    Layers,
    /// Writes the manual pages in deploy/man anew, from the definitions of the command line. A test fails while they differ.
    Man,
    /// Gets the servers that tests talk to: a current, the oldest supported and a too old nats-server into .tools, and from Debian, when
    /// root, docker-registry, containerd, runc, skopeo, strace and systemd-analyze. What is there already is left alone.
    Tools,
    /// Runs the benchmarks in the release profile, each with its reference in one run.
    Bench {
        /// Passed to the benchmarks; `cargo xtask bench -- --help` shows what they take.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Checks what takes too long for `cargo xtask test`: with other people's programs, each built once into .tools, with many pulls,
    /// or with many simulated fleets.
    E2e {
        /// What is checked.
        #[arg(value_enum)]
        program: e2e::Program,
    },
    /// Fuzzes one parser of what comes from outside, guided by coverage. Needs a nightly toolchain and cargo-fuzz.
    ///
    /// `cargo test -p fuzz` runs every target over its kept inputs and mutations of them, with neither.
    Fuzz {
        /// A folder of tests/fuzz/corpus.
        target: String,
        /// For how long, in seconds.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = workspace_root().and_then(|root| match arguments.task {
        Task::Test { quick: true, .. } => test::run_quick(&root),
        Task::Test { arguments, .. } => test::run(&root, &arguments),
        Task::Lint => lint::run(&root),
        Task::Layers => layers::run(&root),
        Task::Man => man::run(&root),
        Task::Tools => tools::run(&root),
        Task::Bench { arguments } => bench::run(&root, &arguments),
        Task::E2e { program } => e2e::run(&root, program),
        Task::Fuzz { target, seconds } => fuzz::run(&root, &target, seconds),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn workspace_root() -> anyhow::Result<PathBuf> {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest_dir.ancestors().nth(2).context("xtask lies two levels below the workspace")?;
    Ok(root.to_owned())
}
