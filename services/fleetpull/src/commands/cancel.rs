//! `fleetpull cancel`

use std::collections::BTreeSet;

use anyhow::Result;
use contract::messages::backoff_tracker::is_key;
use contract::messages::pull_coordinator::{CancelStandingPull, ListPulls, ListStandingPulls, PullStatus, StandingPullStatus};
use contract::{NodeName, StandingPullId};

use super::pulls;
use super::user_at_host::user_at_host;
use crate::cli::{CancelArgs, OutputFormat};
use crate::exit::Exit;
use crate::fleet::{FleetClient, ask_fleet};
use crate::output::known_failures::same_image;
use crate::output::table::Look;
use crate::output::{self, silent, standing_pull};

/// Other standing pulls that are shown if none matches, and nodes that are shown because they go on pulling.
const SHOWN: usize = 10;

/// Cancels standing pulls, and says which pulls of the image go on for other callers.
pub(super) fn carry_out(args: &CancelArgs) -> Result<Exit> {
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.selected_nodes(&args.asked).await?;
        let (standing_pulls, answering, are_all) = standing(&client, &nodes).await;
        let silent = client.silent_of(&args.asked, &nodes).await;
        silent::sentence(&silent).iter().for_each(|sentence| output::remark(sentence));
        let mut exit = if are_all { Exit::Success } else { Exit::Failure };
        let now_ms = client.clock().now().wall_ms();
        let (selected, others): (Vec<_>, Vec<_>) = standing_pulls.into_iter().partition(|(_, status)| is_selected(&args.what, status));
        if selected.is_empty() {
            let (going_on, _) = going_on(&client, &answering, &BTreeSet::from([args.what.as_str()])).await;
            if going_on.is_empty() {
                list_standing_pulls(args, &others, exit == Exit::Success && silent.is_empty());
            } else {
                list_pulls_that_go_on(&going_on, &others);
            }
            return Ok(Exit::Failure);
        }
        let ids: BTreeSet<StandingPullId> = selected.iter().map(|(_, status)| status.standing_pull).collect();
        for id in ids {
            let holders: Vec<NodeName> =
                selected.iter().filter(|(_, status)| status.standing_pull == id).map(|(node, _)| node.clone()).collect();
            for (node, answer) in client.ask_each(&holders, &CancelStandingPull { what: id.to_string(), by: user_at_host() }).await {
                match answer {
                    Ok(done) => {
                        done.cancelled.iter().for_each(|status| print(args, &node, status, now_ms));
                        if done.left_out > 0 {
                            output::remark(&format!("{node}: {} more were cancelled, which one answer does not take", done.left_out));
                        }
                        if let Some(problem) = done.problem {
                            output::remark(&format!("{node}: {problem}"));
                            exit = Exit::Failure;
                        }
                    }
                    Err(silence) => {
                        output::remark(&format!("{node}: {silence}"));
                        exit = Exit::Failure;
                    }
                }
            }
        }
        let images: BTreeSet<&str> = selected.iter().map(|(_, status)| status.image.as_str()).collect();
        let (going_on, all_answered) = going_on(&client, &answering, &images).await;
        list_pulls_that_go_on(&going_on, &others);
        if !all_answered {
            exit = Exit::Failure;
        }
        // An id names one standing pull, so other callers of the image do not make the cancellation a failure.
        let by_image = images.iter().any(|image| same_image(image, &args.what));
        Ok(if by_image && !going_on.is_empty() { Exit::Failure } else { exit })
    })
}

/// The pulls of these images that go on, and whether all nodes answered. Reports on stderr the nodes that do not answer.
async fn going_on(client: &FleetClient, nodes: &[NodeName], images: &BTreeSet<&str>) -> (Vec<(NodeName, PullStatus)>, bool) {
    let (mut going_on, mut all_answered) = (Vec::new(), true);
    for (node, answer) in client.ask_each(nodes, &ListPulls {}).await {
        match answer {
            Ok(list) => {
                if let Some(more) = standing_pull::pulls_left_out(&node, &list) {
                    output::remark(&more);
                    all_answered = false;
                }
                let of_images = list.pulls.into_iter().filter(|pull| images.iter().any(|image| same_image(&pull.image, image)));
                going_on.extend(of_images.map(|pull| (node.clone(), pull)));
            }
            Err(silence) => {
                output::remark(&format!("{node}: it is not known if it goes on pulling: {silence}"));
                all_answered = false;
            }
        }
    }
    (going_on, all_answered)
}

/// Says on stderr why each node goes on pulling. `others` are the standing pulls that were not cancelled.
fn list_pulls_that_go_on(going_on: &[(NodeName, PullStatus)], others: &[(NodeName, StandingPullStatus)]) {
    for (node, pull) in going_on.iter().take(SHOWN) {
        let standing = others.iter().filter(|(other, status)| other == node && same_image(&status.image, &pull.image)).count();
        output::remark(&why_it_goes_on(node, pull, standing));
    }
    if going_on.len() > SHOWN {
        output::remark(&format!("{} more nodes go on too: `fleetpull pulls` shows all", going_on.len() - SHOWN));
    }
}

/// Says why a pull goes on. `standing` is the number of standing pulls among its callers.
fn why_it_goes_on(node: &NodeName, pull: &PullStatus, standing: usize) -> String {
    let image = output::one_line(&pull.image);
    let (callers, wait, they) = if pull.callers == 1 { ("caller", "waits", "it does") } else { ("callers", "wait", "they do") };
    let because = format!("{node} goes on pulling {image}: {} other {callers} {wait} for it, and it ends when {they}", pull.callers);
    match standing {
        0 => because,
        _ => format!("{because}; `fleetpull cancel {image}` ends the standing pulls among them"),
    }
}

/// The standing pulls of `nodes`, the nodes that answer, and whether these are all. Reports on stderr what is missing.
async fn standing(client: &FleetClient, nodes: &[NodeName]) -> (Vec<(NodeName, StandingPullStatus)>, Vec<NodeName>, bool) {
    let (mut standing_pulls, mut answering, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (node, answer) in client.ask_each(nodes, &ListStandingPulls {}).await {
        match answer {
            Ok(list) => {
                missing.extend(standing_pull::left_out(&node, &list));
                standing_pulls.extend(list.standing_pulls.into_iter().map(|status| (node.clone(), status)));
                answering.push(node);
            }
            Err(silence) => missing.push(format!("{node}: {silence}")),
        }
    }
    missing.iter().for_each(|what| output::remark(what));
    (standing_pulls, answering, missing.is_empty())
}

/// True if `what` is the beginning of the standing pull's id, or its image in any spelling.
fn is_selected(what: &str, status: &StandingPullStatus) -> bool {
    if is_key(what) && status.standing_pull.to_string().starts_with(&what.to_ascii_lowercase()) {
        return true;
    }
    same_image(&status.image, what)
}

fn print(args: &CancelArgs, node: &NodeName, status: &StandingPullStatus, now_ms: u64) {
    match args.asked.question.output.format {
        OutputFormat::Json => output::json(&standing_pull::json(node, status, now_ms)),
        OutputFormat::Text => output::fact(&format!("cancelled  {node}  {}  {}", output::one_line(&status.image), status.standing_pull)),
    }
}

/// Says that no standing pull is selected. `others` is how many others there are.
fn none_selected(what: &str, others: usize, all_answered: bool) -> String {
    let of = if all_answered { "" } else { " on the nodes that answered" };
    match (others, all_answered) {
        (0, true) => format!("no standing pull for {what}: there are none at all"),
        (0, false) => format!("no standing pull for {what}{of}: they have none at all"),
        (1, _) => format!("no standing pull for {what}{of}. There is 1 other:"),
        (others, _) => format!("no standing pull for {what}{of}. There are {others} others:"),
    }
}

fn list_standing_pulls(args: &CancelArgs, others: &[(NodeName, StandingPullStatus)], all_answered: bool) {
    output::remark(&none_selected(&args.what, others.len(), all_answered));
    if !others.is_empty() && !args.asked.question.output.quiet {
        let shown = others.iter().take(SHOWN).map(|(node, status)| (node, status));
        pulls::standing(shown)
            .lines(&Look { is_wide: true, ..Look::of_width(None) })
            .iter()
            .for_each(|line| output::remark(&format!("  {line}")));
        if others.len() > SHOWN {
            output::remark("  ... `fleetpull pulls` shows all");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_that_goes_on_is_named_with_its_callers() {
        for (callers, standing, expected) in [
            (1, 0, "n1 goes on pulling app:v1: 1 other caller waits for it, and it ends when it does"),
            (2, 0, "n1 goes on pulling app:v1: 2 other callers wait for it, and it ends when they do"),
            (
                2,
                1,
                "n1 goes on pulling app:v1: 2 other callers wait for it, and it ends when they do; `fleetpull cancel app:v1` ends the standing pulls among them",
            ),
        ] {
            let pull = serde_json::from_value(serde_json::json!({
                "image": "app:v1", "state": "pulling", "since_ms": 5, "callers": callers, "done_bytes": 0, "total_bytes": 0
            }));
            let node = "n1".parse().expect("a name");
            assert_eq!(why_it_goes_on(&node, &pull.expect("a status"), standing), expected);
        }
    }

    #[test]
    fn there_are_none_at_all_only_if_all_nodes_say_so() {
        for (others, all_answered, expected) in [
            (0, true, "no standing pull for app:v1: there are none at all"),
            (0, false, "no standing pull for app:v1 on the nodes that answered: they have none at all"),
            (1, true, "no standing pull for app:v1. There is 1 other:"),
            (4, true, "no standing pull for app:v1. There are 4 others:"),
            (4, false, "no standing pull for app:v1 on the nodes that answered. There are 4 others:"),
        ] {
            assert_eq!(none_selected("app:v1", others, all_answered), expected);
        }
    }

    #[test]
    fn a_standing_pull_is_meant_by_id_or_image() {
        let status: StandingPullStatus =
            serde_json::from_str(r#"{"standing_pull": "4bf92f3577b34da6a3ce929d0e0e4736", "image": "busybox"}"#).expect("a status");
        for what in ["4bf92f35", "4BF92F3577B34DA6A3CE929D0E0E4736", "busybox", "busybox:latest", "docker.io/library/busybox"] {
            assert!(is_selected(what, &status), "{what}");
        }
        for what in ["4bf92f3", "5bf92f35", "busybox:1", "", "a b"] {
            assert!(!is_selected(what, &status), "{what}");
        }
    }
}
