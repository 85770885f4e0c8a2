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
    let held = verdicts.iter().filter(|verdict| {
        verdict.explanation.as_ref().is_ok_and(|explanation| explanation.class.is_some() || explanation.next_attempt_ms.is_some())
    });
    let held: Vec<NodeName> = held.filter_map(|verdict| verdict.node.clone()).collect();
    let mut known = if held.is_empty() { Vec::new() } else { super::backoff::of_image(client, &held, &question.image).await };
    if has_budget {
        budgets.delay(&mut known);
    } else {
        // Nodes that only observe name no budget, but list the entry of one.
        holds::delay(client, nodes, &mut known).await;
    }
    summary::sort(&mut known);
    Findings { verdicts, known, ..Findings::default() }
}

/// The loss of the bus that the agent behind a socket reports.
async fn bus_lost(client: &FleetClient) -> Option<(NodeName, BusLoss)> {
    if client.bus().is_some() {
        return None;
    }
    let described = client.nodes().await.ok()?;
    described.into_iter().find_map(|node| Some((node.node, node.bus_loss?)))
}
