//! `fleetpull explain`

mod here;
mod json;
mod pod;
mod summary;
mod text;

use std::collections::BTreeSet;

use anyhow::Result;
use clock::Clock;
use contract::NodeName;
use contract::messages::agent::BusLoss;
use contract::messages::pull_coordinator::{ExplainImage, Explanation, PullPolicy};
use image::{Reference, ReferenceError};

use super::holds::{self, Budgets};
use super::pull::advice;
use super::status;
use crate::cli::{ExplainArgs, OutputFormat};
use crate::configuration::Configuration;
use crate::exit::{Exit, UsageError};
use crate::fleet::{FleetClient, connect, connect_here};
use crate::output::known_failures::Known;
use crate::output::silent::Silent;
use crate::output::units::SOON_MS;
use crate::output::{self, given};

/// The result of an explanation.
#[derive(Default)]
struct Findings {
    verdicts: Vec<Verdict>,
    /// The merged back-off entries of the image, shared or not.
    known: Vec<Known>,
    /// Selected nodes that the fleet knows but that do not answer.
    silent: Vec<Silent>,
    /// The asked node, if it has lost its bus.
    bus_lost: Option<(NodeName, BusLoss)>,
}

/// The explanation of a pull by one node, or by this process.
struct Verdict {
    node: Option<NodeName>,
    explanation: Result<Explanation, String>,
}

impl Verdict {
    /// True if there is an explanation, and it is not that nothing can be pulled here with these settings.
    fn is_good(&self) -> bool {
        let fails = |explanation: &Explanation| {
            explanation.class.is_some() || (explanation.inspect_error.is_some() && explanation.policy != PullPolicy::Always.as_str())
        };
        self.explanation.as_ref().is_ok_and(|explanation| self.node.is_some() || !fails(explanation))
    }
}

/// Shows how a reference is parsed, and what would happen if it were pulled now.
pub(super) fn carry_out(args: &ExplainArgs) -> Result<Exit> {
    let question = &args.asked.question;
    let selected_pod = args.selected_pod()?;
    let configuration = Configuration::load(&question.settings, [args.runtime.flags(), question.flags()].concat())?;
    // A bus error ends this command and is reported then, so it is not logged.
    configuration.start_log("error");
    if let Some(pod) = selected_pod {
        return actix::System::new().block_on(pod::explain(args, &configuration, &pod));
    }
    if let Some(exit) = actix::System::new().block_on(explain_row(args, &configuration)) {
        return Ok(exit);
    }
    let reference = match Reference::parse(&args.image) {
        Ok(reference) => reference,
        Err(error) => {
            print_unreadable(args, &args.image, &error);
            if let Some(advice) = advice::of_name(&args.image).filter(|_| !args.asked.question.output.quiet) {
                output::remark(&format!("hint: {advice}"));
            }
            return Ok(Exit::Failure);
        }
    };
    let findings = match actix::System::new().block_on(find_out(args, &configuration, &reference)) {
        Ok(findings) => findings,
        Err(error) if Exit::of_error(&error) == Exit::Usage => return Err(error),
        // The parsed reference is shown even if no node can be asked.
        Err(error) => {
            Findings { verdicts: vec![Verdict { node: None, explanation: Err(output::error_text(&error)) }], ..Findings::default() }
        }
    };
    match args.asked.question.output.format {
        OutputFormat::Json => json::print(&args.image, &reference, &findings, None, Clock::host().now().wall_ms()),
        OutputFormat::Text => text::print(&reference, &findings),
    }
    give_advice(args, &findings);
    Ok(if findings.verdicts.iter().all(Verdict::is_good) { Exit::Success } else { Exit::Failure })
}

/// Reports an invalid image, in kubelet's words.
fn print_unreadable(args: &ExplainArgs, image: &str, error: &ReferenceError) {
    let error = error.kubelet_message(image);
    match args.asked.question.output.format {
        OutputFormat::Json => output::json(&serde_json::json!({ "image": given(image), "error": error })),
        OutputFormat::Text => output::fact(&format!("error:              {error}")),
    }
}

/// Explains rows of `fleetpull status` if the argument names some by an id or a registry. If it names none, it is an image.
async fn explain_row(args: &ExplainArgs, configuration: &Configuration) -> Option<Exit> {
    if !status::may_name_rows(&args.image) {
        return None;
    }
    // An error here occurs again for the image, and is reported then.
    let client = client(args, configuration).await.ok()??;
    status::explain(&client, &args.asked.question, &args.image).await.ok()?
}

/// Gives advice that the runtime's own error cannot contain, on stderr in text output.
fn give_advice(args: &ExplainArgs, findings: &Findings) {
    let wanted = args.asked.question.output;
    if wanted.quiet || wanted.format != OutputFormat::Text {
        return;
    }
    let inspected = findings.verdicts.iter().filter_map(|verdict| verdict.explanation.as_ref().ok()?.inspect_error.as_deref());
    let advice: BTreeSet<String> = inspected.filter_map(advice::of_socket).collect();
    advice.iter().for_each(|advice| output::remark(&format!("hint: {advice}")));
    if status::may_name_rows(&args.image) && findings.verdicts.iter().any(|verdict| verdict.node.is_some()) {
        let what = if status::is_id(&args.image) { "the ID of no row" } else { "no registry" };
        output::remark(&format!("hint: {} is {what} that `fleetpull status` shows now, so it is read as an image", args.image));
    }
}

/// True if agents are asked. A given store or login selects this process, even if a server is configured.
fn is_for_fleet(args: &ExplainArgs, configuration: &Configuration) -> Result<bool, UsageError> {
    let fleet = &args.asked.question.fleet;
    let named = !args.asked.nodes.is_empty() || fleet.agent.is_some() || fleet.selector.is_some();
    let reached = named || fleet.nats.nats.is_some() || fleet.nats.nats_context.is_some();
    if reached && args.runtime.is_given() {
        let usage = "--runtime, --store, --runtime-endpoint and --authfile are for a question to this process: other nodes have their own";
        return Err(UsageError(usage.to_owned()));
    }
    Ok(reached || (configuration.settings().nats.is_wanted() && !args.runtime.is_given()))
}

/// A client for the agents. None if this process answers.
async fn client(args: &ExplainArgs, configuration: &Configuration) -> Result<Option<FleetClient>> {
    let question = &args.asked.question;
    let is_for_fleet = is_for_fleet(args, configuration)?;
    // A given store or login belongs to this process.
    let found = if args.runtime.is_given() { None } else { connect_here(&question.fleet, configuration, question.output.quiet).await? };
    match found {
        Some(client) => Ok(Some(client)),
        None if is_for_fleet => Ok(Some(connect(&question.fleet, configuration).await?)),
        None => Ok(None),
    }
}

async fn find_out(args: &ExplainArgs, configuration: &Configuration, reference: &Reference) -> Result<Findings> {
    let Some(client) = client(args, configuration).await? else {
        let here = Verdict { node: None, explanation: Ok(here::explain(configuration, args, reference).await) };
        return Ok(Findings { verdicts: vec![here], ..Findings::default() });
    };
    let nodes = client.selected_nodes(&args.asked).await?;
    let (silent, bus_lost) = (client.silent_of(&args.asked, &nodes).await, bus_lost(&client).await);
    let question = ExplainImage { image: args.image.clone(), policy: args.policy, ..ExplainImage::default() };
    Ok(Findings { silent, bus_lost, ..ask(&client, &nodes, &question).await })
}

/// Asks the nodes about a pull, and adds the budget leaders' answers and all back-off entries of the image.
async fn ask(client: &FleetClient, nodes: &[NodeName], question: &ExplainImage) -> Findings {
    let mut answers = client.ask_each(nodes, question).await;
    let has_budget = answers.iter().any(|(_, explanation)| explanation.as_ref().is_ok_and(|explanation| explanation.budget.is_some()));
    let budgets = if has_budget { Budgets::of(client, nodes).await } else { Budgets::default() };
    if has_budget {
        answers.iter_mut().filter_map(|(_, explanation)| explanation.as_mut().ok()).for_each(|explanation| budgets.complete(explanation));
    }
    let verdicts: Vec<Verdict> = answers.into_iter().map(|(node, explanation)| Verdict { node: Some(node), explanation }).collect();
    let held = nodes_where(&verdicts, |explanation| explanation.class.is_some() || explanation.next_attempt_ms.is_some());
    let is_held = !held.is_empty();
    let concerned = if is_held { held } else { nodes_where(&verdicts, would_ask) };
    let mut known = if concerned.is_empty() { Vec::new() } else { super::backoff::of_image(client, &concerned, &question.image).await };
    if !is_held {
        known = due(known, &concerned);
    }
    if has_budget {
        budgets.delay(&mut known);
    } else {
        // Nodes that only observe name no budget, but list the entry of one.
        holds::delay(client, nodes, &mut known).await;
    }
    summary::sort(&mut known);
    Findings { verdicts, known, ..Findings::default() }
}

fn nodes_where(verdicts: &[Verdict], is: impl Fn(&Explanation) -> bool) -> Vec<NodeName> {
    let those = verdicts.iter().filter(|verdict| verdict.explanation.as_ref().is_ok_and(&is));
    those.filter_map(|verdict| verdict.node.clone()).collect()
}

/// True if a pull would ask a registry.
fn would_ask(explanation: &Explanation) -> bool {
    !explanation.in_flight && (explanation.present != Some(true) || explanation.policy == PullPolicy::Always.as_str())
}

/// The entries of these nodes whose next attempt is due. They hold no node back, but the next pull is the attempt that closes them or not.
fn due(mut known: Vec<Known>, nodes: &[NodeName]) -> Vec<Known> {
    known.retain(|known| known.due_ms() < SOON_MS && nodes.iter().any(|node| known.concerns(node)));
    known
}

/// The loss of the bus that the agent behind a socket reports.
async fn bus_lost(client: &FleetClient) -> Option<(NodeName, BusLoss)> {
    if client.bus().is_some() {
        return None;
    }
    let described = client.nodes().await.ok()?;
    described.into_iter().find_map(|node| Some((node.node, node.bus_loss?)))
}

#[cfg(test)]
mod tests {
    use contract::View;
    use contract::messages::backoff_tracker::BackoffEntry;

    use super::*;
    use crate::output::known_failures::Merger;

    #[test]
    fn due_entries_of_nodes_that_would_pull_are_explained() {
        let nodes = ["n1", "n2"].map(|name| name.parse::<NodeName>().expect("a name"));
        let entry = |key: &str, binds: &str, next_attempt_ms| BackoffEntry {
            key: key.to_owned(),
            view: Some(View::default()),
            binds: binds.to_owned(),
            reporters: vec!["n1".to_owned()],
            reporter_count: 1,
            next_attempt_ms,
            ..BackoffEntry::default()
        };
        let of = |asking: &[NodeName]| {
            let mut merger = Merger::default();
            let entries = || vec![entry("due", "everybody", 0), entry("later", "everybody", 9_000), entry("few", "reporters", 0)];
            nodes.iter().for_each(|node| merger.add(node, entries()));
            let mut keys: Vec<String> = due(merger.into_known(), asking).into_iter().map(|known| known.entry.key).collect();
            keys.sort();
            keys
        };
        assert_eq!(of(&nodes), ["due", "few"]);
        assert_eq!(of(&nodes[1..]), ["due"], "n2 has not reported the other one");
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn only_a_pull_of_an_absent_image_would_ask_a_registry() {
        let explanation = |policy: PullPolicy, present, in_flight| Explanation {
            policy: policy.to_string(),
            present: Some(present),
            in_flight,
            ..Explanation::default()
        };
        let of = |policy, present, in_flight| would_ask(&explanation(policy, present, in_flight));
        assert!(of(PullPolicy::IfNotPresent, false, false) && of(PullPolicy::Always, true, false));
        assert!(!of(PullPolicy::IfNotPresent, true, false) && !of(PullPolicy::IfNotPresent, false, true));
    }
}
