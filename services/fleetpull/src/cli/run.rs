//! `fleetpull run`

use std::path::PathBuf;

use clap::Args;

use super::groups::{Flag, LogArgs, NatsArgs, RuntimeArgs, SettingsArgs};

const EXAMPLES: &str = "\
Examples:
  fleetpull run                                        alone, on this machine
  fleetpull run --nats nats://nats:4222 --runtime cri  through containerd
  fleetpull run --node n1 --store ./n1 --nats ...      several on one machine

It runs until SIGTERM or Ctrl-C. When the bus is lost it goes on alone and logs
it; it stays ready.

Its first line names the socket on which it answers this machine:
`fleetpull nodes --agent unix://PATH`.";

/// Run the agent on this node.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArgs {
    /// The node's name in the fleet [default: the host's].
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// A label of the node; may be given several times.
    #[arg(long = "label", value_name = "K=V")]
    pub labels: Vec<String>,
    /// Where the agent keeps its lock, its socket and its standing pulls [default: below the store, named after the node].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
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

impl RunArgs {
    /// The options as settings.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        let mut flags = [self.runtime.flags(), self.nats.flags(), self.log.flags()].concat();
        flags.extend(self.node.iter().map(|name| ("node.name".to_owned(), name.clone())));
        flags.extend(self.labels.iter().map(|label| ("node.labels".to_owned(), label.clone())));
        flags.extend(self.state_dir.iter().map(|dir| ("state.dir".to_owned(), dir.to_string_lossy().into_owned())));
        flags
    }
}
