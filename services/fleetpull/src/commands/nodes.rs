//! `fleetpull nodes`

use anyhow::{Result, bail};
use contract::NodeName;
use contract::messages::agent::{CountAll, NodeDescription};
use serde_json::json;

use crate::cli::{NodesArgs, OutputFormat};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::fleet::{ANSWER_WITHIN, FleetClient, connect};
use crate::output::{self, table, units};

/// Lists the agents, or the counters of one.
pub(super) fn carry_out(args: &NodesArgs) -> Result<Exit> {
    let configuration = Configuration::load(&args.settings, [args.fleet.nats.flags(), args.log.flags()].concat())?;
    // What goes wrong with the bus ends this command, and is told then.
    configuration.start_log("error");
    actix::System::new().block_on(async {
        let client = connect(&args.fleet, &configuration).await?;
        match &args.node {
            Some(node) => counters(args, &client, node).await,
            None => list(args, &client).await,
        }
    })
}

async fn list(args: &NodesArgs, client: &FleetClient) -> Result<Exit> {
    let nodes = client.answering(args.fleet.selector.as_ref()).await?;
    match args.output.format {
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
    let counters = match client.ask(node, CountAll {}, ANSWER_WITHIN).await {
        Ok(counters) => counters.counters,
        Err(error) => bail!("{node}: {}", client.explain_silence(node, &error)),
    };
    match args.output.format {
        OutputFormat::Json => output::json(&json!({ "node": node, "counters": counters })),
        OutputFormat::Text => {
            let rows: Vec<Vec<String>> = counters.into_iter().map(|(name, value)| vec![name, value.to_string()]).collect();
            table::columns(&["COUNTER", "VALUE"], &rows).iter().for_each(|line| output::fact(line));
        }
    }
    Ok(Exit::Success)
}
