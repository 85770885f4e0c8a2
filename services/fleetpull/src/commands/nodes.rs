//! `fleetpull nodes`

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
    let nodes = client.answering(args.question.fleet.selector.as_ref()).await?;
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
