//! `fleetpull status`: one screen for the engineer on call.

use clap::Args;

use super::groups::QuestionArgs;
use super::list::ColourChoice;

/// Show the fleet's problems on one screen.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull status --nats nats://nats:4222
  fleetpull status --watch                     refreshed every 2 s, until Ctrl-C
  fleetpull status -o json                     one object
  fleetpull status --agent unix:///var/lib/fleetpull/state/n1/agent.sock
  fleetpull explain 7f3a                       a row by its ID

The screen has at most 40 lines, whatever the size of the fleet. The worst row
is the first; nothing that is well has a row. WAITING counts the nodes that wait
with a pull or a standing pull, and their images. BUS counts the NATS servers
that hold the fleet's list of nodes, and says how long an agent takes to answer.
If the bus is lost, --agent shows what one node knows.

Exit status: 1 when a node that was asked did not answer.")]
pub struct StatusArgs {
    /// Refresh every 2 s, until Ctrl-C.
    #[arg(short, long)]
    pub watch: bool,
    /// Colours: auto (on a terminal, unless NO_COLOR is set), always or never.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, hide_possible_values = true)]
    pub color: ColourChoice,
    /// Which agents are asked, and the output format.
    #[command(flatten)]
    pub question: QuestionArgs,
}
