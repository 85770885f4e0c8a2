//! The commands that ask: events, explain, nodes, pulls, config, demo, completions.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;
use contract::messages::pull_coordinator::PullPolicy;
use contract::{EventReason, NodeName};

use super::groups::{FleetArgs, LogArgs, OutputArgs, RuntimeArgs, SettingsArgs};

/// Show what happened.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull events --nats nats://nats:4222            what agents keep, oldest first
  fleetpull events --follow --reason Failed -o json   new failures as they come
  fleetpull events --agent unix:///var/lib/fleetpull/state/n1/agent.sock

Anyone with a plain NATS client reads the same: nats sub 'fleetpull.v1.evt.>'")]
pub struct EventsArgs {
    /// Only new ones, as they come, until Ctrl-C.
    #[arg(short, long)]
    pub follow: bool,
    /// Only of this node.
    #[arg(long, value_name = "NAME", conflicts_with = "selector")]
    pub node: Option<NodeName>,
    /// Only with this reason: Pulling, Pulled, BackOff, Failed, InspectFailed or ErrImageNeverPull.
    #[arg(long, value_name = "REASON")]
    pub reason: Option<EventReason>,
    /// Only of this image, as it was asked for.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Fleet.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Say how an image reference is read, and what would happen to a pull of it now.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull explain busybox                       how it is read; is it here?
  fleetpull explain app:v2 --node n1 --nats ...   what would happen on n1

Exit status: 1 when the reference cannot be read.")]
pub struct ExplainArgs {
    /// The reference.
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// The policy to assume: Always, IfNotPresent or Never.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<PullPolicy>,
    /// What would happen on this node; may be given several times [default: every node that answers, or this process's store].
    #[arg(long = "node", value_name = "NAME", conflicts_with = "selector")]
    pub nodes: Vec<NodeName>,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Fleet.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// List the agents of the fleet, asked live.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull nodes --nats nats://nats:4222
  fleetpull nodes n1 --nats nats://nats:4222      all counters of n1")]
pub struct NodesArgs {
    /// Print all counters of this node.
    #[arg(value_name = "NAME", conflicts_with = "selector")]
    pub node: Option<NodeName>,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Fleet.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// List what is in flight and queued on every node.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull pulls --nats nats://nats:4222             on every node
  fleetpull pulls --node n1 --nats nats://nats:4222   on n1 alone
  fleetpull pulls --agent unix:///var/lib/fleetpull/state/n1/agent.sock")]
pub struct PullsArgs {
    /// Only of this node.
    #[arg(long, value_name = "NAME", conflicts_with = "selector")]
    pub node: Option<NodeName>,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Fleet.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Print or check the settings.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull config print                           what is in force, and why
  fleetpull config validate --config ./node.toml   everything that is wrong

A value comes from the first of: a flag, FLEETPULL_<KEY> in the environment
(FLEETPULL_STORE_FSYNC for store.fsync), the file, the default.")]
pub struct ConfigArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What `config` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every setting in force, each with where it came from.
    Print(ConfigSources),
    /// Check the settings and name everything that is wrong: file, key, and what is allowed.
    Validate(ConfigSources),
}

/// Where the settings come from.
#[derive(Clone, Debug, Args)]
pub struct ConfigSources {
    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// See the main job with nothing installed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull demo          a few seconds, nothing is left behind
  fleetpull demo --keep   the three stores are kept, to be looked at")]
pub struct DemoArgs {
    /// Keep the stores of the three nodes and say where they are.
    #[arg(long)]
    pub keep: bool,
}

/// Print completions for a shell.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull completions bash > /etc/bash_completion.d/fleetpull
  fleetpull completions zsh > ~/.zfunc/_fleetpull")]
pub struct CompletionsArgs {
    /// Which shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
    /// Write to this file instead of stdout.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}
