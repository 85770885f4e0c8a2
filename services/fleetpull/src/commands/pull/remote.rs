//! The job on other nodes, through their agents.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use bus::BusHealth;
use contract::messages::pull_coordinator::{ListPulls, OutcomeKind, PullOutcome, PullStatus};
use contract::{CallError, FailureClass, NodeName};
use futures::StreamExt as _;
use futures::stream;
use tokio::sync::mpsc;

use crate::cli::{OutputFormat, PullArgs};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::fleet::{ANSWER_WITHIN, FleetClient, connect};
use crate::node::STANDING;
use crate::output;
use crate::output::outcome::Row;
use crate::output::progress::ProgressView;

/// How many nodes pull at a time for one command: each holds a request open and is asked for its progress.
const NODES_AT_ONCE: usize = 100;
/// How often a node that pulls is asked how far it is; that is also how its silence is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After so many questions without an answer a node counts as silent.
const SILENT_AFTER: u32 = 3;
/// How long after its own time-out a node may take to say so.
const GRACE: Duration = Duration::from_secs(2);

pub(super) fn pull(args: &PullArgs, configuration: &Configuration) -> Result<Exit> {
    actix::System::new().block_on(async {
        let client = match connect(&args.fleet, configuration).await {
            Ok(client) => client,
            Err(error) => return super::not_begun(args, &args.nodes, FailureClass::Unknown, error),
        };
        let nodes = match args.nodes.as_slice() {
            [] => client.answering(args.fleet.selector.as_ref()).await?.into_iter().map(|node| node.node).collect(),
            named => named.to_vec(),
        };
        tokio::select! {
            biased;
            rows = pull_on(args, &client, &nodes) => {
                super::advice::give(args, &rows);
                sum_up(args, &rows);
                Ok(super::exit_of(&rows))
            }
            _ = tokio::signal::ctrl_c() => {
                output::remark("interrupted: the agents go on with what is under way; `fleetpull pulls` shows it");
                std::process::exit(130)
            }
        }
    })
}

/// Says on stderr how many answers were what, and how to ask about the image.
fn sum_up(args: &PullArgs, rows: &[Row]) {
    if args.output.quiet || args.output.format != OutputFormat::Text {
        return;
    }
    let count = |kind: OutcomeKind| rows.iter().filter(|row| row.outcome.outcome == kind).count();
    let (pulled, present) = (count(OutcomeKind::Pulled), count(OutcomeKind::Present));
    let (failed, backoff) = (count(OutcomeKind::Failed), count(OutcomeKind::Backoff));
    output::remark(&format!(
        "{} of {} are there ({pulled} pulled, {present} present before), {failed} failed, {backoff} in back-off.",
        pulled + present,
        rows.len()
    ));
    if let Some(row) = rows.iter().find(|row| matches!(row.outcome.outcome, OutcomeKind::Pulled | OutcomeKind::Present)) {
        let bus = if args.fleet.nats.nats.is_some() { " --nats ..." } else { "" };
        let agent = args.fleet.agent.as_ref().map(|agent| format!(" --agent {agent}")).unwrap_or_default();
        output::remark("The images lie on the nodes, where each agent's runtime keeps them. To ask about one:");
        output::remark(&format!("  fleetpull explain {} --node {}{bus}{agent}", row.image, row.node));
    }
}

/// What arrives while nodes pull.
enum News {
    Row(Box<Row>),
    Progress(NodeName, Vec<PullStatus>),
}

async fn pull_on(args: &PullArgs, client: &FleetClient, nodes: &[NodeName]) -> Vec<Row> {
    let (tell, mut news) = mpsc::channel(NODES_AT_ONCE);
    // Owns the sender, so that the news end when the work does.
    let mut work = std::pin::pin!(async move {
        stream::iter(nodes).for_each_concurrent(NODES_AT_ONCE, |node| pull_on_node(args, client, node, tell.clone())).await;
        drop(tell);
    });
    let mut view = ProgressView::new(!args.output.quiet);
    let mut rows = Vec::new();
    let mut working = true;
    loop {
        tokio::select! {
            biased;
            arrived = news.recv() => match arrived {
                Some(News::Row(row)) => {
                    view.pause(|| row.print(args.output.format));
                    rows.push(*row);
                }
                Some(News::Progress(node, pulls)) => view.show(&node, &pulls),
                None => break,
            },
            () = &mut work, if working => working = false,
        }
    }
    view.clear();
    rows
}

/// Asks one node for all images at once and tells each answer when it is there, or that the node went silent.
async fn pull_on_node(args: &PullArgs, client: &FleetClient, node: &NodeName, tell: mpsc::Sender<News>) {
    let limit = args.timeout.map_or(STANDING, |timeout| timeout + GRACE);
    let ask = |image: String| {
        let command = super::ask(args, &image);
        async move { (image, client.ask(node, command, limit).await) }
    };
    let ask_all = |images: Vec<String>| stream::iter(images).map(ask).buffer_unordered(super::IMAGES_AT_ONCE);
    let mut pulls = ask_all(args.images.clone());
    let mut open: BTreeSet<String> = args.images.iter().cloned().collect();
    let mut look = tokio::time::interval(LOOK_EVERY);
    // The first word is how the bus is now; each `Connected` after it means that the link was lost in between.
    let mut links = client.bus().health_changes().skip(1);
    let mut unanswered = 0;
    while !open.is_empty() {
        tokio::select! {
            biased;
            Some(BusHealth::Connected | BusHealth::Degraded { .. }) = links.next() => {
                // A question or its answer may have been lost with the link. Asking again joins the pull that is under way.
                pulls = ask_all(open.iter().cloned().collect());
            }
            Some((image, answer)) = pulls.next() => {
                open.remove(&image);
                let outcome = answer.unwrap_or_else(|error| unanswered_outcome(args, client, node, &error));
                send(&tell, image, node, outcome).await;
            }
            _ = look.tick() => match client.ask(node, ListPulls {}, ANSWER_WITHIN).await {
                Ok(list) => {
                    unanswered = 0;
                    // Progress that nobody reads in time is old by then.
                    let _ = tell.try_send(News::Progress(node.clone(), list.pulls));
                }
                Err(error) => {
                    unanswered += 1;
                    if unanswered >= SILENT_AFTER {
                        for image in open {
                            send(&tell, image, node, unanswered_outcome(args, client, node, &error)).await;
                        }
                        return;
                    }
                }
            }
        }
    }
}

async fn send(tell: &mpsc::Sender<News>, image: String, node: &NodeName, outcome: PullOutcome) {
    // The reader goes on until every sender is gone.
    let _ = tell.send(News::Row(Box::new(Row { image, node: node.clone(), outcome }))).await;
}

/// A row for a node that gave no answer: nothing is left out.
fn unanswered_outcome(args: &PullArgs, client: &FleetClient, node: &NodeName, error: &CallError) -> PullOutcome {
    let timed_out = args.timeout.is_some() && matches!(error, CallError::TimedOut { .. });
    PullOutcome { timed_out, ..super::unanswered(client.explain_silence(node, error), FailureClass::Unknown) }
}
