//! The benchmarks: each compares Fleetpull with a reference, in one run, both sides in turn.
//!
//! Figures go to stdout, whether they meet their bar or not; progress goes to stderr. The exit status says whether everything could be
//! measured and every bar is met. `cargo xtask bench` builds the programs and runs this.

mod agent;
mod alternate;
mod collector;
mod embedded_pull;
mod events;
mod figure;
mod idle;
mod node;
mod present;
mod present_cri;
mod present_nats;
mod process;
mod program;
mod propagation;
mod reconnect;
mod recorder;
mod registry;
mod report;
mod status;
mod traces;
mod waiting;
mod week;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use figure::Figure;
use propagation::Propagation;
use report::{Format, Report};

/// Measures Fleetpull, compared with the reference.
///
/// Wants an otherwise idle machine. Exit status: 0 every bar is met; 1 one is missed (NO in the table, `"met": false` in JSON), or
/// something could not be measured; 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    /// Which benchmarks; all if none is named.
    #[arg(value_enum, value_name = "NAME")]
    names: Vec<Name>,
    /// How figures are written to stdout. `json` is one object a line and nothing else.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// How long `collector` watches its three agents, and how long the bus is lost in `reconnect`, in seconds; 600 are the ten minutes that
    /// are promised.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// How many agents lose their bus in `reconnect`, each with a connection of its own, and how many nodes answer in `status`. Usually
    /// 5,000 and 10,000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=20_000))]
    nodes: Option<u32>,
    /// How many pulls wait while `waiting` measures others; the last is compared with the first.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_values_t = waiting::USUAL)]
    waiting: Vec<usize>,
}

/// The benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Pull an image of 1 GB from docker-registry on loopback, compared with skopeo copy.
    EmbeddedPull,
    /// Pull a present image through the actors, in process.
    Present,
    /// The same with every message over NATS, compared with bare round trips.
    PresentNats,
    /// The same in front of a CRI runtime, compared with the bare call.
    PresentCri,
    /// What an agent with nothing to do costs.
    Idle,
    /// Events from record to the stream's acknowledgement, compared with a bare JetStream publisher.
    Events,
    /// What the recorder adds to a pull of a present image, compared with none.
    Recorder,
    /// What a pull costs an agent while 20 to 2,000 others wait on its node.
    Waiting,
    /// What the export of traces costs an agent, compared with none.
    Traces,
    /// An agent whose collector is absent or hangs, compared with one whose collector is there.
    Collector,
    /// A week of 5,000 nodes that are replaced daily: what the stream holds.
    Week,
    /// How soon 1,000 replicas go by what one node found out, compared with a bare fan-out.
    Propagation,
    /// What 5,000 agents that met an outage without a bus report when the bus is back.
    Reconnect,
    /// What `fleetpull status` of 10,000 nodes costs the command, and an agent while the screen is watched.
    Status,
}

/// The result of a benchmark.
enum Found {
    Figures(Vec<Figure>),
    /// A result with a form of its own.
    Propagation(Propagation),
}

impl Name {
    fn as_str(self) -> &'static str {
        match self {
            Self::EmbeddedPull => "embedded-pull",
            Self::Present => "present",
            Self::PresentNats => "present-nats",
            Self::PresentCri => "present-cri",
            Self::Idle => "idle",
            Self::Events => "events",
            Self::Recorder => "recorder",
            Self::Waiting => "waiting",
            Self::Traces => "traces",
            Self::Collector => "collector",
            Self::Week => "week",
            Self::Propagation => "propagation",
            Self::Reconnect => "reconnect",
            Self::Status => "status",
        }
    }

    async fn measure(self, arguments: &Arguments) -> Result<Found> {
        Ok(Found::Figures(match self {
            Self::EmbeddedPull => embedded_pull::measure().await?,
            Self::Present => present::measure().await?,
            Self::PresentNats => present_nats::measure().await?,
            Self::PresentCri => present_cri::measure().await?,
            Self::Idle => idle::measure().await?,
            Self::Events => events::measure().await?,
            Self::Recorder => recorder::measure().await?,
            Self::Waiting => waiting::measure(&arguments.waiting).await?,
            Self::Traces => traces::measure().await?,
            Self::Collector => collector::measure(Duration::from_secs(arguments.seconds)).await?,
            Self::Week => week::measure().await?,
            Self::Propagation => return Ok(Found::Propagation(propagation::measure().await?)),
            Self::Reconnect => reconnect::measure(arguments.nodes.unwrap_or(5_000), Duration::from_secs(arguments.seconds)).await?,
            Self::Status => status::measure(arguments.nodes.unwrap_or(10_000)).await?,
        }))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if cfg!(debug_assertions) {
        report::remark("this is a debug build, whose figures mean nothing: run `cargo xtask bench`");
    }
    let names = if arguments.names.is_empty() { Name::value_variants().to_vec() } else { arguments.names.clone() };
    let mut report = Report::new(arguments.output);
    let mut unmeasured = 0;
    for name in names {
        report::remark(&format!("{} ...", name.as_str()));
        // Each benchmark has a system of its own, so that no task of it runs during the next.
        match actix::System::new().block_on(name.measure(&arguments)) {
            Ok(Found::Figures(figures)) => report.add(name.as_str(), figures),
            Ok(Found::Propagation(propagation)) => report.add_propagation(name.as_str(), &propagation),
            Err(error) => {
                report::remark(&format!("{} could not be measured: {error:#}", name.as_str()));
                unmeasured += 1;
            }
        }
    }
    let missed = report.finish();
    if missed > 0 {
        report::remark(&format!("{missed} of the bars missed: on a machine with other work this means little"));
    }
    if missed + unmeasured == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
