//! `fleetpull budget`

mod differences;
mod json;
mod rows;

pub(super) use json::{JsonQuota, json};
pub(super) use rows::{left_out, table};

use std::collections::BTreeMap;

use anyhow::Result;
use contract::messages::throttler::{BudgetList, BudgetState, ListBudgets};
use contract::{NodeName, budget_in_words};

use super::watch::ListRequest;
use crate::cli::{BudgetArgs, BudgetCommand, OutputArgs, OutputFormat};
use crate::exit::Exit;
use crate::fleet::{Answer, FleetClient};
use crate::output::known_failures::named;
use crate::output::listing::Listing;
use crate::output::silent::{self, Silent};
use crate::output::{self, json_line};
use differences::{Difference, NodeCaps, differences, names};

/// A budget, merged from the answers of the nodes.
pub(super) struct Budget {
    /// As its leader reports it. If that has not answered, the pulls are those of the nodes that have answered.
    pub(super) state: BudgetState,
    reported_by: NodeName,
    nodes: usize,
    alone: Vec<NodeName>,
    /// The caps that each node uses.
    caps: Vec<(NodeName, NodeCaps)>,
}

impl Budget {
    /// How many nodes have this budget.
    pub(super) fn node_count(&self) -> usize {
        self.nodes
    }
}

/// Lists the budgets.
pub(super) fn carry_out(args: &BudgetArgs) -> Result<Exit> {
    let BudgetCommand::List(args) = &args.command;
    let request = ListRequest::of(args.asked.question.output, &args.list, &rows::COLUMNS)?;
    request.show(&args.asked.question, async |client: &FleetClient| {
        let nodes = client.selected_nodes(&args.asked).await?;
        let answers = client.ask_each(&nodes, &ListBudgets {}).await;
        let silent = client.silent_of(&args.asked, &nodes).await;
        let listing = listing(answers, &silent, request.has_objects());
        let exit = if listing.unanswered.is_empty() { Exit::Success } else { Exit::Failure };
        Ok((listing, exit))
    })
}

fn listing(answers: Vec<Answer<BudgetList>>, silent: &[Silent], with_objects: bool) -> Listing {
    let (mut merger, mut unanswered) = (Merger::default(), Vec::new());
    for (node, answer) in answers {
        match answer {
            Ok(list) => {
                unanswered.extend(left_out(&node, &list));
                merger.add(&node, list);
            }
            Err(silence) => unanswered.push(format!("{node}: {silence}")),
        }
    }
    let budgets = merger.into_budgets();
    let budgets: Vec<&Budget> = budgets.values().collect();
    let mut listing =
        Listing::new(rows::table(&budgets), "no budget is known: a node that shares learns of one when it first pulls from a registry");
    listing.unanswered = unanswered;
    listing.remarks = budgets.iter().flat_map(|budget| remarks(budget)).chain(silent::sentence(silent)).collect();
    if with_objects {
        let budgets = budgets.iter().map(|budget| json_line(&json(budget)));
        listing.objects = budgets.chain(silent.iter().map(|silent| json_line(&silent::row(silent)))).flatten().collect();
    }
    listing
}

/// Remarks on a budget: whether its leader answers, why its rate is low, and which nodes differ.
fn remarks(budget: &Budget) -> Vec<String> {
    let of = in_words(&budget.state);
    let alone = match budget.alone.as_slice() {
        [] => None,
        [node] => Some(format!("{node}: reaches no leader of {of} and goes by its own share")),
        nodes => Some(format!("{}: reach no leader of {of} and go by their own share", named(nodes))),
    };
    let leaderless = match &budget.state.leader {
        _ if budget.state.leads => None,
        Some(last_leader) => Some(format!(
            "{of}: no node that answered leads it (the last leader known is {last_leader}): its rate is not known, and its pulls are those of the nodes that answered"
        )),
        None => alone.is_none().then(|| format!("{of}: no node that answered knows a leader of it, so its rate is not known")),
    };
    let slow = rows::why_slow(&budget.state).map(|why| format!("{of}: {why}"));
    let differing = differences(&budget.state, &budget.caps);
    let differing = differing.iter().map(|Difference { nodes, what }| format!("{}: {what} ({of})", names(nodes)));
    leaderless.into_iter().chain(slow).chain(alone).chain(differing).collect()
}

/// Merges the answers as they arrive: each budget once, with its leader's values.
#[derive(Default)]
pub(super) struct Merger {
    budgets: BTreeMap<String, Budget>,
}

impl Merger {
    /// Adds the answer of one node.
    pub(super) fn add(&mut self, node: &NodeName, list: BudgetList) {
        for state in list.budgets {
            let alone = state.alone;
            let budget = self.budgets.entry(state.owner.clone()).or_insert_with(|| Budget {
                state: state.clone(),
                reported_by: node.clone(),
                nodes: 0,
                alone: Vec::new(),
                caps: Vec::new(),
            });
            budget.nodes += 1;
            budget.caps.push((node.clone(), NodeCaps::of(&state)));
            if alone {
                budget.alone.push(node.clone());
            }
            // A node that does not lead the budget reports its own pulls.
            let own_pulls = (!state.leads && !budget.state.leads && budget.nodes > 1).then(|| {
                (budget.state.in_flight.saturating_add(state.in_flight), budget.state.waiting_count.saturating_add(state.waiting_count))
            });
            // Two nodes may both believe that they lead: the one with the higher epoch does.
            if (state.leads, state.epoch) > (budget.state.leads, budget.state.epoch) {
                (budget.state, budget.reported_by) = (state, node.clone());
            }
            if let Some(own_pulls) = own_pulls {
                (budget.state.in_flight, budget.state.waiting_count) = own_pulls;
            }
        }
    }

    /// The leaders that nodes named.
    pub(super) fn leaders(&self) -> impl Iterator<Item = &NodeName> {
        self.budgets.values().filter_map(|budget| budget.state.leader.as_ref())
    }

    /// The budgets, sorted by owner.
    pub(super) fn budgets(&self) -> impl Iterator<Item = &Budget> {
        self.budgets.values()
    }

    /// The budgets by owner.
    pub(super) fn into_budgets(self) -> BTreeMap<String, Budget> {
        self.budgets
    }
}

/// Shows all details of budgets, one line for each.
pub(super) fn show(budgets: &[&Budget], output: OutputArgs) {
    if output.format == OutputFormat::Json {
        return budgets.iter().for_each(|budget| output::json(&json(budget)));
    }
    budgets.iter().flat_map(|budget| details(budget)).for_each(|line| output::fact(&line));
    if !output.quiet {
        budgets.iter().flat_map(|budget| remarks(budget)).for_each(|line| output::remark(&line));
    }
}

fn details(budget: &Budget) -> Vec<String> {
    let mut lines = vec![format!("budget of {}:", in_words(&budget.state))];
    lines.extend(rows::table(&[budget]).record());
    lines
}

/// The owner of a budget, in words.
fn in_words(state: &BudgetState) -> String {
    output::one_line(&budget_in_words(&state.owner))
}

#[cfg(test)]
mod tests {
    use contract::messages::throttler::{BudgetWaiter, KnownLimits, RegistryLimit};

    use super::*;
    use crate::output::table::Look;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    #[test]
    fn values_of_a_budget_come_from_its_leader() {
        let quota = RegistryLimit { limit: 100, remaining: 31, window_ms: 21_600_000, ..RegistryLimit::default() };
        let led = BudgetState {
            owner: "hub".to_owned(),
            leader: Some(node("n2")),
            epoch: 7,
            leads: true,
            per_second: 200.0,
            in_flight: 3,
            waiting: vec![BudgetWaiter { node: node("n3"), wait_ms: 1_500 }],
            waiting_count: 4,
            known: KnownLimits { limits: vec![quota], ..KnownLimits::default() },
            ..BudgetState::default()
        };
        let seen = BudgetState { leads: false, in_flight: 1, alone: true, ..led.clone() };
        let list = |state: &BudgetState| BudgetList { budgets: vec![state.clone()], ..BudgetList::default() };
        let mut merger = Merger::default();
        for (name, state) in [("n1", &seen), ("n2", &led), ("n3", &seen)] {
            merger.add(&node(name), list(state));
        }
        let budgets: Vec<Budget> = merger.into_budgets().into_values().collect();
        assert_eq!((budgets.len(), budgets[0].reported_by.as_str(), budgets[0].alone.len()), (1, "n2", 2));
    }

    #[test]
    fn details_of_a_budget_are_lines_of_one_value() {
        let quota = RegistryLimit { limit: 100, window_ms: 21_600_000, ..RegistryLimit::default() };
        let known = KnownLimits { limits: vec![quota], ..KnownLimits::default() };
        let owner = "default|r.example|0123456789ab||anonymous|eu-1".to_owned();
        let state = BudgetState { owner, leads: true, leader: Some(node("n2")), known, ..BudgetState::default() };
        let details = details(&Budget { state, reported_by: node("n2"), nodes: 3, alone: Vec::new(), caps: Vec::new() });
        for line in ["  registry:     r.example", "  quota:        100/6h", "  left:         0", "  leader:       n2", "  nodes:        3"]
        {
            assert!(details.iter().any(|detail| detail == line), "{line} in {details:#?}");
        }
        assert!(details.iter().all(|detail| detail.len() < 80 && !detail.ends_with(" -")), "{details:#?}");
    }

    #[test]
    fn node_that_reaches_no_leader_is_in_the_singular() {
        let remarks = |alone: &[&str]| {
            let state = BudgetState { owner: "hub".to_owned(), ..BudgetState::default() };
            let alone: Vec<NodeName> = alone.iter().map(|name| node(name)).collect();
            remarks(&Budget { state, reported_by: node("n1"), nodes: alone.len(), alone, caps: Vec::new() })
        };
        assert_eq!(remarks(&["n1"]), ["n1: reaches no leader of hub and goes by its own share"]);
        assert_eq!(remarks(&["n1", "n2"]), ["n1, n2: reach no leader of hub and go by their own share"]);
        assert_eq!(remarks(&[]), ["hub: no node that answered knows a leader of it, so its rate is not known"]);
    }

    #[test]
    fn pulls_of_a_budget_are_those_of_the_nodes_that_answered_if_none_of_them_leads_it() {
        let seen = BudgetState { owner: "hub".to_owned(), leader: Some(node("n2")), per_second: 200.0, ..BudgetState::default() };
        // n1 and n3 have pulls of their own; n2 counts those of the fleet.
        for (leads, (in_flight, waiting_count), is_remarked) in [(false, (6, 24), true), (true, (3, 12), false)] {
            let of = |name: &str, leads, in_flight, waiting_count| {
                let state = BudgetState { leads, in_flight, waiting_count, ..seen.clone() };
                (node(name), Ok(BudgetList { budgets: vec![state], ..BudgetList::default() }))
            };
            let answers = vec![of("n1", false, 2, 8), of("n2", leads, 3, 12), of("n3", false, 1, 4)];
            let listing = listing(answers, &[], true);
            let object: serde_json::Value = serde_json::from_str(&listing.objects[0]).expect("is JSON");
            assert_eq!((&object["in_flight"], &object["waiting_count"]), (&in_flight.into(), &waiting_count.into()), "{object}");
            let lines = listing.table.lines(&Look::of_width(None));
            assert!(lines[1].ends_with(&format!("  {waiting_count}")), "{lines:#?}");
            assert_eq!(
                listing.remarks.iter().any(|remark| remark
                    == "hub: no node that answered leads it (the last leader known is n2): its rate is not known, and its pulls are those of the nodes that answered"),
                is_remarked,
                "{:?}",
                listing.remarks
            );
        }
    }

    #[test]
    fn budgets_that_an_answer_leaves_out_are_counted() {
        let listing = listing(vec![(node("n1"), Ok(BudgetList { left_out: 2, ..BudgetList::default() }))], &[], false);
        assert_eq!(listing.unanswered, ["n1: 2 more budgets, which one answer does not take"]);
    }

    #[test]
    fn json_has_each_key_once_and_null_for_what_is_not_limited() {
        let quota = RegistryLimit { remaining: 31, ..RegistryLimit::default() };
        let known = KnownLimits { limits: vec![quota], ..KnownLimits::default() };
        let state = BudgetState { owner: "hub".to_owned(), alone: true, known, ..BudgetState::default() };
        let budget = Budget { state, reported_by: node("n1"), nodes: 1, alone: vec![node("n1")], caps: Vec::new() };
        let text = serde_json::to_string(&json(&budget)).expect("serialises");
        assert_eq!(text.matches("\"alone\":").count() + text.matches("\"alone_nodes\":").count(), 1, "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).expect("is JSON");
        assert_eq!((&value["kind"], &value["alone_nodes"]), (&"budget".into(), &serde_json::json!(["n1"])));
        let quota = &value["known"]["limits"][0];
        for absent in [&value["leader"], &value["per_second"], &value["at_once"], &quota["limit"], &quota["window_ms"], &quota["source"]] {
            assert!(absent.is_null(), "{text}");
        }
    }
}
