//! `fleetpull report`

use clap::Args;

use super::groups::NodesQuestionArgs;
use super::queries::{Moment, moment};

/// Sum up the fleet's events.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull report --nats nats://nats:4222        the last 7 days
  fleetpull report --since 1h --top 20 -o json    one object a line
  fleetpull report --since 2026-01-30T00:00:00Z --until 2026-01-31T00:00:00Z

How the figures come about:

PULLS counts events: of a pull that three pods wait for there are three. That an
image was there already is not stored, and not counted.

SPARED: a span begins with the first failure or refusal of an image for a pod on
a node. It ends with the pull that succeeds, else with the last refusal; 10
minutes without either end it too, as kubelet forgets a back-off then. Kubelet's
rule makes an attempt at its beginning and 10 s, 30 s, 70 s, 150 s, 310 s and
then every 300 s later, for each pod and node by itself. Attempts that were made
are the Failed events with a duration. Spared is the difference; below zero the
fleet has asked more often, as it does to notice that a registry is back. An
attempt is one request to a registry, or a few.

WAITS: `backoff` is the time from a first refusal to the pull that succeeded;
`slots` and `budget` are waits before a pull that have a Throttled event.
`other` is the rest: short waits for a slot, a budget, or another node's probe.
A median is exact to 3 %.

OBSERVED is what fleet.share = enforce would have refused: attempts that began
while a back-off entry was open and its next attempt not due. Those that failed
would have been refused rightly, those that pulled wrongly. A failure that one
node alone reports refuses no other: an entry counts from the second node's
failure on. Events contain neither the login nor the zone of an attempt, so a
node that an entry does not concern counts too.
Entries of a repository or login alone are counted and compared with nothing.
Where nodes enforce, it shows attempts during a pause, and those of nodes that
an entry does not concern.

Repeats of a failure are one event with a count: they are taken as spread evenly
over its time. More images, registries or nodes than 20,000: the least are one
row, (others), and a count may be too low by what was added to that row.")]
pub struct ReportArgs {
    /// What happened since then (2h, 7d, or a time as 2026-01-31T12:00:00Z).
    #[arg(long, value_name = "TIME", value_parser = moment, default_value = "7d")]
    pub since: Moment,
    /// Only what happened before that.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<Moment>,
    /// The number of images, registries and nodes that are listed, the worst first.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000), default_value = "5")]
    pub top: u32,
    /// Whose events, and how facts are written.
    #[command(flatten)]
    pub asked: NodesQuestionArgs,
}
