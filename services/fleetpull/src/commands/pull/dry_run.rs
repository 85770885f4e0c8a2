//! Shows what a pull on many nodes would do: which nodes have the image, what would happen, and how many bytes would be fetched.

use std::time::Duration;

use anyhow::Result;
use contract::NodeName;
use contract::messages::pull_coordinator::{ExplainImage, Explanation};
use serde::Serialize;

use super::late::Late;
use super::size_estimate::{self, ToFetch};
use crate::cli::{OutputFormat, PullArgs};
use crate::commands::holds::Budgets;
use crate::exit::Exit;
use crate::fleet::FleetClient;
use crate::output::{self, given, table, units};

/// An image on a node, as JSON.
#[derive(Default, Serialize)]
struct JsonRow<'a> {
    image: Option<&'a str>,
    /// Null if the name is unknown.
    node: Option<&'a str>,
    /// True if the image is present. Null if unknown.
    present: Option<bool>,
    in_flight: bool,
    /// The expected result in one sentence.
    would: Option<&'a str>,
    next_attempt_ms: Option<u64>,
    /// How long the pull would wait for its registry's budget.
    budget_wait_ms: Option<u64>,
    /// The bytes of the image that the node lacks. Null if unknown.
    bytes_to_fetch: Option<u64>,
    /// True if `bytes_to_fetch` is the whole image, because the node's runtime does not report its layers.
    bytes_at_most: bool,
    /// Why `bytes_to_fetch` is unknown.
    bytes_unknown: Option<&'a str>,
    /// Why the node gave no answer.
    error: Option<&'a str>,
}

/// The answer of a node about an image.
struct Answer<'a> {
    image: &'a str,
    node: NodeName,
    explanation: Result<Explanation, String>,
    to_fetch: ToFetch,
}

/// Writes the JSON row of an image on a node that could not be asked.
pub(super) fn print_unasked(image: &str, node: Option<&NodeName>, why: &str) {
    let (image, why) = (given(image), given(why));
    output::json(&JsonRow { image, node: node.map(NodeName::as_str), bytes_unknown: why, error: why, ..JsonRow::default() });
}

/// Asks every node, and pulls nothing.
pub(super) async fn carry_out(args: &PullArgs, client: &FleetClient, mut nodes: Vec<NodeName>, mut late: Late) -> Result<Exit> {
    if let Some(look) = late.look(client) {
        nodes.extend(late.take_answers(look.await));
        nodes.sort();
    }
    let silent = late.silent_with_reasons(Duration::ZERO);
    let mut answers = Vec::new();
    for image in &args.images {
        answers.extend(ask(args, client, &nodes, image).await);
        answers.extend(silent.iter().map(|(node, why)| Answer::unanswered(image, node, why.clone())));
    }
    late.name_unsure(args.output.quiet);
    match args.output.format {
        OutputFormat::Json => answers.iter().for_each(|answer| output::json(&answer.json())),
        OutputFormat::Text => {
            let rows: Vec<Vec<String>> = answers.iter().map(Answer::row).collect();
            table::columns(&["NODE", "IMAGE", "PRESENT", "TO FETCH", "WOULD"], &rows).iter().for_each(|line| output::fact(line));
            output::fact(&in_all(&answers));
            if !args.output.quiet {
                sum_up(&answers);
            }
        }
    }
    Ok(exit_of(&answers))
}

/// The exit status. Partial if only some nodes answered, as for the pull itself.
fn exit_of(answers: &[Answer<'_>]) -> Exit {
    match answers.iter().filter(|answer| answer.explanation.is_ok()).count() {
        answered if answered == answers.len() => Exit::Success,
        0 => Exit::Failure,
        _ => Exit::Partial,
    }
}

async fn ask<'a>(args: &PullArgs, client: &FleetClient, nodes: &[NodeName], image: &'a str) -> Vec<Answer<'a>> {
    let platform = args.platform.as_ref().map(ToString::to_string);
    let command = ExplainImage { image: image.to_owned(), policy: args.policy, pod: args.pod.clone(), platform, ..ExplainImage::default() };
    let mut answered = client.ask_each(nodes, &command).await;
    if answered.iter().any(|(_, explanation)| explanation.as_ref().is_ok_and(|explanation| explanation.budget.is_some())) {
        let budgets = Budgets::of(client, nodes).await;
        answered.iter_mut().filter_map(|(_, explanation)| explanation.as_mut().ok()).for_each(|explanation| budgets.complete(explanation));
    }
    let explanations: Vec<(&NodeName, &Explanation)> =
        answered.iter().filter_map(|(node, explanation)| Some((node, explanation.as_ref().ok()?))).collect();
    let mut to_fetch = size_estimate::estimate(client, &command, &explanations).await;
    let answer = |(node, explanation): (NodeName, Result<Explanation, String>)| match explanation {
        Ok(explanation) => {
            let to_fetch = to_fetch.remove(&node).unwrap_or_else(|| ToFetch::Unknown(String::new()));
            Answer { image, node, explanation: Ok(explanation), to_fetch }
        }
        Err(silence) => Answer::unanswered(image, &node, silence),
    };
    answered.into_iter().map(answer).collect()
}

impl<'a> Answer<'a> {
    fn unanswered(image: &'a str, node: &NodeName, why: String) -> Self {
        Self { image, node: node.clone(), to_fetch: ToFetch::Unknown(why.clone()), explanation: Err(why) }
    }

    fn present(&self) -> Option<bool> {
        self.explanation.as_ref().ok().and_then(|explanation| explanation.present)
    }

    fn unknown(&self) -> &str {
        if let ToFetch::Unknown(why) = &self.to_fetch { why } else { "" }
    }

    fn json(&self) -> JsonRow<'_> {
        let explanation = self.explanation.as_ref().ok();
        JsonRow {
            image: given(self.image),
            node: Some(self.node.as_str()),
            present: self.present(),
            in_flight: explanation.is_some_and(|explanation| explanation.in_flight),
            would: explanation.map(|explanation| explanation.verdict.as_str()),
            next_attempt_ms: explanation.and_then(|explanation| explanation.next_attempt_ms),
            budget_wait_ms: explanation.and_then(|explanation| explanation.budget_hold.as_ref()?.wait_ms),
            bytes_to_fetch: self.to_fetch.bytes(),
            bytes_at_most: matches!(self.to_fetch, ToFetch::UpTo(_)),
            bytes_unknown: given(self.unknown()),
            error: self.explanation.as_ref().err().map(String::as_str),
        }
    }

    fn row(&self) -> Vec<String> {
        let present = match self.present() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        let bytes = match &self.to_fetch {
            ToFetch::Bytes(bytes) => units::bytes(*bytes),
            ToFetch::UpTo(bytes) => format!("up to {}", units::bytes(*bytes)),
            ToFetch::Unknown(_) => "?".to_owned(),
        };
        let would = self.explanation.as_ref().map_or_else(Clone::clone, |explanation| explanation.verdict.clone());
        vec![self.node.to_string(), self.image.to_owned(), present.to_owned(), bytes, would]
    }
}

/// The total number of bytes, and the number of pulls for which it is unknown.
fn in_all(answers: &[Answer<'_>]) -> String {
    let bytes = answers.iter().filter_map(|answer| answer.to_fetch.bytes()).fold(0, u64::saturating_add);
    let up_to = if answers.iter().any(|answer| matches!(answer.to_fetch, ToFetch::UpTo(1..))) { "up to " } else { "" };
    let unknown = answers.iter().filter(|answer| answer.to_fetch.bytes().is_none()).count();
    let unknown = if unknown == 0 { String::new() } else { format!("; unknown for {unknown} of {}", answers.len()) };
    format!("to fetch in all: {up_to}{}{unknown}", units::bytes(bytes))
}

fn sum_up(answers: &[Answer<'_>]) {
    let there = answers.iter().filter(|answer| answer.present() == Some(true)).count();
    let unknown = answers.iter().filter(|answer| answer.present().is_none()).count();
    let unknown = if unknown == 0 { String::new() } else { format!(", it is not known of {unknown}") };
    output::remark(&format!("{there} of {} are there{unknown}. Nothing was pulled.", answers.len()));
    // Nodes of one platform have the same reason, so each reason is shown once.
    let mut shown: Vec<(&str, &str)> = Vec::new();
    for answer in answers.iter().filter(|answer| answer.explanation.is_ok() && !answer.unknown().is_empty()) {
        if !shown.contains(&(answer.image, answer.unknown())) {
            shown.push((answer.image, answer.unknown()));
            output::remark(&format!("how much of {} is to be fetched is not known: {}", answer.image, output::one_line(answer.unknown())));
        }
    }
}
