//! What a pull on many nodes would do: who has it, and what would happen.

use std::time::Duration;

use anyhow::Result;
use contract::NodeName;
use contract::messages::pull_coordinator::{ExplainImage, Explanation};
use serde::Serialize;

use crate::cli::{OutputFormat, PullArgs};
use crate::exit::Exit;
use crate::fleet::FleetClient;
use crate::output::{self, table, units};

/// One image on one node as JSON.
#[derive(Serialize)]
struct JsonRow<'a> {
    image: &'a str,
    node: &'a NodeName,
    /// Whether it is there; null when that is not known.
    present: Option<bool>,
    in_flight: bool,
    /// What would happen, in one sentence.
    would: &'a str,
    next_try_ms: Option<u64>,
    /// 0 where nothing would be fetched, null where nobody knows: no registry is asked.
    bytes_to_fetch: Option<u64>,
    /// Why the node did not say, else empty.
    error: &'a str,
}

/// What one node said of one image.
struct Answer<'a> {
    image: &'a str,
    node: NodeName,
    said: Result<Explanation, String>,
}

/// Asks every node and pulls nothing.
pub(super) async fn carry_out(args: &PullArgs, client: &FleetClient, nodes: &[NodeName], silent: &[(NodeName, Duration)]) -> Result<Exit> {
    let mut answers = Vec::new();
    for image in &args.images {
        let command = ExplainImage { image: image.clone(), policy: args.policy, pod: args.pod.clone() };
        let told = client.ask_each(nodes, &command).await;
        answers.extend(told.into_iter().map(|(node, said)| Answer { image, node, said }));
        answers.extend(silent.iter().map(|(node, ago)| Answer { image, node: node.clone(), said: Err(silence(*ago)) }));
    }
    match args.output.format {
        OutputFormat::Json => answers.iter().for_each(|answer| output::json(&answer.json())),
        OutputFormat::Text => {
            let rows: Vec<Vec<String>> = answers.iter().map(Answer::row).collect();
            table::columns(&["NODE", "IMAGE", "PRESENT", "TO FETCH", "WOULD"], &rows).iter().for_each(|line| output::fact(line));
            if !args.output.quiet {
                sum_up(&answers);
            }
        }
    }
    Ok(if answers.iter().all(|answer| answer.said.is_ok()) { Exit::Success } else { Exit::Failure })
}

fn silence(ago: Duration) -> String {
    format!("known, but silent: heard {} ago", units::seconds(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)))
}

impl Answer<'_> {
    fn present(&self) -> Option<bool> {
        self.said.as_ref().ok().and_then(|said| said.present)
    }

    /// What is there is asked for again by the policy Always alone, and then no more than the manifest as a rule.
    fn bytes_to_fetch(&self) -> Option<u64> {
        let said = self.said.as_ref().ok()?;
        (said.present == Some(true) && said.policy != "Always").then_some(0)
    }

    fn json(&self) -> JsonRow<'_> {
        let said = self.said.as_ref().ok();
        JsonRow {
            image: self.image,
            node: &self.node,
            present: self.present(),
            in_flight: said.is_some_and(|said| said.in_flight),
            would: said.map_or("", |said| &said.verdict),
            next_try_ms: said.and_then(|said| said.next_try_ms),
            bytes_to_fetch: self.bytes_to_fetch(),
            error: self.said.as_ref().err().map_or("", String::as_str),
        }
    }

    fn row(&self) -> Vec<String> {
        let present = match self.present() {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        let bytes = self.bytes_to_fetch().map_or_else(|| "?".to_owned(), units::bytes);
        let would = self.said.as_ref().map_or_else(Clone::clone, |said| said.verdict.clone());
        vec![self.node.to_string(), self.image.to_owned(), present.to_owned(), bytes, would]
    }
}

fn sum_up(answers: &[Answer<'_>]) {
    let there = answers.iter().filter(|answer| answer.present() == Some(true)).count();
    let unknown = answers.iter().filter(|answer| answer.present().is_none()).count();
    let unknown = if unknown == 0 { String::new() } else { format!(", of {unknown} it is not known") };
    output::remark(&format!(
        "{there} of {} are there{unknown}. Nothing was pulled, and no registry was asked: how much is to be fetched is not known.",
        answers.len()
    ));
}
