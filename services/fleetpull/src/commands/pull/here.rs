//! Pulls images in this process, on the memory bus.

use std::sync::Arc;
use std::time::Duration;

use actors::Sender;
use anyhow::{Context as _, Result};
use bus::memory::MemoryBus;
use bus::{Message, Messaging as _, Subscription};
use clock::Clock;
use contract::messages::pull_coordinator::{ListPulls, OutcomeKind, PullOutcome};
use contract::subject::Fleet;
use contract::{EventReason, FailureClass, NodeName, Reason};
use event_recorder::Flush;
use futures::{FutureExt as _, StreamExt as _, stream};
use serde_json::Value;

use super::NotBegun;
use super::place::Place;
use crate::cli::{OutputFormat, PullArgs};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::node::{Node, NodeOptions, NodeParts, Policies, keep_free, node_name, open_runtime, root_envelope};
use crate::output;
use crate::output::outcome::Row;
use crate::output::progress::ProgressView;
use crate::tracing_of_command::CommandTrace;

/// How often progress is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// The failure events. The rows report these failures.
const FAILURES: [EventReason; 4] = [EventReason::Failed, EventReason::BackOff, EventReason::InspectFailed, EventReason::ErrImageNeverPull];
/// The name of this process's only node if the host's name is not valid.
const NAMELESS_HOST: &str = "this-host";

pub(super) fn pull(args: &PullArgs, configuration: &Configuration, trace: &CommandTrace) -> Result<Exit> {
    let system = actix::System::new();
    system.block_on(async {
        tokio::select! {
            biased;
            exit = work(args, configuration, trace) => exit,
            _ = tokio::signal::ctrl_c() => {
                output::remark("interrupted: what was fetched so far is kept, and the same command goes on from there");
                trace.interrupted();
                std::process::exit(130)
            }
        }
    })
}

async fn work(args: &PullArgs, configuration: &Configuration, trace: &CommandTrace) -> Result<Exit> {
    let settings = configuration.settings();
    let clock = Clock::host();
    let name = node_name(settings).or_else(|_| NAMELESS_HOST.parse::<NodeName>()).context("the node has no name")?;
    let runtime = match open_runtime(configuration, args.registry, &clock) {
        Ok(runtime) => runtime,
        Err(error) => {
            return super::not_begun(args, &[Some(name)], NotBegun { class: FailureClass::NodeLocal, timed_out: false, error });
        }
    };
    let bus = Arc::new(MemoryBus::new(clock.clone()));
    let fleet = Fleet::named(&settings.fleet.name).context("fleet.name is not valid")?;
    let events = bus.subscribe(&fleet.events(None, None), None).await?;
    let parts = NodeParts { name: name.clone(), fleet, bus, runtime, clock, policies: Policies::of(settings) };
    let options = NodeOptions { keep_free: keep_free(settings), ..NodeOptions::default() };
    let node = Node::start_with(parts, options).await?;
    let rows = pull_all(args, &node, events, trace).await;
    let place = Place::of(configuration)?;
    node.stop().await;
    super::advice::give(args, &rows);
    if args.output.format == OutputFormat::Text && !args.output.quiet {
        place.print_advice(&rows);
    }
    Ok(super::exit_of(&rows, None))
}

/// Asks for all images at the same time (the throttler limits how many are pulled) and prints each row when it is complete.
async fn pull_all(args: &PullArgs, node: &Node, mut events: Subscription, trace: &CommandTrace) -> Vec<Row> {
    let name = &node.wiring.node;
    let mut view = ProgressView::new(!args.output.quiet);
    let mut pulls = stream::iter(&args.images).map(|image| pull_one(args, node, image, trace)).buffer_unordered(super::IMAGES_AT_ONCE);
    let list = Sender::<ListPulls>::local(node.wiring.clone(), node.actors.coordinator.clone().recipient());
    let mut draw = tokio::time::interval(DRAW_EVERY);
    let mut rows = Vec::new();
    loop {
        tokio::select! {
            biased;
            Some(event) = events.next(), if view.writes_lines() => print_event(&event),
            row = pulls.next() => match row {
                Some(mut row) => {
                    if args.output.format == OutputFormat::Text {
                        // The back-off entry ends with this process, so the next command does not wait.
                        row.outcome.next_attempt_ms = None;
                    }
                    row.print(args.output.format);
                    rows.push(row);
                }
                None => break,
            },
            _ = draw.tick() => {
                if let Ok(list) = list.call(root_envelope(ListPulls {}), DRAW_EVERY).await {
                    view.show(name, &list.pulls);
                }
            }
        }
    }
    view.clear();
    // The last answer may arrive before its event is published.
    if view.writes_lines() && node.actors.recorder.send(Flush).await.is_ok() {
        while let Some(Some(event)) = events.next().now_or_never() {
            print_event(&event);
        }
    }
    rows
}

/// Writes an event as a line to stderr. Failures are left out, because the rows report them.
fn print_event(event: &Message) {
    if let Ok(event) = serde_json::from_slice::<Value>(&event.payload)
        && !FAILURES.iter().any(|reason| event["data"]["reason"] == reason.as_str())
    {
        output::remark(&output::event::text(&event));
    }
}

async fn pull_one(args: &PullArgs, node: &Node, image: &str, trace: &CommandTrace) -> Row {
    let name = &node.wiring.node;
    let (envelope, _span) = trace.request(super::ask(args, image));
    let outcome = match node.pull_as(envelope).await {
        Ok(outcome) => outcome,
        Err(error) => PullOutcome {
            outcome: OutcomeKind::Failed,
            reason: Some(Reason::ErrImagePull),
            message: format!("{error}: this is a bug in fleetpull; the log above has details"),
            class: Some(FailureClass::Unknown),
            ..PullOutcome::default()
        },
    };
    Row { image: image.to_owned(), node: name.clone(), outcome, at_ms: Clock::host().now().wall_ms(), under_way: None, not_begun: false }
}
