//! `fleetpull pull`

pub(super) mod advice;
pub(super) mod digests;
mod dry_run;
mod here;
mod late;
mod node_pull;
mod place;
mod plan;
mod quotas;
mod remote;
mod size_estimate;
mod withdraw;

pub(super) use place::quoted;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use clock::Random;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome};
use contract::{FailureClass, NodeName, TraceContext};

use crate::cli::{OutputFormat, Percentage, PullArgs};
use crate::configuration::Configuration;
use crate::exit::{Exit, UsageError};
use crate::output;
use crate::output::outcome::{self, Row};
use crate::process_attributes;
use crate::tracing_of_command::CommandTrace;

/// Images for which one command asks a node at the same time: as many as a node queues (`pull.queue`).
const IMAGES_AT_ONCE: usize = 1_000;

/// Pulls in this process, or on the selected nodes.
pub(super) fn carry_out(mut args: PullArgs) -> Result<Exit> {
    check(&args)?;
    keep_first(&mut args.images);
    keep_first(&mut args.nodes);
    let flags = [args.runtime.flags(), args.fleet.nats.flags(), args.log.flags()].concat();
    let configuration = Configuration::load(&args.settings, flags)?;
    configuration.start_log_and_traces("warn", process_attributes::command());
    let trace = CommandTrace::begin("fleetpull pull");
    let ended = if args.has_target() { remote::pull(&args, &configuration, &trace) } else { here::pull(&args, &configuration, &trace) };
    trace.end(ended.as_ref().ok().copied());
    ended
}

fn check(args: &PullArgs) -> Result<(), UsageError> {
    let usage = |text: &str| Err(UsageError(text.to_owned()));
    // In JSON an invalid name gets its own row, and the other images are pulled.
    if args.output.format == OutputFormat::Text && args.images.iter().any(|image| image.trim().is_empty()) {
        return usage("an image is empty: give its name, like busybox or registry.example/team/app:v2");
    }
    if !args.has_target() && (args.fleet.nats.nats.is_some() || args.fleet.agent.is_some()) {
        return usage(
            "--nats and --agent need to know where to pull: add --node NAME, --all-nodes or --selector LABELS (without them the pull is done in this process)",
        );
    }
    if !args.has_target() && args.many.is_given() {
        return usage(
            "--parallelism, --canary, --success-threshold, --dry-run and --detach are for many nodes: add --node NAME, --all-nodes or --selector LABELS",
        );
    }
    if args.has_target() && (args.registry.plain_http || !args.registry.tls_verify) {
        return usage("--plain-http and --tls-verify=false are for a pull in this process: on other nodes, set hosts.toml there");
    }
    if args.has_target() && args.runtime.is_given() {
        return usage("--runtime, --store, --runtime-endpoint and --authfile are for a pull in this process: other nodes have their own");
    }
    Ok(())
}

/// Removes duplicates.
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
        timeout_ms: args.timeout.map(milliseconds),
        wait_ms: args.wait.map(milliseconds),
        ..EnsureImage::default()
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Why a command ended before its first request.
struct NotBegun {
    class: FailureClass,
    /// True if the command's time was over.
    timed_out: bool,
    error: anyhow::Error,
}

/// Reports an error before the first request: in JSON a row for each image on each of `nodes`, where None is a node whose name is unknown.
/// In text one error.
fn not_begun(args: &PullArgs, nodes: &[Option<NodeName>], why: NotBegun) -> Result<Exit> {
    let NotBegun { class, timed_out, error } = why;
    if Exit::of_error(&error) == Exit::Usage {
        return Err(error);
    }
    if args.output.format == OutputFormat::Json {
        let message = output::error_text(&error);
        for (node, image) in nodes.iter().flat_map(|node| args.images.iter().map(move |image| (node.as_ref(), image))) {
            if args.many.dry_run {
                dry_run::print_unasked(image, node, &message);
            } else {
                outcome::print_unasked(image, node, &PullOutcome { timed_out, ..unanswered(message.clone(), class) });
            }
        }
    }
    output::complain(&error);
    Ok(if timed_out { Exit::TimedOut } else { Exit::Failure })
}

/// The outcome if no coordinator answered.
fn unanswered(message: String, class: FailureClass) -> PullOutcome {
    PullOutcome {
        outcome: OutcomeKind::Failed,
        message,
        class: Some(class),
        trace_id: TraceContext::root(&mut Random::from_system()).trace_id_hex(),
        ..PullOutcome::default()
    }
}

/// The exit status. With a threshold, this percentage of good rows is enough.
fn exit_of(rows: &[Row], threshold: Option<Percentage>) -> Exit {
    // A standing pull that goes on counts as good.
    let good = rows.iter().filter(|row| row.is_there() || row.outcome.stands).count();
    if threshold.is_some_and(|threshold| !rows.is_empty() && good >= threshold.of(rows.len())) {
        return Exit::Success;
    }
    let kind = |row: &Row| if row.outcome.stands { OutcomeKind::Present } else { row.outcome.outcome };
    let outcomes: Vec<(OutcomeKind, bool)> = rows.iter().map(|row| (kind(row), row.outcome.timed_out)).collect();
    Exit::of_outcomes(&outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(outcome: OutcomeKind, timed_out: bool) -> Row {
        let outcome = PullOutcome { outcome, timed_out, ..PullOutcome::default() };
        Row { image: "a".to_owned(), node: "n1".parse().expect("a name"), outcome, at_ms: 0, under_way: None, not_begun: false }
    }

    #[test]
    fn enough_of_a_hundred_are_a_success() {
        use OutcomeKind::{Failed, Pulled};
        let rows = [row(Pulled, false), row(Pulled, false), row(Failed, true)];
        for (threshold, exit) in
            [(None, Exit::TimedOut), (Some("66%"), Exit::Success), (Some("67%"), Exit::TimedOut), (Some("1%"), Exit::Success)]
        {
            let parsed = threshold.map(|text| text.parse().expect("a percentage"));
            assert_eq!(exit_of(&rows, parsed), exit, "{threshold:?}");
        }
        assert_eq!(exit_of(&[], Some("1%".parse().expect("a percentage"))), Exit::Failure);
    }

    #[test]
    fn naming_something_twice_asks_for_it_once() {
        let mut named = vec!["b", "a", "b", "c", "a"];
        keep_first(&mut named);
        assert_eq!(named, ["b", "a", "c"]);
    }
}
