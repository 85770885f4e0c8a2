//! The command line.

mod backoff;
mod groups;
mod image;
mod list;
mod nats_auth;
mod nats_setup;
mod pod;
mod policy;
mod pull;
mod queries;
mod report;
mod run;
mod selector;
mod share;
mod status;
mod store;

use std::ffi::OsStr;
use std::path::Path;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::CompleteEnv;

pub use backoff::{
    BackoffArgs, BackoffClearArgs, BackoffCommand, BackoffExplainArgs, BackoffListArgs, BackoffPauseArgs, BackoffResumeArgs, BudgetArgs,
    BudgetCommand, BudgetListArgs,
};
pub use groups::{
    FleetArgs, Format, LogArgs, NatsArgs, NodesQuestionArgs, OutputArgs, OutputFormat, QuestionArgs, RegistryArgs, RuntimeArgs,
    SettingsArgs,
};
pub use list::{ColourChoice, ListArgs, ListFormat, TableArgs};
pub use nats_auth::NatsAuthArgs;
pub use nats_setup::{AccountsArgs, NatsSetupArgs};
pub use policy::{PolicyArgs, PolicyCommand, PolicyDiffArgs, PolicyGetArgs, PolicySetArgs};
pub use pull::{FleetPullArgs, PullArgs};
pub use queries::{
    CancelArgs, CompletionsArgs, ConfigArgs, ConfigCommand, ConfigSources, DemoArgs, EventsArgs, ExplainArgs, Moment, NodesArgs, PullsArgs,
};
pub use report::ReportArgs;
pub use run::RunArgs;
pub use selector::Selector;
pub use share::{Parallelism, Percentage};
pub use status::StatusArgs;
pub use store::{ImagesArgs, PruneArgs, RmArgs, StoreArgs};

use crate::completion;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

/// Pulls container images on one node or on a whole fleet, and lets the nodes learn from each other.
///
/// Without anything installed, `fleetpull pull` fetches images into a folder by itself. With a NATS server, `fleetpull run`
/// on every node makes a fleet of them: `fleetpull pull --all-nodes`, `fleetpull events --follow`, `fleetpull nodes`.
#[derive(Debug, Parser)]
#[command(name = "fleetpull", version, styles = STYLES, arg_required_else_help = true, max_term_width = HELP_WIDTH, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  fleetpull demo                                   see it work
  fleetpull pull busybox --store ./images          pull one image into ./images
  fleetpull run --nats nats://nats:4222            be this node's agent
  fleetpull pull --all-nodes app:v2 --nats ...     pull on all nodes
  fleetpull status                                 all problems, worst first
  fleetpull explain app:v2                         why an image is not there

`fleetpull COMMAND --help` says more, with examples.

Exit status: 0 all there; 1 failed; 2 wrong usage; 3 some there, some not;
4 all in back-off; 5 out of time.";

/// The width of help, in columns, on a wider terminal and without one.
const HELP_WIDTH: usize = 80;

/// The name that kubectl gives its plugin `kubectl-fleetpull`.
const PLUGIN: &str = "kubectl fleetpull";

impl Cli {
    /// Reads the arguments of this process, and ends it if they are wrong.
    #[must_use]
    pub fn of_process() -> Self {
        // A shell also runs this program to complete a word.
        CompleteEnv::with_factory(Self::command).var(completion::VARIABLE).complete();
        let called = std::env::args_os().next().unwrap_or_default();
        let read = command_called(&called).try_get_matches().and_then(|matches| Self::from_arg_matches(&matches));
        read.unwrap_or_else(|error| error.exit())
    }
}

/// The command line under the program's name: if kubectl runs `kubectl-fleetpull`, the user typed `kubectl fleetpull`.
fn command_called(program: &OsStr) -> clap::Command {
    let is_plugin = Path::new(program).file_stem().is_some_and(|name| name.to_string_lossy().replace('-', " ") == PLUGIN);
    if is_plugin { Cli::command().bin_name(PLUGIN) } else { Cli::command() }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make sure that images are there, on this node or on others.
    Pull(PullArgs),
    /// List the images of this machine's store or runtime, or of nodes of the fleet.
    Images(ImagesArgs),
    /// Remove images from the embedded store.
    Rm(RmArgs),
    /// Remove the blobs that no image of the embedded store needs, and old images if asked.
    Prune(PruneArgs),
    /// Run the agent on this node: take requests from the fleet and from this machine.
    #[command(visible_alias = "agent")]
    Run(RunArgs),
    /// Show what happened: the events that agents keep, or new ones as they come.
    Events(EventsArgs),
    /// Sum up the fleet's events: pulls, requests saved, waits, the worst images and nodes.
    Report(ReportArgs),
    /// Show the fleet's problems on one screen, the worst first.
    Status(StatusArgs),
    /// Explain why an image, a pod or a row of `status` waits.
    Explain(ExplainArgs),
    /// List nodes, or describe one node.
    Nodes(NodesArgs),
    /// List running, queued and standing pulls of every node.
    Pulls(PullsArgs),
    /// End standing pulls: `pull --wait` and `pull --detach` leave them with the agents.
    Cancel(CancelArgs),
    /// List, explain or clear back-off entries, or pause sharing.
    Backoff(BackoffArgs),
    /// List the fleet's budgets: rate and quota of each registry.
    Budget(BudgetArgs),
    /// Read or write the fleet policy: how the fleet shares, and its caps.
    Policy(PolicyArgs),
    /// Make the fleet's buckets on the NATS server, or its accounts (--accounts).
    NatsSetup(NatsSetupArgs),
    /// Log clients in to NATS servers by a service-account token or a client certificate (auth callout).
    NatsAuth(NatsAuthArgs),
    /// Print or check the settings.
    Config(ConfigArgs),
    /// See the main job with nothing installed: a small registry and three nodes in this process.
    Demo(DemoArgs),
    /// Print completions for a shell.
    Completions(CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_events_names_every_reason() {
        let mut command = command_called(OsStr::new("fleetpull"));
        let help = command.find_subcommand_mut("events").expect("a command").render_long_help().to_string();
        for reason in contract::EventReason::ALL {
            assert!(help.contains(reason.as_str()), "{reason:?}");
        }
    }

    #[test]
    fn help_has_statements_and_no_questions() {
        let mut whole = command_called(OsStr::new("fleetpull"));
        whole.build();
        let mut commands = vec![whole];
        while let Some(mut command) = commands.pop() {
            let help = command.render_long_help().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            for question in ["?", "what is ", "What is "] {
                assert!(!help.contains(question), "{question:?} in {help}");
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn a_pause_of_all_registries_is_ended_as_it_was_begun() {
        let accepts = |rest: &[&str]| {
            let words = [&["fleetpull", "backoff"][..], rest].concat();
            command_called(OsStr::new("fleetpull")).try_get_matches_from(words).is_ok()
        };
        assert!(accepts(&["pause", "--all"]) && accepts(&["resume", "--all"]) && accepts(&["resume"]));
        assert!(!accepts(&["resume", "--all", "--registry", "r.example"]), "one of both");
    }

    #[test]
    fn a_plugin_of_kubectl_is_called_so_in_its_help() {
        for (program, usage) in [
            ("fleetpull", "Usage: fleetpull status [OPTIONS]"),
            ("/usr/bin/fleetpull", "Usage: fleetpull status [OPTIONS]"),
            ("/usr/bin/kubectl-fleetpull", "Usage: kubectl fleetpull status [OPTIONS]"),
            ("kubectl-fleetpull.exe", "Usage: kubectl fleetpull status [OPTIONS]"),
        ] {
            let help = command_called(OsStr::new(program)).try_get_matches_from([program, "status", "--help"]);
            let help = help.expect_err("help ends the program").to_string();
            assert!(help.contains(usage), "{program}: {help}");
        }
    }
}
