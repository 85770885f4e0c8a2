//! `fleetpull pull`

use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use contract::messages::pull_coordinator::PullPolicy;
use contract::{NodeName, PodRef};
use image::Platform;

use super::groups::{FleetArgs, LogArgs, OutputArgs, RegistryArgs, RuntimeArgs, SettingsArgs};
use super::image::image;
use super::pod::pod;
use super::share::{Parallelism, Percentage};
use crate::completion;

const EXAMPLES: &str = "\
Examples:
  fleetpull pull busybox                             into this user's store
  fleetpull pull busybox alpine:3.20 --store ./img   two images into ./img
  fleetpull pull app:v2 --runtime cri                through containerd or CRI-O
  fleetpull pull app:v2 --node n1 --node n2 --nats nats://nats:4222
  fleetpull pull app:v2 --all-nodes --nats nats://nats:4222 -o json
  fleetpull pull app:v2 -l zone=a --canary 3 --parallelism 25%
  fleetpull pull app:v2 -l 'zone in (a, b),!edge'    labels as with kubectl
  fleetpull pull app:v2 --all-nodes --wait 30m       until it is there
  fleetpull pull app:v2 --all-nodes --wait 2h --detach
  fleetpull pull app:v2 --all-nodes --dry-run        where it is, what to fetch
  fleetpull pull app:v2 --agent unix:///var/lib/fleetpull/state/n1/agent.sock

Without --node, --all-nodes, --selector or --agent the whole job is done in this
process.
The policy defaults as in Kubernetes: Always for the tag `latest`, else
IfNotPresent. Durations need a unit: 30s, 5m.

On many nodes, after a failure that every node would have (not_found, denied,
content_invalid, signature_invalid), no further node begins; with --wait further
nodes wait until one node has the image.
With --wait each agent keeps a standing pull, also when this command is killed;
Ctrl-C withdraws the standing pulls, a second Ctrl-C leaves them. The same
command with --detach joins the standing pull of each node (same image, pod,
platform and policy), which then stands for the longer of both times.
`fleetpull pulls` lists standing pulls, `fleetpull cancel` ends them.

Facts go to stdout (with -o json one object a line for each image and node),
progress and advice to stderr.

Exit status: 0 all there; 1 failed; 2 wrong usage; 3 some there, some not;
4 all in back-off; 5 out of time.";

/// Make sure that images are there, on this node or on others.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PullArgs {
    /// What to pull: busybox, app:v2, registry.example/team/app@sha256:..., also as docker://registry.example/team/app:v2.
    #[arg(required = true, value_name = "IMAGE", value_parser = image)]
    pub images: Vec<String>,
    /// When to ask the registry: Always, IfNotPresent or Never.
    #[arg(long, value_name = "POLICY", value_parser = policy(), hide_possible_values = true, ignore_case = true)]
    pub policy: Option<PullPolicy>,
    /// Which platform of an image: os/arch[/variant] [default: the node's own].
    #[arg(long, value_name = "OS/ARCH")]
    pub platform: Option<Platform>,
    /// On whose behalf: the back-off is the pod's own. Without it all callers on a node are one nameless pod.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pod)]
    pub pod: Option<PodRef>,
    /// How long to wait for an answer. Pulls that run on other nodes go on if another caller wants them.
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true, conflicts_with = "wait")]
    pub timeout: Option<Duration>,
    /// Keep a standing pull until the image is there, through failures and back-offs, but no longer than this.
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub wait: Option<Duration>,
    /// On this node of the fleet; may be given several times.
    #[arg(long = "node", value_name = "NAME", conflicts_with_all = ["all_nodes", "selector"], add = completion::nodes())]
    pub nodes: Vec<NodeName>,
    /// On every node of the fleet; one that is known and does not answer has its row too, and with --wait is asked until it does.
    #[arg(long)]
    pub all_nodes: bool,
    /// How a job on many nodes goes.
    #[command(flatten)]
    pub many: FleetPullArgs,
    /// Output.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Runtime.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
    /// Registry.
    #[command(flatten)]
    pub registry: RegistryArgs,
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

/// How a job on many nodes goes.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Many nodes")]
pub struct FleetPullArgs {
    /// How many nodes pull at a time, or which part of them: 100, 25% [default: 100].
    #[arg(long, value_name = "N|P%", allow_hyphen_values = true)]
    pub parallelism: Option<Parallelism>,
    /// Pull on this number of nodes first. The others begin when all of these have the image, and not at all if one fails.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub canary: Option<u16>,
    /// Exit with status 0 if the image is there on at least this percentage of the nodes: 95%.
    #[arg(long, value_name = "P%")]
    pub success_threshold: Option<Percentage>,
    /// Pull nothing: print which nodes have it, what would happen on each and how many bytes it would fetch. For that, one node of each
    /// platform asks the registry for the manifest.
    #[arg(long, conflicts_with_all = ["wait", "detach"])]
    pub dry_run: bool,
    /// Leave the standing pulls with the agents, print their ids and end.
    #[arg(long, requires = "wait", conflicts_with = "canary")]
    pub detach: bool,
}

impl FleetPullArgs {
    /// True if any of these options was given: the command needs nodes then.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.parallelism.is_some() || self.canary.is_some() || self.success_threshold.is_some() || self.dry_run || self.detach
    }
}

impl PullArgs {
    /// True if agents pull the image, not this process.
    #[must_use]
    pub fn has_target(&self) -> bool {
        self.all_nodes || !self.nodes.is_empty() || self.fleet.agent.is_some() || self.fleet.selector.is_some()
    }
}

/// Lists the values in completions.
pub(super) fn policy() -> impl TypedValueParser<Value = PullPolicy> {
    let all = [PullPolicy::Always, PullPolicy::IfNotPresent, PullPolicy::Never];
    PossibleValuesParser::new(all.map(|policy| policy.as_str())).try_map(|text| text.parse::<PullPolicy>())
}

/// The longest duration that a flag takes, about a century. Times are added to it, which must not overflow.
const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 3_600);

/// A duration with a unit, longer than zero and at most [`LONGEST`].
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let advice = "a duration needs a unit, like 500ms, 30s, 5m or 1h30m";
    if text.chars().all(|character| character.is_ascii_digit()) {
        return Err(advice.to_owned());
    }
    match humantime::parse_duration(text) {
        Ok(duration) if duration.is_zero() => Err("it must be longer than nothing".to_owned()),
        Ok(duration) if duration > LONGEST => Err("it must be at most 36500 days".to_owned()),
        Ok(duration) => Ok(duration),
        Err(_) => Err(advice.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!([duration("1m30s"), duration("36500d")], [Ok(Duration::from_secs(90)), Ok(LONGEST)]);
        for wrong in ["30", "", "0s", "-1s", "5 lightyears", "999999999999999999999h", "36501d", "18446744073709551615s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
