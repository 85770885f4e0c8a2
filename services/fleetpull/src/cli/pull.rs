//! `fleetpull pull`

use std::time::Duration;

use clap::Args;
use contract::messages::pull_coordinator::PullPolicy;
use contract::{NodeName, PodRef};
use image::Platform;

use super::groups::{FleetArgs, LogArgs, OutputArgs, RegistryArgs, RuntimeArgs, SettingsArgs};

const EXAMPLES: &str = "\
Examples:
  fleetpull pull busybox                             into this user's store
  fleetpull pull busybox alpine:3.20 --store ./img   two images into ./img
  fleetpull pull app:v2 --runtime cri                through containerd or CRI-O
  fleetpull pull app:v2 --node n1 --node n2 --nats nats://nats:4222
  fleetpull pull app:v2 --all-nodes --nats nats://nats:4222 -o json
  fleetpull pull app:v2 -l zone=a --nats nats://nats:4222
  fleetpull pull app:v2 --agent unix:///var/lib/fleetpull/state/n1/agent.sock

Without --node, --all-nodes, --selector or --agent the whole job is done in this
process.
The policy defaults as in Kubernetes: Always for the tag `latest`, else
IfNotPresent. Durations need a unit: 30s, 5m.

Facts go to stdout (with -o json one object a line for each image and node),
progress and advice to stderr.

Exit status: 0 all there; 1 failed; 2 wrong usage; 3 some there, some not;
4 all in back-off; 5 out of time.";

/// Make sure that images are there, on this node or on others.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PullArgs {
    /// What to pull: busybox, app:v2, registry.example/team/app@sha256:...
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<String>,
    /// When to ask the registry: Always, IfNotPresent or Never.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<PullPolicy>,
    /// Which platform of an image: os/arch[/variant] [default: the node's own].
    #[arg(long, value_name = "OS/ARCH")]
    pub platform: Option<Platform>,
    /// On whose behalf: the back-off is the pod's own. Without it all callers on a node are one nameless pod.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pod)]
    pub pod: Option<PodRef>,
    /// How long to wait; what is under way on other nodes goes on if somebody else wants it.
    #[arg(long, value_name = "D", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// On this node of the fleet; may be given several times.
    #[arg(long = "node", value_name = "NAME", conflicts_with_all = ["all_nodes", "selector"])]
    pub nodes: Vec<NodeName>,
    /// On every node of the fleet that answers.
    #[arg(long)]
    pub all_nodes: bool,
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

impl PullArgs {
    /// Whether the job is other agents', not this process's own.
    #[must_use]
    pub fn has_target(&self) -> bool {
        self.all_nodes || !self.nodes.is_empty() || self.fleet.agent.is_some() || self.fleet.selector.is_some()
    }
}

fn pod(text: &str) -> Result<PodRef, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(PodRef { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() })
        }
        _ => Err("a pod is NAMESPACE/NAME, like shop/web-0".to_owned()),
    }
}

/// A duration with a unit, more than none.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let advice = "a duration needs a unit, like 500ms, 30s, 5m or 1h30m";
    if text.chars().all(|character| character.is_ascii_digit()) {
        return Err(advice.to_owned());
    }
    match humantime::parse_duration(text) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        Ok(_) => Err("it must be longer than nothing".to_owned()),
        Err(_) => Err(advice.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for wrong in ["30", "", "0s", "-1s", "5 lightyears", "999999999999999999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pods_are_namespace_and_name() {
        assert_eq!(pod("a/b").map(|pod| pod.to_string()), Ok("a/b".to_owned()));
        for wrong in ["a", "/b", "a/", "a/b/c", ""] {
            assert!(pod(wrong).is_err(), "{wrong}");
        }
    }
}
