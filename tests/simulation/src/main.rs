//! `simulation storm`: the effect of a storm on a registry and a fleet, by kubelet's rule and by Fleetpull's cores.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool of the command line speaks there")]

mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use settings::SettingsError;
use simulation::plot;
use simulation::policy::{Policy, is_simulated};
use simulation::scenario::Scenario;
use simulation::storm::{self, Storm, Traffic};

/// The most nodes: a run of more takes minutes.
const MOST_NODES: u64 = 100_000;
/// The most simulated minutes: one week.
const MOST_MINUTES: u64 = 7 * 24 * 60;
/// The exit status of wrong usage, the same as clap's.
const WRONG_USAGE: u8 = 2;

#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs kubelet's rule and Fleetpull's cores through the same simulated trouble.
    ///
    /// Every figure is simulated: real cores, a simulated bus that takes 1 ms each way, and a simulated registry. Each node wants
    /// one image, and all nodes ask for theirs within 0.5 s.
    ///
    /// Exit status: 0 all bars are met, 1 a bar is missed (see the table), 2 wrong usage. With --set no bar is judged, because the
    /// bars are for the defaults.
    Storm(StormArguments),
}

#[derive(clap::Args)]
struct StormArguments {
    /// The scenario; `all` runs every scenario in turn.
    #[arg(long, default_value = ALL, value_parser = choice())]
    scenario: Choice,
    /// How many nodes [default: 1000; for hub-quota 300].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=MOST_NODES))]
    nodes: Option<u64>,
    /// How long, in simulated minutes.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=MOST_MINUTES))]
    minutes: u64,
    /// The seed of all random choices; the same seed gives the same figures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A setting of Fleetpull's nodes, such as fleet.share=off or backoff.initial=1s; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// `json` prints one object for each scenario, and nothing else on stdout.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Also draws the requests per second of both sides over time, into <DIR>/<scenario>.svg.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// The name of all scenarios together.
const ALL: &str = "all";

#[derive(Clone, Copy)]
enum Choice {
    All,
    One(Scenario),
}

fn choice() -> impl TypedValueParser<Value = Choice> {
    let names = std::iter::once(ALL).chain(Scenario::value_variants().iter().map(|scenario| scenario.name()));
    PossibleValuesParser::new(names).map(|name| Scenario::from_str(&name, false).map_or(Choice::All, Choice::One))
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl Choice {
    fn scenarios(self) -> Vec<Scenario> {
        match self {
            Self::All => Scenario::value_variants().to_vec(),
            Self::One(scenario) => vec![scenario],
        }
    }
}

fn main() -> ExitCode {
    let Task::Storm(arguments) = Arguments::parse().task;
    match storms(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            if error.is::<SettingsError>() { ExitCode::from(WRONG_USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// Runs the chosen scenarios. Returns whether all judged bars are met.
fn storms(arguments: &StormArguments) -> anyhow::Result<bool> {
    let policy = Policy::with(arguments.set.clone())?;
    for (key, _) in arguments.set.iter().filter(|(key, _)| !is_simulated(key)) {
        eprintln!("note: {key} makes no difference here: only what nodes decide by is simulated");
    }
    if let Some(dir) = &arguments.plot {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {} for --plot", dir.display()))?;
    }
    let mut met = true;
    for scenario in arguments.scenario.scenarios() {
        let nodes = arguments.nodes.and_then(|nodes| usize::try_from(nodes).ok()).unwrap_or_else(|| scenario.usual_nodes());
        let (storm, traffic) = storm::run(scenario, nodes, arguments.minutes, arguments.seed, &policy);
        match arguments.output {
            Format::Json => println!("{}", serde_json::to_string(&storm)?),
            Format::Text => println!("{}", table::of(&storm)),
        }
        if let Some(dir) = &arguments.plot {
            draw(dir, &storm, &traffic)?;
        }
        if arguments.set.is_empty() && table::misses_a_bar(&storm) {
            eprintln!("{}: a bar is missed", scenario.name());
            met = false;
        }
    }
    Ok(met)
}

fn draw(dir: &Path, storm: &Storm, traffic: &Traffic) -> anyhow::Result<()> {
    let path = dir.join(format!("{}.svg", storm.scenario.name()));
    std::fs::write(&path, plot::svg(storm, traffic)).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("drew {}", path.display());
    Ok(())
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("a setting is given as key=value, such as fleet.share=off".to_owned()),
    }
}
