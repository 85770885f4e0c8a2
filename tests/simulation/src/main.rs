//! `simulation storm`: what a storm does to a registry and to a fleet, by kubelet's rule and by ours.
#![allow(clippy::print_stdout, reason = "a tool of the command line speaks there")]

mod table;

use anyhow::ensure;
use clap::{Parser, Subcommand, ValueEnum};
use simulation::scenario::Scenario;
use simulation::storm;

/// The most nodes: figures beyond take minutes.
const MOST_NODES: usize = 100_000;
/// The most minutes: a week.
const MOST_MINUTES: u64 = 7 * 24 * 60;

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
    /// Every figure is simulated: real cores, a simulated bus that takes a millisecond each way, and a simulated registry. Each
    /// node wants one image, asked for within half a second.
    Storm(StormArguments),
}

#[derive(clap::Args)]
struct StormArguments {
    /// What happens; `all` is every one in turn.
    #[arg(long, value_enum, default_value_t = Choice::All)]
    scenario: Choice,
    /// How many nodes.
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
    /// How long, in simulated minutes.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Of all chance in the run; the same seed gives the same figures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// `json` is one object a scenario and nothing else on stdout.
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    All,
    BadTag,
    LateTag,
    Down,
    BlackHole,
    RateLimit,
    SickNode,
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
            Self::BadTag => vec![Scenario::BadTag],
            Self::LateTag => vec![Scenario::LateTag],
            Self::Down => vec![Scenario::Down],
            Self::BlackHole => vec![Scenario::BlackHole],
            Self::RateLimit => vec![Scenario::RateLimit],
            Self::SickNode => vec![Scenario::SickNode],
        }
    }
}

fn main() -> anyhow::Result<()> {
    let Task::Storm(arguments) = Arguments::parse().task;
    let (nodes, minutes) = (arguments.nodes, arguments.minutes);
    ensure!((1..=MOST_NODES).contains(&nodes), "--nodes {nodes} is not between 1 and {MOST_NODES}");
    ensure!((1..=MOST_MINUTES).contains(&minutes), "--minutes {minutes} is not between 1 and {MOST_MINUTES}");
    for scenario in arguments.scenario.scenarios() {
        let storm = storm::run(scenario, nodes, minutes, arguments.seed);
        match arguments.output {
            Format::Json => println!("{}", serde_json::to_string(&storm)?),
            Format::Text => println!("{}", table::of(&storm)),
        }
    }
    Ok(())
}
