//! `fleetpull nodes NAME`: describes one node.

use anyhow::{Result, bail};
use contract::NodeName;
use contract::messages::agent::{NodeDescription, NodeSetup, ReadSetup};
use contract::messages::pull_coordinator::{ListStandingPulls, StandingPullStatus};
use contract::messages::throttler::ListBudgets;
use serde_json::{Value, json};

use super::list::{JsonNode, Listed, listed, reason, status_in_words};
use crate::cli::{ListFormat, NodesArgs};
use crate::commands::{budget, pulls};
use crate::exit::Exit;
use crate::fleet::{FleetClient, silent_agent};
use crate::output::listing::terminal_width;
use crate::output::table::Look;
use crate::output::{self, given, one_line, standing_pull, units};

/// The width of the label column.
const LABEL: usize = 12;
/// The indent of the lines of a part with several lines.
const INDENT: &str = "  ";

/// A part of a node's description, or why the node did not answer it.
type Part<T> = Result<T, String>;

/// The answers of a node.
struct Described {
    node: Listed,
    setup: Part<NodeSetup>,
    budgets: Part<budget::Merger>,
    standing_pulls: Part<Vec<StandingPullStatus>>,
}

impl Described {
    /// Why parts are unknown.
    fn unknown(&self) -> impl Iterator<Item = &str> {
        let parts = [self.setup.as_ref().err(), self.budgets.as_ref().err(), self.standing_pulls.as_ref().err()];
        parts.into_iter().flatten().map(String::as_str)
    }
}

/// Describes a node.
pub(super) async fn describe(args: &NodesArgs, client: &FleetClient, name: &NodeName) -> Result<Exit> {
    client.check_named(std::slice::from_ref(name)).await?;
    let Some(node) = listed(args, client).await?.into_iter().find(|listed| listed.node.node == *name) else {
        bail!(client.unknown_node());
    };
    if node.is_silent() {
        bail!(silent_agent(name, &units::age(node.node.since_ms)));
    }
    let described = ask(client, node).await;
    let now_ms = client.clock().now().wall_ms();
    match args.question.output.format {
        ListFormat::Json => output::json(&json_of(&described, now_ms)),
        ListFormat::Yaml => output::yaml::write(&json_of(&described, now_ms)),
        ListFormat::Name => output::fact(name.as_str()),
        ListFormat::Text => lines(&described, now_ms, terminal_width()).iter().for_each(|line| output::fact(line)),
        ListFormat::Wide => lines(&described, now_ms, None).iter().for_each(|line| output::fact(line)),
    }
    // Text has the reason in place of the part.
    if matches!(args.question.output.format, ListFormat::Json | ListFormat::Yaml) {
        described.unknown().for_each(|why| output::remark(&format!("{name}: a part is unknown: {why}")));
    }
    Ok(if described.unknown().next().is_none() { Exit::Success } else { Exit::Failure })
}

/// Asks for everything about a node.
async fn ask(client: &FleetClient, node: Listed) -> Described {
    let name = node.node.node.clone();
    let setup = client.ask_if_served(&name, ReadSetup {}).await;
    let standing_pulls = client.ask_if_served(&name, ListStandingPulls {}).await.map(|list| {
        standing_pull::left_out(&name, &list).iter().for_each(|more| output::remark(more));
        list.standing_pulls
    });
    let budgets = client.ask_if_served(&name, ListBudgets {}).await.map(|list| {
        budget::left_out(&name, &list).iter().for_each(|more| output::remark(more));
        let mut budgets = budget::Merger::default();
        budgets.add(&name, list);
        budgets
    });
    Described { node, setup, budgets, standing_pulls }
}

fn json_of(described: &Described, now_ms: u64) -> Value {
    let Described { node, setup, budgets, standing_pulls } = described;
    let name = &node.node.node;
    let setup = setup.as_ref().ok();
    let registries = budgets.as_ref().ok().map(|budgets| budgets.budgets().map(|budget| json!(budget::json(budget))).collect::<Vec<_>>());
    let standing_pulls = standing_pulls.as_ref().ok();
    let standing_pulls =
        standing_pulls.map(|all| all.iter().map(|status| json!(standing_pull::json(name, status, now_ms))).collect::<Vec<_>>());
    let mut object = json!(JsonNode::of(node));
    // A part that the node did not answer is null.
    object["socket"] = json!(setup.and_then(|setup| given(&setup.socket)));
    object["settings"] = json!(setup.map(|setup| &setup.settings));
    object["registries"] = json!(registries);
    object["standing_pulls"] = json!(standing_pulls);
    object
}

/// The description in lines. Its tables fit into `width` columns; without a width nothing in them is shortened.
fn lines(described: &Described, now_ms: u64, width: Option<usize>) -> Vec<String> {
    let Described { node: Listed { node, .. }, setup, budgets, standing_pulls } = described;
    let mut lines: Vec<String> =
        facts(node, setup, now_ms).into_iter().map(|(label, text)| one_line(&format!("{:<LABEL$} {text}", format!("{label}:")))).collect();
    let look = Look::of_width(width.map(|width| width.saturating_sub(INDENT.len())));
    let registries = budgets.as_ref().map(|budgets| {
        let budgets: Vec<&budget::Budget> = budgets.budgets().collect();
        if budgets.is_empty() { Vec::new() } else { budget::table(&budgets).lines(&look) }
    });
    let standing_pulls = standing_pulls.as_ref().map(|all| {
        let standing = all.iter().map(|status| (&node.node, status));
        if all.is_empty() { Vec::new() } else { pulls::standing(standing).lines(&look) }
    });
    let settings = setup
        .as_ref()
        .map(|setup| setup.settings.iter().map(|(key, value)| one_line(&format!("{key} = {value}"))).collect::<Vec<String>>());
    for (label, part) in [("Settings", settings), ("Registries", registries), ("Standing pulls", standing_pulls)] {
        match part {
            Err(why) => lines.push(one_line(&format!("{label}: unknown: {why}"))),
            Ok(part) => {
                let nothing = if part.is_empty() { " none" } else { "" };
                lines.push(format!("{label}:{nothing}"));
                lines.extend(part.iter().map(|line| format!("{INDENT}{line}")));
            }
        }
    }
    lines
}

/// The status and how long it has lasted, before the reason, which may be long.
fn state(node: &NodeDescription) -> String {
    let age = units::age(node.since_ms);
    reason(node).map_or_else(|| format!("{} for {age}", status_in_words(node)), |reason| format!("degraded for {age}: {reason}"))
}

/// The facts of a node, one per line.
fn facts(node: &NodeDescription, setup: &Part<NodeSetup>, now_ms: u64) -> Vec<(&'static str, String)> {
    let or_nothing = |text: &str| given(text).unwrap_or("-").to_owned();
    let labels: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let versions: Vec<String> = node.reads_versions.iter().map(ToString::to_string).collect();
    let age = units::age(now_ms.saturating_sub(node.started_ms));
    let socket = match setup {
        Ok(setup) => given(&setup.socket).map_or_else(|| "-".to_owned(), |path| format!("unix://{path}")),
        Err(_) => "unknown".to_owned(),
    };
    vec![
        ("Name", node.node.to_string()),
        ("State", state(node)),
        ("Zone", or_nothing(&node.zone)),
        ("Labels", or_nothing(&labels.join(", "))),
        ("Host", or_nothing(&node.host)),
        ("Runtime", or_nothing(&node.runtime)),
        ("Version", format!("{}, reads messages of version {}", node.version, versions.join(", "))),
        ("Started", format!("{} ({age} ago), instance {}", units::rfc_3339(node.started_ms), node.instance)),
        ("Socket", socket),
        ("Sharing", if node.bus_unset { "nothing: no bus is configured".to_owned() } else { or_nothing(&node.share) }),
        ("Pulls", standing_pull::counts(node.pulling, node.waiting, node.standing)),
        ("Blocked by", if node.backoff == 1 { "1 back-off".to_owned() } else { format!("{} back-offs", node.backoff) }),
        (
            "Unsent",
            if node.oldest_unsent_ms == 0 { "no event".to_owned() } else { format!("events since {}", units::age(node.oldest_unsent_ms)) },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use contract::messages::throttler::{BudgetList, BudgetState};

    use super::super::list::tests::{NOW_MS, well};
    use super::*;

    fn described() -> Described {
        let socket = "/var/lib/fleetpull/state/n1/agent.sock".to_owned();
        let settings = BTreeMap::from([("node.zone".to_owned(), "\"eu-1a\"".to_owned())]);
        let setup = NodeSetup { socket, settings };
        Described { node: well("n1"), setup: Ok(setup), budgets: Ok(budget::Merger::default()), standing_pulls: Ok(Vec::new()) }
    }

    #[test]
    fn a_node_is_described_line_by_line() {
        let lines = lines(&described(), NOW_MS, None);
        for line in [
            "Name:        n1",
            "State:       ready for 25h",
            "Zone:        eu-1a",
            "Labels:      disk=ssd, zone=a",
            "Socket:      unix:///var/lib/fleetpull/state/n1/agent.sock",
            "Pulls:       3 running, 12 waiting",
            "Blocked by:  2 back-offs",
            "Settings:",
            "  node.zone = \"eu-1a\"",
            "Registries: none",
            "Standing pulls: none",
        ] {
            assert!(lines.iter().any(|shown| shown == line), "{line} in {lines:#?}");
        }
    }

    #[test]
    fn tables_of_a_node_fit_its_terminal() {
        let mut described = described();
        let image = format!("registry.example/team/{}:v1", "a".repeat(60));
        let standing_pull = json!({
            "standing_pull": "4bf92f3577b34da6a3ce929d0e0e4736", "image": image, "state": "held", "class": "registry_unavailable",
            "cause": "ErrImagePull: 503 Service Unavailable", "next_attempt_ms": 41_000,
        });
        described.standing_pulls = Ok(vec![serde_json::from_value(standing_pull).expect("a status")]);
        let owner = format!("default|{}.example|h||anonymous|e", "r".repeat(60));
        let state = BudgetState { owner, ..BudgetState::default() };
        let mut budgets = budget::Merger::default();
        budgets.add(&described.node.node.node, BudgetList { budgets: vec![state], ..BudgetList::default() });
        described.budgets = Ok(budgets);
        for (width, shown_whole) in [(Some(79), false), (None, true)] {
            let lines = lines(&described, NOW_MS, width);
            let rows: Vec<&String> = lines.iter().filter(|line| line.starts_with(INDENT)).collect();
            assert_eq!(rows.len(), 5, "a setting, and two tables with a header and a row: {lines:#?}");
            assert_eq!(rows.iter().any(|row| row.contains(&image)), shown_whole, "{lines:#?}");
            assert!(rows.iter().all(|row| row.len() <= width.unwrap_or(usize::MAX)), "{lines:#?}");
            assert!(rows.iter().any(|row| row.contains(":v1  ")), "the end of the image distinguishes it: {lines:#?}");
        }
    }

    #[test]
    fn time_of_a_degraded_node_is_before_its_reason() {
        let mut described = described();
        described.node.node.state = "degraded: no bus since 2026-01-31T12:00:00Z: no NATS server is reached".to_owned();
        let line = "State:       degraded for 25h: no bus since 2026-01-31T12:00:00Z: no NATS server is reached";
        assert!(lines(&described, NOW_MS, None).iter().any(|shown| shown == line), "{:#?}", lines(&described, NOW_MS, None));
    }

    #[test]
    fn node_without_a_configured_bus_says_why_it_shares_nothing() {
        let mut described = described();
        described.node.node.bus_unset = true;
        let line = "Sharing:     nothing: no bus is configured";
        assert!(lines(&described, NOW_MS, None).iter().any(|shown| shown == line), "{:#?}", lines(&described, NOW_MS, None));
    }

    #[test]
    fn all_of_it_is_one_object() {
        let object = json_of(&described(), NOW_MS);
        assert_eq!((&object["node"], &object["zone"]), (&json!("n1"), &json!("eu-1a")));
        assert_eq!(object["settings"], json!({ "node.zone": "\"eu-1a\"" }));
        assert_eq!((&object["registries"], &object["standing_pulls"]), (&json!([]), &json!([])));
    }

    #[test]
    fn part_that_the_node_does_not_answer_is_unknown_and_not_empty() {
        let late = || "the agent of n1 is silent for 3s".to_owned();
        assert_eq!(described().unknown().count(), 0);
        let described = Described { setup: Err(late()), budgets: Err(late()), standing_pulls: Err(late()), ..described() };
        assert_eq!(described.unknown().count(), 3);
        let lines = lines(&described, NOW_MS, None);
        for label in ["Settings", "Registries", "Standing pulls"] {
            let line = format!("{label}: unknown: the agent of n1 is silent for 3s");
            assert!(lines.contains(&line), "{line} in {lines:#?}");
        }
        assert!(lines.iter().any(|line| line == "Socket:      unknown"), "{lines:#?}");
        let object = json_of(&described, NOW_MS);
        for key in ["socket", "settings", "registries", "standing_pulls"] {
            assert!(object.get(key).is_some_and(Value::is_null), "{key} in {object}");
        }
    }

    #[test]
    fn text_of_a_node_stays_in_its_line() {
        let mut described = described();
        described.node.node.runtime = "x\u{1b}[2J\r\nforged".to_owned();
        let settings = BTreeMap::from([("a\n".to_owned(), "b\u{9b}2J".to_owned())]);
        described.setup = Ok(NodeSetup { settings, ..NodeSetup::default() });
        described.standing_pulls = Err("\u{1b}[2J\nforged".to_owned());
        for line in lines(&described, NOW_MS, None) {
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}
