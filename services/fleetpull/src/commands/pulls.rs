//! `fleetpull pulls`

use anyhow::Result;
use contract::NodeName;
use contract::messages::pull_coordinator::{
    ListPulls, ListStandingPulls, PullList, PullState, PullStatus, StandingPullList, StandingPullStatus,
};
use serde::Serialize;

use crate::cli::{OutputFormat, PullsArgs};
use crate::exit::Exit;
use crate::fleet::{Answer, FleetClient, ask_fleet};
use crate::output::silent::{self, Silent};
use crate::output::{self, standing_pull, table, units};

/// One pull as JSON.
#[derive(Serialize)]
struct JsonRow<'a> {
    kind: &'static str,
    node: &'a str,
    image: &'a str,
    state: PullState,
    since_ms: u64,
    callers: u32,
    done_bytes: u64,
    total_bytes: u64,
    bytes_per_second: u64,
}

/// What one node told.
struct Told {
    node: NodeName,
    pulls: Vec<PullStatus>,
    standing_pulls: Vec<StandingPullStatus>,
}

/// Lists what is in flight, queued and standing.
pub(super) fn carry_out(args: &PullsArgs) -> Result<Exit> {
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.meant(&args.asked).await?;
        let (told, exit) = ask(&client, &nodes).await;
        let silent = client.silent_of(&args.asked, &nodes).await;
        print(args, &told, &silent, exit, client.clock().now().wall_ms());
        Ok(exit)
    })
}

/// Asks each node for both; says on stderr who did not answer. A version without standing pulls has none.
async fn ask(client: &FleetClient, nodes: &[NodeName]) -> (Vec<Told>, Exit) {
    let pulls: Vec<Answer<PullList>> = client.ask_each(nodes, &ListPulls {}).await;
    let answering: Vec<NodeName> = pulls.iter().filter(|(_, answer)| answer.is_ok()).map(|(node, _)| node.clone()).collect();
    let mut standing_pulls: Vec<Answer<StandingPullList>> = client.ask_each(&answering, &ListStandingPulls {}).await;
    let (mut told, mut exit) = (Vec::new(), Exit::Success);
    for (node, answer) in pulls {
        match answer {
            Err(silence) => {
                output::remark(&format!("{node}: {silence}"));
                exit = Exit::Failure;
            }
            Ok(list) => {
                let place = standing_pulls.iter().position(|(other, _)| *other == node);
                let standing_pulls = place.and_then(|place| standing_pulls.swap_remove(place).1.ok()).unwrap_or_default();
                told.push(Told { node, pulls: list.pulls, standing_pulls: standing_pulls.standing_pulls });
            }
        }
    }
    (told, exit)
}

fn print(args: &PullsArgs, told: &[Told], silent: &[Silent], exit: Exit, now_ms: u64) {
    let output = args.asked.question.output;
    if output.format == OutputFormat::Json {
        for Told { node, pulls, standing_pulls } in told {
            pulls.iter().for_each(|pull| output::json(&json_row(node, pull)));
            standing_pulls.iter().for_each(|status| output::json(&standing_pull::json(node, status, now_ms)));
        }
        silent.iter().for_each(|silent| output::json(&silent::row(silent)));
        return;
    }
    let pulls = told.iter().flat_map(|told| told.pulls.iter().map(|pull| text_row(&told.node, pull)));
    let pulls: Vec<Vec<String>> = pulls.chain(silent.iter().map(silent_row)).collect();
    let standing_pulls: Vec<Vec<String>> =
        told.iter().flat_map(|told| told.standing_pulls.iter().map(|status| standing_pull::row(&told.node, status, now_ms))).collect();
    if pulls.is_empty() && standing_pulls.is_empty() && exit == Exit::Success && !output.quiet {
        output::remark("nothing is in flight or queued");
    }
    if !pulls.is_empty() || (standing_pulls.is_empty() && exit == Exit::Success) {
        let header = ["NODE", "IMAGE", "STATE", "SINCE", "BYTES", "RATE"];
        table::columns(&header, &pulls).iter().for_each(|line| output::fact(line));
    }
    if !standing_pulls.is_empty() {
        table::columns(&standing_pull::HEADER, &standing_pulls).iter().for_each(|line| output::fact(line));
    }
}

/// The mean since the pull began.
fn bytes_per_second(pull: &PullStatus) -> u64 {
    pull.done_bytes.saturating_mul(1_000).checked_div(pull.since_ms).unwrap_or_default()
}

fn json_row<'a>(node: &'a NodeName, pull: &'a PullStatus) -> JsonRow<'a> {
    JsonRow {
        kind: "pull",
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

/// What is under way on a node that does not answer is not known.
fn silent_row(Silent { node, ago, .. }: &Silent) -> Vec<String> {
    let since = units::milliseconds(silent::milliseconds(*ago) / 1_000 * 1_000);
    [node.as_str(), "-", "silent", &since, "-", "-"].map(str::to_owned).to_vec()
}

fn text_row(node: &NodeName, pull: &PullStatus) -> Vec<String> {
    let (of_total, rate) = match pull.total_bytes {
        0 => ("-".to_owned(), "-".to_owned()),
        total => {
            (format!("{} of {}", units::bytes(pull.done_bytes), units::bytes(total)), format!("{}/s", units::bytes(bytes_per_second(pull))))
        }
    };
    vec![node.to_string(), pull.image.clone(), pull.state.as_str().to_owned(), units::milliseconds(pull.since_ms), of_total, rate]
}
