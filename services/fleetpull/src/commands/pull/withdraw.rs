//! Ctrl-C: cancels the command's standing pulls, and says which pulls go on.

use std::collections::BTreeSet;

use contract::NodeName;
use contract::messages::pull_coordinator::{CancelStandingPull, ListPulls, PullList};

use super::node_pull::Job;
use super::plan::Plan;
use crate::commands::user_at_host::user_at_host;
use crate::fleet::Answer;
use crate::output;
use crate::output::known_failures::{named, same_image};
use crate::output::outcome::Row;

/// The exit status that shells use for a process ended by SIGINT.
const INTERRUPTED: i32 = 130;

/// Cancels the standing pulls of the command, says which pulls go on, and exits. A second Ctrl-C exits immediately.
pub(super) async fn interrupted(job: &Job<'_>, plan: &Plan, rows: &[Row]) {
    // With --detach a node has ended when its agent accepted the standing pull, so these nodes are added here.
    let standing = rows.iter().filter(|row| row.outcome.stands).map(|row| &row.node);
    let nodes: BTreeSet<NodeName> = plan.at_work().chain(standing).cloned().collect();
    let nodes: Vec<NodeName> = nodes.into_iter().collect();
    if job.standing_pulls.is_empty() {
        let at_work = if nodes.is_empty() { String::new() } else { format!(" ({})", named(&nodes)) };
        output::remark(&format!(
            "interrupted: the nodes stop within seconds the pulls that no other caller wants; `fleetpull pulls` shows what goes on{at_work}"
        ));
        std::process::exit(INTERRUPTED);
    }
    output::remark("interrupted: the standing pulls are withdrawn; Ctrl-C again leaves them with the agents");
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => output::remark("the remaining standing pulls go on until their time is over; `fleetpull cancel` ends them"),
        () = withdraw(job, &nodes) => {}
    }
    std::process::exit(INTERRUPTED);
}

async fn withdraw(job: &Job<'_>, nodes: &[NodeName]) {
    let (mut withdrawn, mut silent) = (0, Vec::new());
    for id in job.standing_pulls.values() {
        for (node, answer) in job.client.ask_each(nodes, &CancelStandingPull { what: id.to_string(), by: user_at_host() }).await {
            match answer {
                Ok(done) => {
                    withdrawn += done.cancelled.len();
                    done.problem.iter().for_each(|problem| output::remark(&format!("{node}: {problem}")));
                }
                Err(_) if silent.contains(&node) => {}
                Err(_) => silent.push(node),
            }
        }
    }
    output::remark(&format!("{withdrawn} {} withdrawn", if withdrawn == 1 { "standing pull was" } else { "standing pulls were" }));
    if !silent.is_empty() {
        output::remark(&format!(
            "{} did not answer: its standing pulls end when their time is over, or by `fleetpull cancel`",
            named(&silent)
        ));
    }
    let images: Vec<&str> = job.standing_pulls.keys().map(String::as_str).collect();
    let pulls = job.client.ask_each(nodes, &ListPulls {}).await;
    what_goes_on(&images, &pulls, &silent).iter().for_each(|line| output::remark(line));
}

/// Says which of these images nodes go on pulling, by their lists of pulls. `silent` are the nodes that have not withdrawn their standing
/// pulls, and were named.
fn what_goes_on(images: &[&str], pulls: &[Answer<PullList>], silent: &[NodeName]) -> Vec<String> {
    let running = |image: &&str| {
        let of_image = |list: &PullList| list.pulls.iter().any(|pull| same_image(&pull.image, image));
        let nodes = nodes_that(pulls, |_, answer| answer.as_ref().is_ok_and(of_image))?;
        Some(format!("left running because another caller wants it: {image} on {nodes}"))
    };
    let mut lines: Vec<String> = images.iter().filter_map(running).collect();
    match nodes_that(pulls, |node, answer| !answer.as_ref().is_ok_and(|list| list.left_out == 0) && !silent.contains(node)) {
        Some(nodes) => lines.push(format!("{nodes} did not answer what is left running there: `fleetpull pulls` shows it")),
        None if lines.is_empty() && silent.is_empty() => lines.push("nothing is left running".to_owned()),
        None => {}
    }
    lines
}

/// Names the nodes whose answers are like this. None if there are none.
fn nodes_that(pulls: &[Answer<PullList>], are: impl Fn(&NodeName, &Result<PullList, String>) -> bool) -> Option<String> {
    let nodes: Vec<NodeName> = pulls.iter().filter(|(node, answer)| are(node, answer)).map(|(node, _)| node.clone()).collect();
    (!nodes.is_empty()).then(|| named(&nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_running_only_if_every_node_says_so() {
        let node = |name: &str| name.parse::<NodeName>().expect("a name");
        let list = |images: &[&str]| {
            let pull = |image: &&str| serde_json::json!({ "image": image, "state": "pulling", "since_ms": 5, "callers": 1, "done_bytes": 0, "total_bytes": 0 });
            let pulls: Vec<serde_json::Value> = images.iter().map(pull).collect();
            serde_json::from_value::<PullList>(serde_json::json!({ "pulls": pulls })).map_err(|error| error.to_string())
        };
        let late = || Err("the agent of n2 is silent for 3s".to_owned());
        let unknown = "n2 did not answer what is left running there: `fleetpull pulls` shows it";
        for (answers, silent, expected) in [
            ([list(&[]), list(&["other:1"])], vec![], vec!["nothing is left running"]),
            ([list(&[]), late()], vec![], vec![unknown]),
            ([list(&[]), Ok(PullList { left_out: 1, ..PullList::default() })], vec![], vec![unknown]),
            ([list(&["docker.io/library/a"]), late()], vec![], vec!["left running because another caller wants it: a on n1", unknown]),
            // It was named, because it has not withdrawn its standing pulls.
            ([list(&[]), late()], vec![node("n2")], vec![]),
            ([list(&[]), list(&[])], vec![node("n2")], vec![]),
        ] {
            let pulls: Vec<Answer<PullList>> = [node("n1"), node("n2")].into_iter().zip(answers).collect();
            assert_eq!(what_goes_on(&["a"], &pulls, &silent), expected);
        }
    }
}
