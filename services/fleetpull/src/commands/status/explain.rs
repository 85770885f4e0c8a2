//! Explains the row with an id, and finds the entries of a row.

use std::collections::BTreeSet;

use anyhow::Result;

use super::gather;
use super::ids::is_id;
use super::row::{Row, Source, What};
use super::rows::rows;
use crate::cli::{OutputFormat, QuestionArgs};
use crate::commands::{backoff, budget};
use crate::exit::{Exit, UsageError};
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

/// The key or image that names the back-off entries of the row with an id. None if no row has that id.
///
/// # Errors
/// Several rows have the id, or the row has no entry.
pub(in crate::commands) async fn name_of_row(client: &FleetClient, question: &QuestionArgs, id: &str) -> Result<Option<String>> {
    if !is_id(id) {
        return Ok(None);
    }
    let (answers, _) = gather::ask(client, question.fleet.selector.as_ref()).await?;
    Ok(name_among(&rows(&answers.known, &answers.budgets, &answers.waits), &answers.known, id)?)
}

fn name_among(rows: &[Row], known: &[Known], id: &str) -> Result<Option<String>, UsageError> {
    let named: Vec<&Row> = rows.iter().filter(|row| row.key.starts_with(id)).collect();
    let row = match named.as_slice() {
        [] => return Ok(None),
        [row] => row,
        several => return Err(UsageError(format!("{} rows have an ID that begins with {id}", several.len()))),
    };
    let (What::Registry(name) | What::Image(name)) = &row.what;
    match &row.source {
        // The row of a shared entry has its key; one of nodes' own entries has their image.
        Source::Entries(places) if places.iter().any(|place| known[*place].is_shared()) => Ok(Some(row.key.clone())),
        Source::Entries(_) => Ok(Some(name.clone())),
        Source::Budget => {
            let text = format!("{id} is the budget of {name}, which has no back-off entry: `fleetpull explain {id}` shows it");
            Err(UsageError(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{OWNER, Sample, budget, own, unavailable};
    use super::*;

    #[test]
    fn id_of_a_row_names_its_entries() {
        let other = OWNER.replace("registry.example", "other.example");
        let answers = Sample::of(2).knowing(&unavailable()).alone(1, own("third.example/a")).led(budget(&other, 0)).answers();
        let rows = rows(&answers.known, &answers.budgets, &answers.waits);
        let name_of = |name: &str| {
            let has_name = |row: &&Row| matches!(&row.what, What::Registry(of) | What::Image(of) if of == name);
            let id = rows.iter().find(has_name).map(|row| row.id.as_str()).expect("a row");
            name_among(&rows, &answers.known, id).map_err(|error| error.0)
        };
        assert_eq!(name_of("registry.example"), Ok(Some(unavailable().key)));
        assert_eq!(name_of("third.example/a:latest"), Ok(Some("third.example/a:latest".to_owned())));
        assert!(name_of("other.example").is_err_and(|error| error.contains("is the budget of other.example")));
        assert_eq!(name_among(&rows, &answers.known, "0123456789").map_err(|error| error.0), Ok(None));
        assert!(name_among(&rows, &answers.known, "").is_err(), "several");
    }
}
