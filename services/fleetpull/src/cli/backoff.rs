//! `fleetpull backoff` and `fleetpull budget`: show and overrule the fleet's back-off entries, and show its budgets.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::groups::{NodesQuestionArgs, QuestionArgs};
use super::image::image;
use super::list::{ListArgs, ListFormat};
use super::pull::duration;
use crate::completion;

/// Show and overrule back-off entries.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull backoff list --nats nats://nats:4222
  fleetpull backoff explain app:v2   why it waits, and which node found it
  fleetpull backoff clear app:v2     it was pushed: ask again now
  fleetpull backoff pause --registry registry.example --for 15m
  fleetpull backoff resume

When one node finds out that a tag is missing or a registry is down, the others
wait instead of asking too; one of them probes. A pause lets every node ask by
its own back-off alone.")]
pub struct BackoffArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BackoffCommand,
}

/// What `backoff` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum BackoffCommand {
    /// List back-off entries: a shared one once, with the number of nodes that know it, and each node's own.
    List(BackoffListArgs),
    /// Explain back-off entries: the cause, since when, which node found it, the next attempt, its prober and the view of the registry.
    Explain(BackoffExplainArgs),
    /// Clear the back-off of an image, or one entry, in the whole fleet.
    Clear(BackoffClearArgs),
    /// Pause sharing: for a while no node is refused by reports of others.
    Pause(BackoffPauseArgs),
    /// End a pause.
    Resume(BackoffResumeArgs),
}

/// List back-off entries.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull backoff list --nats nats://nats:4222
  fleetpull backoff list -l zone=a -o json         as the nodes of zone a see it
  fleetpull backoff list --registry registry.example --limit 1000
  fleetpull backoff list -o wide                   keys, views, reporters
  fleetpull backoff list --watch --sort-by since
  fleetpull backoff list --agent unix:///var/lib/fleetpull/state/n1/agent.sock

NODES is the number of nodes that know an entry; `status` counts the nodes that
wait for it. BY is the node that probes for all, or the node whose own back-off
it is. With -o wide, KEY names the entry in `backoff explain` and `backoff
clear` (its beginning is enough; -o name prints it alone), BINDS is the nodes
that it holds back (everybody; unconfirmed: the one node that reports it, until
another confirms it; its reporters alone, until other nodes report the same; or
this node), and VIEW is the scope and the route to the registry: nodes with
another view know nothing of it. With -o json each line has a kind: entry,
budget, pause, or node for one that does not share as usual or is silent.

Exit status: 1 when a node did not answer.")]
pub struct BackoffListArgs {
    /// Only of this registry, as images name it: registry.example, localhost:5000.
    #[arg(long, value_name = "REGISTRY")]
    pub registry: Option<String>,
    /// At most this number of entries of each node, the shared ones first. The number of others is printed.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000), default_value_t = 200)]
    pub limit: u16,
    /// How the list is shown.
    #[command(flatten)]
    pub list: ListArgs,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub asked: NodesQuestionArgs<ListFormat>,
}

/// Explain back-off entries.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull backoff explain app:v2 --nats nats://nats:4222
  fleetpull backoff explain 316e2d02            the beginning of a key is enough
  fleetpull backoff explain 7f3a                a row of `fleetpull status`

Exit status: 1 when nothing holds it back, or a node did not answer.")]
pub struct BackoffExplainArgs {
    /// An image, a key as `backoff list -o wide` shows it (its beginning is enough), or an ID of `status`.
    #[arg(value_name = "KEY|IMAGE", value_parser = image, add = completion::images_of_fleet())]
    pub what: String,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub asked: NodesQuestionArgs,
}

/// Clear a back-off.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull backoff clear app:v2 --nats nats://nats:4222
  fleetpull backoff clear 316e2d02   the beginning of a key
  fleetpull backoff clear 7f3a       a row of `fleetpull status`

The nodes' own back-off for the image is cleared too; waiting pulls continue
inside the registry's budget. What still holds the image back is printed. The ID
of a used-up quota in `status` makes nodes forget the quota; the next pull shows
what the registry counts.

A clear is for the whole fleet: --node and -l only select the nodes that are
asked for entries. It is an event: `fleetpull events --reason BackoffCleared`
shows who cleared what and when.

One image or entry is cleared at a time. For a whole registry, list its keys:
  fleetpull backoff list --registry registry.example -o name
and pipe them into: xargs -d '\\n' -n 1 fleetpull backoff clear

Exit status: 1 when nothing matched (then other entries are listed), something
is not cleared or is still blocked, or a node did not answer.")]
pub struct BackoffClearArgs {
    /// An image, a key as `backoff list -o wide` shows it (its beginning is enough), or an ID of `status`.
    #[arg(value_name = "KEY|IMAGE", value_parser = image, add = completion::images_of_fleet())]
    pub what: String,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub asked: NodesQuestionArgs,
}

/// Pause sharing: for a while no node is refused by reports of others.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull backoff pause --registry registry.example --for 15m
  fleetpull backoff pause --all --nats nats://nats:4222           for 30 minutes

It reaches every agent as fast as reports do (so -l is refused), survives
restarts, and ends by itself. If it is sent to one agent without a bus
(--agent), it holds there at once and for the others when the bus is back.
`backoff list` shows who paused and for how much longer; `fleetpull events
--reason SharingPaused` lists past pauses.")]
#[command(group = clap::ArgGroup::new("paused").args(["registry", "all"]).required(true))]
pub struct BackoffPauseArgs {
    /// Of this registry alone, as images name it: registry.example, localhost:5000.
    #[arg(long, value_name = "REGISTRY")]
    pub registry: Option<String>,
    /// Of all registries.
    #[arg(long)]
    pub all: bool,
    /// For how long.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, default_value = "30m")]
    pub lasting: Duration,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub question: QuestionArgs,
}

/// End a pause.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull backoff resume --all --nats nats://nats:4222
  fleetpull backoff resume --registry registry.example

Exit status: 1 when nothing of that kind is paused.")]
pub struct BackoffResumeArgs {
    /// The pause of this registry [default: the pause of all].
    #[arg(long, value_name = "REGISTRY")]
    pub registry: Option<String>,
    /// The pause of all registries, which is the default; pauses of single registries stay.
    #[arg(long, conflicts_with = "registry")]
    pub all: bool,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub question: QuestionArgs,
}

/// Show the fleet's budgets.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull budget list --nats nats://nats:4222
  fleetpull budget list -o json

A registry counts pulls by login or by address: all nodes that it counts as one
share a budget, which one node leads and hands out.")]
pub struct BudgetArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BudgetCommand,
}

/// What `budget` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum BudgetCommand {
    /// List the budgets that nodes know: pulls a second, pulls at once, quota windows, and who leads each.
    List(BudgetListArgs),
}

/// List the budgets that nodes know.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull budget list --nats nats://nats:4222
  fleetpull budget list -o wide                why a rate is low, address, route
  fleetpull budget list --watch --sort-by resets
  fleetpull budget list --agent unix:///var/lib/fleetpull/state/n1/agent.sock

RATE is the rate in force and CAP the most, in pulls a second; QUOTA, LEFT and
RESETS are of the window of which the least is left, as the registry reports it.
CAPS BY is `policy` if the cap is the fleet policy's (`fleetpull policy get`),
or `settings` if it is the median of the nodes' settings. WAITING and OUT count
the pulls of the fleet that wait and run, or of the nodes that answered if none
of these leads the budget. Nodes that use lower caps or another policy than the
leader are named; with -o json they are `differences`.

Exit status: 1 when a node did not answer.")]
pub struct BudgetListArgs {
    /// How the list is shown.
    #[command(flatten)]
    pub list: ListArgs,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub asked: NodesQuestionArgs<ListFormat>,
}
