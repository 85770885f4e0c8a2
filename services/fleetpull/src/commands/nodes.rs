//! `fleetpull nodes`

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use contract::NodeName;
use contract::messages::agent::{CountAll, NodeDescription};
use serde_json::json;

use crate::cli::{NodesArgs, OutputFormat};
use crate::exit::Exit;
use crate::fleet::{ANSWER_WITHIN, FleetClient, ask_fleet};
use crate::output::{self, table, units};

/// Lists the agents, or the counters of one.
pub(super) fn carry_out(args: &NodesArgs) -> Result<Exit> {
    ask_fleet(&args.question, "error", async |client| match &args.node {
        Some(node) => counters(args, &client, node).await,
        None => list(args, &client).await,
    })
}

async fn list(args: &NodesArgs, client: &FleetClient) -> Result<Exit> {
    let selector = args.question.fleet.selector.as_ref();
    let mut nodes = client.answering(selector).await?;
    // A node that is silent does not say its labels either.
    if selector.is_none() {
        let names: Vec<NodeName> = nodes.iter().map(|node| node.node.clone()).collect();
        nodes.extend(client.silent(&names).await.into_iter().map(silent));
        nodes.sort_by(|one, other| one.node.cmp(&other.node));
    }
    match args.question.output.format {
        OutputFormat::Json => nodes.iter().for_each(output::json),
        OutputFormat::Text => {
            let header = ["NODE", "VERSION", "STATE", "SINCE", "RUNTIME", "PULLING", "WAITING", "BACKOFF"];
            let rows: Vec<Vec<String>> = nodes.iter().map(row).collect();
            table::columns(&header, &rows).iter().for_each(|line| output::fact(line));
        }
    }
    Ok(Exit::Success)
}

/// A node that is known and does not answer: since when is all that is known of it.
fn silent((node, ago): (NodeName, Duration)) -> NodeDescription {
    NodeDescription {
        node,
        instance: String::new(),
        started_ms: 0,
        version: "-".to_owned(),
        state: "silent".to_owned(),
        since_ms: u64::try_from(ago.as_millis()).unwrap_or(u64::MAX),
        runtime: "-".to_owned(),
        labels: BTreeMap::new(),
        pulling: 0,
        waiting: 0,
        backoff: 0,
        reads_versions: Vec::new(),
    }
}

fn row(node: &NodeDescription) -> Vec<String> {
    vec![
        node.node.to_string(),
        node.version.clone(),
        node.state.clone(),
        units::milliseconds(node.since_ms / 1_000 * 1_000),
        node.runtime.clone(),
        node.pulling.to_string(),
        node.waiting.to_string(),
        node.backoff.to_string(),
    ]
}

async fn counters(args: &NodesArgs, client: &FleetClient, node: &NodeName) -> Result<Exit> {
    client.check_named(std::slice::from_ref(node)).await?;
    let counters = match client.ask(node, CountAll {}, ANSWER_WITHIN).await {
        Ok(counters) => counters.counters,
        Err(error) => bail!("{node}: {}", client.explain_silence(node, &error)),
    };
    match args.question.output.format {
        OutputFormat::Json => output::json(&json!({ "node": node, "counters": counters })),
        OutputFormat::Text => {
            let rows: Vec<Vec<String>> = counters.into_iter().map(|(name, value)| vec![name, value.to_string()]).collect();
            table::columns(&["COUNTER", "VALUE"], &rows).iter().for_each(|line| output::fact(line));
        }
    }
    Ok(Exit::Success)
}
