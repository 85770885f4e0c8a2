//! `fleetpull nats-setup`

use std::path::PathBuf;

use clap::Args;
use contract::NodeName;

use super::groups::{Flag, LogArgs, NatsArgs, OutputArgs, SettingsArgs};

/// Make the fleet's buckets on the NATS server, or its accounts (--accounts).
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  fleetpull nats-setup --nats nats://nats:4222 --nats-nkey setup.nk
  fleetpull nats-setup --dry-run -o json               what would be done
  fleetpull nats-setup --replicas 1                    for two servers
  fleetpull nats-setup --accounts nats --node n1 --node n2 --operator ann

Run it once for each fleet, with the login `setup` of its accounts, and again
after an upgrade of Fleetpull or when a cluster has grown to three servers.
Buckets that are as agents need them are left alone. What differs is shown, and
changed unless stored values may be lost by it: then --force changes it.

If agents may make buckets themselves, this command is not needed.

With --accounts DIR it asks no server. It writes, for the users that are named:
  DIR/accounts.conf            who may do what: a node publishes only as itself
  DIR/nats-server.conf         a server with TLS that includes it; then yours
  DIR/seeds/NAME.nk            the user's secret key, mode 0600
  DIR/nats/context/NAME.json   how NAME connects (fleetpull --nats-context NAME)
Roles: node (an agent), operator (everything), puller (asks nodes to pull, and
sees everything), viewer (sees everything). Users `setup` (makes buckets) and
`system` (the server's own reports) are always there.
To add a user, run it again with all users and --force: seeds that are there
stay, so no other user is locked out. To replace a key, remove its seed first.

Exit status: 1 when a bucket is missing or not as agents need it, or a file is
there that would be changed.")]
pub struct NatsSetupArgs {
    /// Change nothing; show what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Also change what may lose stored values, or what an operator has set on purpose.
    #[arg(long)]
    pub force: bool,
    /// On how many servers each bucket is kept [default: three of a cluster, or as many as it is kept on if that is more].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=5), conflicts_with = "directory")]
    pub replicas: Option<u64>,
    /// Accounts.
    #[command(flatten)]
    pub accounts: AccountsArgs,
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

/// Accounts for a fleet, written into a folder.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Accounts")]
pub struct AccountsArgs {
    /// Write the server's accounts, and each user's key and context, into this folder; ask no server.
    #[arg(long = "accounts", id = "directory", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// A node; may be given several times.
    #[arg(long = "node", value_name = "NAME", requires = "directory", help_heading = "Accounts")]
    pub nodes: Vec<NodeName>,
    /// An operator: may send every request to nodes.
    #[arg(long = "operator", value_name = "NAME", requires = "directory")]
    pub operators: Vec<NodeName>,
    /// A user who may see everything and ask nodes to pull.
    #[arg(long = "puller", value_name = "NAME", requires = "directory")]
    pub pullers: Vec<NodeName>,
    /// A user who may see everything, and change nothing.
    #[arg(long = "viewer", value_name = "NAME", requires = "directory")]
    pub viewers: Vec<NodeName>,
    /// More users, from a file with `ROLE NAME` a line; - is stdin.
    #[arg(long, value_name = "FILE", requires = "directory")]
    pub users: Option<PathBuf>,
    /// Where the seeds will lie on the users' machines, for their contexts [default: DIR/seeds].
    #[arg(long, value_name = "DIR", requires = "directory")]
    pub seeds_at: Option<PathBuf>,
    /// Let `fleetpull nats-auth` identify clients without a key: adds its login, and the key that it signs with.
    #[arg(long, requires = "directory")]
    pub auth_callout: bool,
    /// PEM: the server's certificate, as the server finds it [default: /etc/nats/server.pem].
    #[arg(long, value_name = "FILE", requires = "directory")]
    pub server_cert: Option<PathBuf>,
    /// PEM: the key of the server's certificate [default: /etc/nats/server.key].
    #[arg(long, value_name = "FILE", requires = "directory")]
    pub server_key: Option<PathBuf>,
    /// PEM: the authority of client certificates; each client must show one then.
    #[arg(long, value_name = "FILE", requires = "directory")]
    pub client_ca: Option<PathBuf>,
    /// Where the server stores [default: /var/lib/nats].
    #[arg(long, value_name = "DIR", requires = "directory")]
    pub server_store: Option<PathBuf>,
    /// Where the server listens [default: 0.0.0.0:4222].
    #[arg(long, value_name = "HOST:PORT", requires = "directory")]
    pub listen: Option<String>,
}

impl NatsSetupArgs {
    /// The options as settings.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        [self.nats.flags(), self.log.flags()].concat()
    }
}
