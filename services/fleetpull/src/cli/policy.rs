//! `fleetpull policy`: operators' rules for the whole fleet.

use clap::{Args, Subcommand};

use super::groups::QuestionArgs;

/// The fleet policy: what every node keeps to, in one document on the bus.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull policy get --nats nats://nats:4222 > policy.toml
  fleetpull policy diff policy.toml --nats nats://nats:4222
  fleetpull policy set policy.toml --nats nats://nats:4222

The document is TOML, or the same as JSON:
  share = \"observe\"            # or enforce: no node goes further
  [budget]                     # every registry, for each login and address
  pulls_per_second = 200
  [registry.\"docker.io\"]       # one registry; its values go before those above
  pulls_per_second = 5
  pulls_at_once = 20

Where it sets no value, the median of the nodes' settings applies
(budget.pulls_per_second, budget.pulls_at_once), and each node's own
fleet.share. A node whose own settings are lower keeps to them, for itself
alone: lower caps; for share, off is lower than observe, and observe lower than
enforce. Nodes use a new policy within a second, and keep the last one they read
while the bus is lost; `fleetpull budget list` shows which caps are the policy's
and which nodes differ. For minutes rather than for good: `fleetpull backoff
pause`.")]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// What `policy` can do.
#[derive(Clone, Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the policy, as `policy set` takes it.
    Get(PolicyGetArgs),
    /// Replace the policy by a document, and print what that changes.
    Set(PolicySetArgs),
    /// Print what `policy set` would change.
    Diff(PolicyDiffArgs),
}

/// Print the policy.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull policy get --nats nats://nats:4222
  fleetpull policy get -o json

The first lines are comments: revision, age and author. With -o json these are
fields next to `policy`; revision 0 means that no policy was set.")]
pub struct PolicyGetArgs {
    /// Where the fleet is, and how facts are written.
    #[command(flatten)]
    pub question: QuestionArgs,
}

/// Replace the policy.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull policy set policy.toml --dry-run
  fleetpull policy set policy.toml --if-revision 7
  fleetpull policy set -                         the document comes from stdin
  fleetpull policy set /dev/null                 without caps of the fleet

The document replaces the one before as a whole. If the policy changes while
this command runs, or is not at the revision of --if-revision, nothing is
written, so that no other user's change is lost.

It takes a NATS login of the role operator (deploy/nats/accounts.conf).

Exit status: 1 when another user changed the policy, or it is not stored;
2 when the document is no policy.")]
pub struct PolicySetArgs {
    /// The document, or - for stdin.
    #[arg(value_name = "FILE|-")]
    pub file: String,
    /// Print what would change, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Only if the policy is at this revision, as `policy get` prints it; 0: only if none was set.
    #[arg(long, value_name = "N")]
    pub if_revision: Option<u64>,
    /// Where the fleet is, and how facts are written.
    #[command(flatten)]
    pub question: QuestionArgs,
}

/// Print what `policy set` would change.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull policy diff policy.toml --nats nats://nats:4222
  fleetpull policy diff - -o json < policy.toml

Exit status: 0 when nothing would change, 1 when something would;
2 when the document is no policy.")]
pub struct PolicyDiffArgs {
    /// The document, or - for stdin.
    #[arg(value_name = "FILE|-")]
    pub file: String,
    /// Where the fleet is, and how facts are written.
    #[command(flatten)]
    pub question: QuestionArgs,
}
