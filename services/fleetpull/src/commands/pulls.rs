//! `fleetpull pulls`

use anyhow::Result;
use contract::NodeName;
use contract::messages::pull_coordinator::{ListPulls, PullList, PullState, PullStatus};
use serde::Serialize;

use crate::cli::{OutputFormat, PullsArgs};
use crate::exit::Exit;
use crate::fleet::{Answer, ask_fleet};
use crate::output::{self, table, units};

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
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.meant(&args.asked).await?;
        Ok(print(args, client.ask_each(&nodes, &ListPulls {}).await))
    })
}

fn print(args: &PullsArgs, answers: Vec<Answer<PullList>>) -> Exit {
    let mut rows = Vec::new();
    let mut exit = Exit::Success;
    for (node, pulls) in answers {
        match pulls {
            Err(silence) => {
                output::remark(&format!("{node}: {silence}"));
                exit = Exit::Failure;
            }
            Ok(list) => {
                for pull in list.pulls {
                    match args.asked.question.output.format {
                        OutputFormat::Json => output::json(&json_row(&node, &pull)),
                        OutputFormat::Text => rows.push(text_row(&node, &pull)),
                    }
                }
            }
        }
    }
    if rows.is_empty() && exit == Exit::Success && args.asked.question.output.format == OutputFormat::Text && !args.asked.question.output.quiet {
        output::remark("nothing is in flight or queued");
    }
    if args.asked.question.output.format == OutputFormat::Text && (exit == Exit::Success || !rows.is_empty()) {
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
