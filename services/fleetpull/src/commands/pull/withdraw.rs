//! Ctrl-C: cancels the command's standing pulls, and says which pulls go on.

use std::collections::BTreeSet;

use contract::NodeName;
use contract::messages::pull_coordinator::{CancelStandingPull, ListPulls};

use super::node_pull::Job;
use super::plan::Plan;
use crate::commands::acting::by;
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
        for (node, answer) in job.client.ask_each(nodes, &CancelStandingPull { what: id.to_string(), by: by() }).await {
            match answer {
                Ok(done) => withdrawn += done.cancelled.len(),
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
    let mut left = false;
    for image in job.standing_pulls.keys() {
        let mut running = Vec::new();
        for (node, answer) in job.client.ask_each(nodes, &ListPulls {}).await {
            if answer.is_ok_and(|list| list.pulls.iter().any(|pull| same_image(&pull.image, image))) {
                running.push(node);
            }
        }
        if !running.is_empty() {
            left = true;
            output::remark(&format!("left running because another caller wants it: {image} on {}", named(&running)));
        }
    }
    if !left && silent.is_empty() {
        output::remark("nothing is left running");
    }
}
