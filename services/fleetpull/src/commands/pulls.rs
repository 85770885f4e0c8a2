//! `fleetpull pulls`

use anyhow::Result;
use contract::NodeName;
use contract::messages::pull_coordinator::{ListPulls, PullState, PullStatus};
use futures::StreamExt as _;
use futures::stream;
use serde::Serialize;

use crate::cli::{OutputFormat, PullsArgs};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::fleet::{ANSWER_WITHIN, FleetClient, connect};
use crate::output::{self, table, units};

/// How many agents are asked at a time.
const ASKED_AT_ONCE: usize = 100;

/// One pull as JSON.
#[derive(Serialize)]
struct JsonRow<'a> {
    node: &'a str,
    image: &'a str,
    state: PullState,
    since_ms: u64,
    callers: u32,
    done_bytes: u64,
    total_bytes: u64,
    bytes_per_second: u64,
}

/// Lists what is in flight and queued.
pub(super) fn carry_out(args: &PullsArgs) -> Result<Exit> {
    let configuration = Configuration::load(&args.settings, [args.fleet.nats.flags(), args.log.flags()].concat())?;
    // What goes wrong with the bus ends this command, and is told then.
    configuration.start_log("error");
    actix::System::new().block_on(async {
        let client = connect(&args.fleet, &configuration).await?;
        let nodes = match &args.node {
            Some(node) => vec![node.clone()],
            None => client.answering(args.fleet.selector.as_ref()).await?.into_iter().map(|node| node.node).collect(),
        };
        let answers: Vec<(NodeName, Result<Vec<PullStatus>, String>)> =
            stream::iter(nodes).map(|node| ask(&client, node)).buffered(ASKED_AT_ONCE).collect().await;
        Ok(print(args, answers))
    })
}

async fn ask(client: &FleetClient, node: NodeName) -> (NodeName, Result<Vec<PullStatus>, String>) {
    let answer = client.ask(&node, ListPulls {}, ANSWER_WITHIN).await;
    let pulls = answer.map(|list| list.pulls).map_err(|error| client.explain_silence(&node, &error));
    (node, pulls)
}

fn print(args: &PullsArgs, answers: Vec<(NodeName, Result<Vec<PullStatus>, String>)>) -> Exit {
    let mut rows = Vec::new();
    let mut exit = Exit::Success;
    for (node, pulls) in answers {
        match pulls {
            Err(silence) => {
                output::remark(&format!("{node}: {silence}"));
                exit = Exit::Failure;
            }
            Ok(pulls) => {
                for pull in pulls {
                    match args.output.format {
                        OutputFormat::Json => output::json(&json_row(&node, &pull)),
                        OutputFormat::Text => rows.push(text_row(&node, &pull)),
                    }
                }
            }
        }
    }
    if rows.is_empty() && exit == Exit::Success && args.output.format == OutputFormat::Text && !args.output.quiet {
        output::remark("nothing is in flight or queued");
    }
    if args.output.format == OutputFormat::Text && (exit == Exit::Success || !rows.is_empty()) {
        let header = ["NODE", "IMAGE", "STATE", "SINCE", "BYTES", "RATE"];
        table::columns(&header, &rows).iter().for_each(|line| output::fact(line));
    }
    exit
}

/// The mean since the pull began.
fn bytes_per_second(pull: &PullStatus) -> u64 {
    pull.done_bytes.saturating_mul(1_000).checked_div(pull.since_ms).unwrap_or_default()
}

fn json_row<'a>(node: &'a NodeName, pull: &'a PullStatus) -> JsonRow<'a> {
    JsonRow {
        node: node.as_str(),
        image: &pull.image,
        state: pull.state,
        since_ms: pull.since_ms,
        callers: pull.callers,
        done_bytes: pull.done_bytes,
        total_bytes: pull.total_bytes,
        bytes_per_second: bytes_per_second(pull),
    }
}

fn text_row(node: &NodeName, pull: &PullStatus) -> Vec<String> {
    let state = match pull.state {
        PullState::Waiting => "waiting",
        PullState::Pulling => "pulling",
    };
    let (of_total, rate) = match pull.total_bytes {
        0 => ("-".to_owned(), "-".to_owned()),
        total => {
            (format!("{} of {}", units::bytes(pull.done_bytes), units::bytes(total)), format!("{}/s", units::bytes(bytes_per_second(pull))))
        }
    };
    vec![node.to_string(), pull.image.clone(), state.to_owned(), units::milliseconds(pull.since_ms), of_total, rate]
}
