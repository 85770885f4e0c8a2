//! `fleetpull nodes`

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use contract::NodeName;
use contract::messages::agent::{CountAll, NodeDescription, ReadMetrics};
use contract::messages::throttler::{BudgetList, BudgetState, ListBudgets};
use serde::Serialize;
use serde_json::json;

use crate::cli::{NodesArgs, OutputFormat};
use crate::exit::Exit;
use crate::fleet::{ANSWER_WITHIN, FleetClient, Members, ask_fleet};
use crate::output::silent::{Silent, milliseconds};
use crate::output::{self, given, table, units};

/// A counter that only nodes have which share.
const SHARES: &str = "shared_alone";

/// The state of a node that is known and does not answer.
const SILENT: &str = "silent";

/// A node in JSON: the names and their meaning are an interface.
#[derive(Serialize)]
struct JsonNode<'a> {
    node: &'a NodeName,
    instance: Option<&'a str>,
    started_at: Option<String>,
    version: Option<&'a str>,
    state: &'a str,
    since_ms: u64,
    runtime: Option<&'a str>,
    /// Null where they are not known.
    labels: Option<&'a BTreeMap<String, String>>,
    pulling: Option<u64>,
    waiting: Option<u64>,
    backoff: Option<u64>,
    reads_versions: &'a [u32],
}

/// A node as it is listed.
struct Listed {
    node: NodeDescription,
    knows_labels: bool,
}

impl<'a> JsonNode<'a> {
    fn of(Listed { node, knows_labels }: &'a Listed) -> Self {
        let answers = node.state != SILENT;
        let known = |count: u64| answers.then_some(count);
        Self {
            node: &node.node,
            instance: given(&node.instance),
            started_at: answers.then(|| units::rfc_3339(node.started_ms)),
            version: given(&node.version),
            state: &node.state,
            since_ms: node.since_ms,
            runtime: given(&node.runtime),
            labels: knows_labels.then_some(&node.labels),
            pulling: known(node.pulling),
            waiting: known(node.waiting),
            backoff: known(node.backoff),
            reads_versions: &node.reads_versions,
        }
    }
}

/// Lists the agents, or the counters of one.
pub(super) fn carry_out(args: &NodesArgs) -> Result<Exit> {
    ask_fleet(&args.question, "error", async |client| match &args.node {
        Some(node) if args.metrics => metrics(&client, node).await,
        Some(node) => counters(args, &client, node).await,
        None => list(args, &client).await,
    })
}

async fn list(args: &NodesArgs, client: &FleetClient) -> Result<Exit> {
    let Members { answering, silent: left_out } = client.members(args.question.fleet.selector.as_ref()).await?;
    let answering = answering.into_iter().map(|node| Listed { node, knows_labels: true });
    let mut nodes: Vec<Listed> = answering.chain(left_out.into_iter().map(silent)).collect();
    nodes.sort_by(|one, other| one.node.node.cmp(&other.node.node));
    match args.question.output.format {
        OutputFormat::Json => nodes.iter().for_each(|node| output::json(&JsonNode::of(node))),
        OutputFormat::Text => {
            let header = ["NODE", "VERSION", "STATE", "SINCE", "RUNTIME", "PULLING", "WAITING", "BACKOFF"];
            let rows: Vec<Vec<String>> = nodes.iter().map(row).collect();
            table::columns(&header, &rows).iter().for_each(|line| output::fact(line));
        }
    }
    Ok(Exit::Success)
}

/// A node that is known and does not answer: since when, and its labels, is all that is known of it.
fn silent(Silent { node, ago, labels, .. }: Silent) -> Listed {
    let knows_labels = labels.is_some();
    let node = NodeDescription {
        node,
        instance: String::new(),
        host: String::new(),
        started_ms: 0,
        version: String::new(),
        state: SILENT.to_owned(),
        since_ms: milliseconds(ago),
        runtime: String::new(),
        labels: labels.unwrap_or_default(),
        pulling: 0,
        waiting: 0,
        standing: 0,
        backoff: 0,
        oldest_unsent_ms: 0,
        share: String::new(),
        reads_versions: Vec::new(),
    };
    Listed { node, knows_labels }
}

fn row(Listed { node, .. }: &Listed) -> Vec<String> {
    vec![
        node.node.to_string(),
        given(&node.version).unwrap_or("-").to_owned(),
        node.state.clone(),
        units::milliseconds(node.since_ms / 1_000 * 1_000),
        given(&node.runtime).unwrap_or("-").to_owned(),
        node.pulling.to_string(),
        node.waiting.to_string(),
        node.backoff.to_string(),
    ]
}

/// What its budgets add up to, as the node sees them.
fn of_budgets(list: &BudgetList) -> [(&'static str, u64); 8] {
    let count = |is: fn(&BudgetState) -> bool| list.budgets.iter().filter(|budget| is(budget)).count() as u64;
    let sum = |of: fn(&BudgetState) -> u64| list.budgets.iter().map(of).sum::<u64>();
    [
        ("budgets_known", list.budgets.len() as u64),
        ("budgets_led", count(|budget| budget.leads)),
        ("budgets_alone", count(|budget| budget.alone)),
        ("budgets_permits_out", sum(|budget| budget.in_flight)),
        ("budgets_waiting", sum(|budget| budget.waiting_count)),
        ("budgets_alone_total", sum(|budget| budget.alone_total)),
        ("budgets_overrun_total", sum(|budget| budget.overrun_total)),
        ("budgets_forgotten_total", list.forgotten_total),
    ]
}

async fn metrics(client: &FleetClient, node: &NodeName) -> Result<Exit> {
    client.check_named(std::slice::from_ref(node)).await?;
    match client.ask(node, ReadMetrics {}, ANSWER_WITHIN).await {
        Ok(metrics) => metrics.text.lines().for_each(output::fact),
        Err(error) => bail!("{node}: {}", client.explain_silence(node, &error)),
    }
    Ok(Exit::Success)
}

async fn counters(args: &NodesArgs, client: &FleetClient, node: &NodeName) -> Result<Exit> {
    client.check_named(std::slice::from_ref(node)).await?;
    let mut counters = match client.ask(node, CountAll {}, ANSWER_WITHIN).await {
        Ok(counters) => counters.counters,
        Err(error) => bail!("{node}: {}", client.explain_silence(node, &error)),
    };
    // A node that shares nothing has no budgets.
    if counters.contains_key(SHARES)
        && let Ok(list) = client.ask(node, ListBudgets {}, ANSWER_WITHIN).await
    {
        counters.extend(of_budgets(&list).map(|(name, value)| (name.to_owned(), value)));
    }
    match args.question.output.format {
        OutputFormat::Json => output::json(&json!({ "node": node, "counters": counters })),
        OutputFormat::Text => {
            let rows: Vec<Vec<String>> = counters.into_iter().map(|(name, value)| vec![name, value.to_string()]).collect();
            table::columns(&["COUNTER", "VALUE"], &rows).iter().for_each(|line| output::fact(line));
        }
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_a_silent_node_are_null_unless_they_are_known() {
        for (labels, expected) in [
            (None, serde_json::Value::Null),
            (Some(BTreeMap::new()), json!({})),
            (Some(BTreeMap::from([("zone".to_owned(), "a".to_owned())])), json!({ "zone": "a" })),
        ] {
            let (node, ago) = ("n1".parse().expect("a name"), std::time::Duration::from_secs(5));
            let listed = silent(Silent { node, ago, labels, known_for: 12 * ago });
            let told = serde_json::to_value(JsonNode::of(&listed)).expect("serialises");
            assert_eq!((&told["labels"], &told["state"], &told["pulling"]), (&expected, &json!("silent"), &json!(null)));
        }
    }

    #[test]
    fn budgets_add_up() {
        let led = BudgetState { leads: true, in_flight: 3, waiting_count: 2, overrun_total: 1, ..BudgetState::default() };
        let other = BudgetState { alone: true, in_flight: 1, alone_total: 4, ..BudgetState::default() };
        let counters = of_budgets(&BudgetList { budgets: vec![led, other], forgotten_total: 5 });
        assert_eq!(counters.map(|(_, value)| value), [2, 1, 1, 4, 2, 4, 1, 5]);
    }
}
