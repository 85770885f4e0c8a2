//! `fleetpull nats-setup`

use clap::Args;

use super::groups::{Flag, LogArgs, NatsArgs, OutputArgs, SettingsArgs};

/// Make the fleet's buckets on the NATS server, for agents that may not.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull nats-setup --nats nats://nats:4222 --nats-nkey setup.nk
  fleetpull nats-setup --dry-run -o json               what would be done
  fleetpull nats-setup --replicas 1                    in a cluster of two servers

Run it once for each fleet, with the login `setup` of deploy/nats/accounts.conf,
and again after an upgrade of Fleetpull or when a cluster has grown to three
servers. What is as agents need it is left alone. What differs is shown, and
changed if nothing is lost by it; else --force changes it.

Agents that may make buckets need none of this.

Exit status: 1 when a bucket is missing or not as agents need it.")]
pub struct NatsSetupArgs {
    /// Change nothing; show what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Also change what may lose stored values, or what an operator has set on purpose.
    #[arg(long)]
    pub force: bool,
    /// On how many servers each bucket is kept [default: three of a cluster, or as many as it is kept on if that is more].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=5))]
    pub replicas: Option<u64>,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// NATS.
    #[command(flatten)]
    pub nats: NatsArgs,
    /// Settings.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Log.
    #[command(flatten)]
    pub log: LogArgs,
}

impl NatsSetupArgs {
    /// As settings.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        [self.nats.flags(), self.log.flags()].concat()
    }
}
