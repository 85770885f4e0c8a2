//! `fleetpull pull`

mod here;
mod remote;

use anyhow::Result;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind};

use crate::cli::PullArgs;
use crate::configuration::Configuration;
use crate::exit::{Exit, UsageError};
use crate::output::outcome::Row;

/// Pulls in this process, or on the nodes that were named.
pub(super) fn carry_out(args: PullArgs) -> Result<Exit> {
    check(&args)?;
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
            "--nats and --agent need to know where to pull: add --node NAME or --all-nodes (without them the pull is done in this process)",
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

fn ask(args: &PullArgs, image: &str) -> EnsureImage {
    EnsureImage {
        image: image.to_owned(),
        policy: args.policy,
        platform: args.platform.as_ref().map(ToString::to_string),
        pod: args.pod.clone(),
        timeout_ms: args.timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
    }
}

fn exit_of(rows: &[Row]) -> Exit {
    let outcomes: Vec<(OutcomeKind, bool)> = rows.iter().map(|row| (row.outcome.outcome, row.outcome.timed_out)).collect();
    Exit::of_outcomes(&outcomes)
}
