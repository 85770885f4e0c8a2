//! Explains the row with an id.

use std::collections::BTreeSet;

use anyhow::Result;

use super::gather;
use super::row::Source;
use super::rows::rows;
use crate::cli::{OutputFormat, QuestionArgs};
use crate::commands::{backoff, budget};
use crate::exit::Exit;
use crate::fleet::FleetClient;
use crate::output;
use crate::output::known_failures::Known;

/// Shows the back-off entries and budgets of the rows that an id names. None if no row has that id.
pub(in crate::commands) async fn explain(client: &FleetClient, question: &QuestionArgs, id: &str) -> Result<Option<Exit>> {
    let (answers, exit) = gather::ask(client, question.fleet.selector.as_ref()).await?;
    let mut named = rows(&answers.known, &answers.budgets, &answers.waits);
    named.retain(|row| row.key.starts_with(id));
    if named.is_empty() {
        return Ok(None);
    }
    let places = named.iter().filter_map(|row| if let Source::Entries(places) = &row.source { Some(places) } else { None });
    let known: Vec<Known> = places.flatten().map(|place| answers.known[*place].clone()).collect();
    let owners: BTreeSet<&str> = named.iter().filter_map(|row| row.figures.as_ref()).map(|figures| figures.owner.as_str()).collect();
    let budgets: Vec<&budget::Budget> = answers.budgets.all().filter(|budget| owners.contains(budget.state.owner.as_str())).collect();
    let now_ms = client.clock().now().wall_ms();
    match question.output.format {
        OutputFormat::Json => known.iter().for_each(|known| output::json(&known.json(now_ms))),
        OutputFormat::Text => backoff::show(&known, now_ms),
    }
    if !budgets.is_empty() {
        budget::show(&budgets, question.output);
    }
    Ok(Some(exit))
}
