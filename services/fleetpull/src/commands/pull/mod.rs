//! `fleetpull pull`

pub(super) mod advice;
mod here;
mod place;
mod remote;

use std::collections::BTreeSet;

use anyhow::Result;
use clock::Random;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome};
use contract::{FailureClass, NodeName, TraceContext};

use crate::cli::{OutputFormat, PullArgs};
use crate::configuration::Configuration;
use crate::exit::{Exit, UsageError};
use crate::output;
use crate::output::outcome::Row;

/// How many images one command asks a node for at a time: as many as wait on a node before it refuses (`pull.queue`).
const IMAGES_AT_ONCE: usize = 1_000;

/// Pulls in this process, or on the nodes that were named.
pub(super) fn carry_out(mut args: PullArgs) -> Result<Exit> {
    check(&args)?;
    keep_first(&mut args.images);
    keep_first(&mut args.nodes);
    let flags = [args.runtime.flags(), args.fleet.nats.flags(), args.log.flags()].concat();
    let configuration = Configuration::load(&args.settings, flags)?;
    configuration.start_log("warn");
    if args.has_target() { remote::pull(&args, &configuration) } else { here::pull(&args, &configuration) }
}

fn check(args: &PullArgs) -> Result<(), UsageError> {
    let usage = |text: &str| Err(UsageError(text.to_owned()));
    if args.images.iter().any(|image| image.trim().is_empty()) {
        return usage("an image is empty: give its name, like busybox or registry.example/team/app:v2");
    }
    if !args.has_target() && (args.fleet.nats.nats.is_some() || args.fleet.agent.is_some()) {
        return usage(
            "--nats and --agent need to know where to pull: add --node NAME, --all-nodes or --selector LABELS (without them the pull is done in this process)",
        );
    }
    if args.has_target() && (args.registry.plain_http || !args.registry.tls_verify) {
        return usage("--plain-http and --tls-verify=false are for a pull in this process: on other nodes, set hosts.toml there");
    }
    let runtime_flags = args.runtime.runtime.is_some()
        || args.runtime.store.is_some()
        || args.runtime.runtime_endpoint.is_some()
        || args.runtime.authfile.is_some();
    if args.has_target() && runtime_flags {
        return usage("--runtime, --store, --runtime-endpoint and --authfile are for a pull in this process: other nodes have their own");
    }
    Ok(())
}

/// Naming something twice asks for it once.
fn keep_first<T: Ord + Clone>(named: &mut Vec<T>) {
    let mut seen = BTreeSet::new();
    named.retain(|one| seen.insert(one.clone()));
}

fn ask(args: &PullArgs, image: &str) -> EnsureImage {
    EnsureImage {
        image: image.to_owned(),
        policy: args.policy,
        platform: args.platform.as_ref().map(ToString::to_string),
        pod: args.pod.clone(),
        timeout_ms: args.timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        ..EnsureImage::default()
    }
}

/// What could not even begin has its row too, for each image on each of `nodes`. For people one complaint says it.
fn not_begun(args: &PullArgs, nodes: &[NodeName], class: FailureClass, error: anyhow::Error) -> Result<Exit> {
    if args.output.format == OutputFormat::Text || Exit::of_error(&error) == Exit::Usage {
        return Err(error);
    }
    let message = output::told(&error);
    for (node, image) in nodes.iter().flat_map(|node| args.images.iter().map(move |image| (node, image))) {
        Row { image: image.clone(), node: node.clone(), outcome: unanswered(message.clone(), class) }.print(args.output.format);
    }
    output::complain(&error);
    Ok(Exit::Failure)
}

/// The outcome where no coordinator gave one.
fn unanswered(message: String, class: FailureClass) -> PullOutcome {
    PullOutcome {
        outcome: OutcomeKind::Failed,
        message,
        class: Some(class),
        trace_id: TraceContext::root(&mut Random::from_system()).trace_id_hex(),
        ..PullOutcome::default()
    }
}

fn exit_of(rows: &[Row]) -> Exit {
    let outcomes: Vec<(OutcomeKind, bool)> = rows.iter().map(|row| (row.outcome.outcome, row.outcome.timed_out)).collect();
    Exit::of_outcomes(&outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naming_something_twice_asks_for_it_once() {
        let mut named = vec!["b", "a", "b", "c", "a"];
        keep_first(&mut named);
        assert_eq!(named, ["b", "a", "c"]);
    }
}
