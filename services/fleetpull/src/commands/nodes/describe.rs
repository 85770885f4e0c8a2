//! `fleetpull nodes NAME`: describes one node.

use anyhow::{Result, bail};
use contract::NodeName;
use contract::messages::agent::{NodeDescription, NodeSetup, ReadSetup};
use contract::messages::pull_coordinator::{ListStandingPulls, StandingPullStatus};
use contract::messages::throttler::ListBudgets;
use serde_json::{Value, json};

use super::list::{JsonNode, Listed, listed, status_in_words};
use crate::cli::{ListFormat, NodesArgs};
use crate::commands::{budget, pulls};
use crate::exit::Exit;
use crate::fleet::{ANSWER_WITHIN, FleetClient};
use crate::output::table::Look;
use crate::output::{self, given, one_line, standing_pull, units};

/// The width of the label column.
const LABEL: usize = 12;
/// The indent of the lines of a part with several lines.
const INDENT: &str = "  ";

/// The answers of a node.
struct Described {
    node: Listed,
    setup: NodeSetup,
    budgets: budget::Merger,
    standing_pulls: Vec<StandingPullStatus>,
}

/// Describes a node.
pub(super) async fn describe(args: &NodesArgs, client: &FleetClient, name: &NodeName) -> Result<Exit> {
    client.check_named(std::slice::from_ref(name)).await?;
    let Some(node) = listed(args, client).await?.into_iter().find(|listed| listed.node.node == *name) else {
        bail!("no agent of that name in the fleet {:?}: `fleetpull nodes` lists those that are known", client.fleet().name());
    };
    if node.is_silent() {
        bail!("the agent of {name} is {}: is it running, and is its bus connected?", status_in_words(&node.node));
    }
    let described = ask(client, node).await;
    let now_ms = client.clock().now().wall_ms();
    match args.question.output.format {
        ListFormat::Json => output::json(&json_of(&described, now_ms)),
        ListFormat::Yaml => output::yaml::write(&json_of(&described, now_ms)),
        ListFormat::Name => output::fact(name.as_str()),
        ListFormat::Text | ListFormat::Wide => lines(&described, now_ms).iter().for_each(|line| output::fact(line)),
    }
    Ok(Exit::Success)
}

/// Asks for everything about a node. An agent of another version may not know every request.
async fn ask(client: &FleetClient, node: Listed) -> Described {
    let name = node.node.node.clone();
    let setup = client.ask(&name, ReadSetup {}, ANSWER_WITHIN).await.unwrap_or_default();
    let standing_pulls = client.ask(&name, ListStandingPulls {}, ANSWER_WITHIN).await.unwrap_or_default().standing_pulls;
    let mut budgets = budget::Merger::default();
    budgets.add(&name, client.ask(&name, ListBudgets {}, ANSWER_WITHIN).await.unwrap_or_default());
    Described { node, setup, budgets, standing_pulls }
}

fn json_of(described: &Described, now_ms: u64) -> Value {
    let Described { node, setup, budgets, standing_pulls } = described;
    let name = &node.node.node;
    let mut object = json!(JsonNode::of(node));
    object["socket"] = json!(given(&setup.socket));
    object["settings"] = json!(setup.settings);
    object["registries"] = budgets.budgets().map(|budget| json!(budget::json(budget))).collect();
    object["standing_pulls"] = standing_pulls.iter().map(|status| json!(standing_pull::json(name, status, now_ms))).collect();
    object
}

fn lines(described: &Described, now_ms: u64) -> Vec<String> {
    let Described { node: Listed { node, .. }, setup, budgets, standing_pulls } = described;
    let mut lines: Vec<String> =
        facts(node, setup, now_ms).into_iter().map(|(label, text)| one_line(&format!("{:<LABEL$} {text}", format!("{label}:")))).collect();
    let look = Look::of_width(None);
    let budgets: Vec<&budget::Budget> = budgets.budgets().collect();
    let registries = if budgets.is_empty() { Vec::new() } else { budget::table(&budgets).lines(&look) };
    let standing = standing_pulls.iter().map(|status| (&node.node, status));
    let standing_pulls = if standing_pulls.is_empty() { Vec::new() } else { pulls::standing(standing).lines(&look) };
    let settings = setup.settings.iter().map(|(key, value)| one_line(&format!("{key} = {value}"))).collect();
    for (label, part) in [("Settings", settings), ("Registries", registries), ("Standing pulls", standing_pulls)] {
        let nothing = if part.is_empty() { " none" } else { "" };
        lines.push(format!("{label}:{nothing}"));
        lines.extend(part.iter().map(|line| format!("{INDENT}{line}")));
    }
    lines
}

/// The facts of a node, one per line.
fn facts(node: &NodeDescription, setup: &NodeSetup, now_ms: u64) -> Vec<(&'static str, String)> {
    let or_nothing = |text: &str| given(text).unwrap_or("-").to_owned();
    let labels: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let versions: Vec<String> = node.reads_versions.iter().map(ToString::to_string).collect();
    let age = units::age(now_ms.saturating_sub(node.started_ms));
    vec![
        ("Name", node.node.to_string()),
        ("State", format!("{} for {}", status_in_words(node), units::age(node.since_ms))),
        ("Zone", or_nothing(&node.zone)),
        ("Labels", or_nothing(&labels.join(", "))),
        ("Host", or_nothing(&node.host)),
        ("Runtime", or_nothing(&node.runtime)),
        ("Version", format!("{}, reads messages of version {}", node.version, versions.join(", "))),
        ("Started", format!("{} ({age} ago), instance {}", units::rfc_3339(node.started_ms), node.instance)),
        ("Socket", given(&setup.socket).map_or_else(|| "-".to_owned(), |path| format!("unix://{path}"))),
        ("Sharing", or_nothing(&node.share)),
        ("Pulls", standing_pull::counts(node.pulling, node.waiting, node.standing)),
        ("Blocked by", format!("{} back-offs", node.backoff)),
        (
            "Unsent",
            if node.oldest_unsent_ms == 0 { "no event".to_owned() } else { format!("events since {}", units::age(node.oldest_unsent_ms)) },
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::list::tests::{NOW_MS, well};
    use super::*;

    fn described() -> Described {
        let socket = "/var/lib/fleetpull/state/n1/agent.sock".to_owned();
        let settings = BTreeMap::from([("node.zone".to_owned(), "\"eu-1a\"".to_owned())]);
        let setup = NodeSetup { socket, settings };
        Described { node: well("n1"), setup, budgets: budget::Merger::default(), standing_pulls: Vec::new() }
    }

    #[test]
    fn a_node_is_described_line_by_line() {
        let lines = lines(&described(), NOW_MS);
        for line in [
            "Name:        n1",
            "State:       ready for 25h",
            "Zone:        eu-1a",
            "Labels:      disk=ssd, zone=a",
            "Socket:      unix:///var/lib/fleetpull/state/n1/agent.sock",
            "Pulls:       3 running, 12 waiting",
            "Settings:",
            "  node.zone = \"eu-1a\"",
            "Registries: none",
            "Standing pulls: none",
        ] {
            assert!(lines.iter().any(|shown| shown == line), "{line} in {lines:#?}");
        }
    }

    #[test]
    fn all_of_it_is_one_object() {
        let object = json_of(&described(), NOW_MS);
        assert_eq!((&object["node"], &object["zone"]), (&json!("n1"), &json!("eu-1a")));
        assert_eq!(object["settings"], json!({ "node.zone": "\"eu-1a\"" }));
        assert_eq!((&object["registries"], &object["standing_pulls"]), (&json!([]), &json!([])));
    }

    #[test]
    fn text_of_a_node_stays_in_its_line() {
        let mut described = described();
        described.node.node.runtime = "x\u{1b}[2J\r\nforged".to_owned();
        described.setup.settings.insert("a\n".to_owned(), "b\u{9b}2J".to_owned());
        for line in lines(&described, NOW_MS) {
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}
