//! `fleetpull nodes`

mod describe;
mod list;

use anyhow::{Result, bail};
use contract::NodeName;
use contract::messages::agent::{CountAll, ReadMetrics};
use contract::messages::throttler::{BudgetList, BudgetState, ListBudgets};
use serde_json::json;

use crate::cli::{ListFormat, NodesArgs};
use crate::exit::Exit;
use crate::fleet::{ANSWER_WITHIN, FleetClient, ask_fleet};
use crate::output::{self, table};

/// A counter that only nodes with sharing have.
const SHARES: &str = "shared_alone";

/// Lists the agents, or describes one of them.
pub(super) fn carry_out(args: &NodesArgs) -> Result<Exit> {
    let Some(node) = &args.node else { return list::carry_out(args) };
    ask_fleet(&args.question, "error", async |client| match (args.metrics, args.counters) {
        (true, _) => metrics(&client, node).await,
        (false, true) => counters(args, &client, node).await,
        (false, false) => describe::describe(args, &client, node).await,
    })
}

/// The sums over the budgets, as the node reports them.
fn of_budgets(list: &BudgetList) -> [(&'static str, u64); 8] {
    let count = |is: fn(&BudgetState) -> bool| list.budgets.iter().filter(|budget| is(budget)).count() as u64;
    let sum = |of: fn(&BudgetState) -> u64| list.budgets.iter().map(of).fold(0, u64::saturating_add);
    [
        ("budgets_known", list.left_out.saturating_add(list.budgets.len() as u64)),
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
        Err(error) => bail!("{node}: {}", client.explain_silence(node, &error).await),
    }
    Ok(Exit::Success)
}

async fn counters(args: &NodesArgs, client: &FleetClient, node: &NodeName) -> Result<Exit> {
    client.check_named(std::slice::from_ref(node)).await?;
    let mut counters = match client.ask(node, CountAll {}, ANSWER_WITHIN).await {
        Ok(counters) => counters.counters,
        Err(error) => bail!("{node}: {}", client.explain_silence(node, &error).await),
    };
    // A node without sharing has no budgets.
    if counters.contains_key(SHARES)
        && let Ok(list) = client.ask(node, ListBudgets {}, ANSWER_WITHIN).await
    {
        counters.extend(of_budgets(&list).map(|(name, value)| (name.to_owned(), value)));
    }
    let object = || json!({ "node": node, "counters": counters });
    match args.question.output.format {
        ListFormat::Json => output::json(&object()),
        ListFormat::Yaml => output::yaml::write(&object()),
        ListFormat::Name => counters.keys().for_each(|name| output::fact(name)),
        ListFormat::Text | ListFormat::Wide => {
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
    fn counters_of_a_node_are_the_sums_of_its_budgets() {
        let led = BudgetState { leads: true, in_flight: 3, waiting_count: 2, overrun_total: 1, ..BudgetState::default() };
        let other = BudgetState { alone: true, in_flight: 1, alone_total: 4, ..BudgetState::default() };
        let counters = of_budgets(&BudgetList { budgets: vec![led, other], forgotten_total: 5, left_out: 1 });
        assert_eq!(counters.map(|(_, value)| value), [3, 1, 1, 4, 2, 4, 1, 5]);
        let most = BudgetState { in_flight: u64::MAX, ..BudgetState::default() };
        let counters = of_budgets(&BudgetList { budgets: vec![most.clone(), most], ..BudgetList::default() });
        assert_eq!(counters[3], ("budgets_permits_out", u64::MAX));
    }
}
