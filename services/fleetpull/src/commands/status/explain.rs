//! Explains the row with an id or the rows of a registry, and finds what can be cleared of a row.

use std::collections::BTreeSet;

use anyhow::Result;
use contract::policy::registry_name;

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

/// True if a text may name rows: it can be an id, or it is written as a registry.
pub(in crate::commands) fn may_name_rows(text: &str) -> bool {
    is_id(text) || registry_name(text).is_some()
}

/// Shows the back-off entries and budgets of the row with an id, or of all rows about a registry. None if the text names no row.
pub(in crate::commands) async fn explain(client: &FleetClient, question: &QuestionArgs, text: &str) -> Result<Option<Exit>> {
    let (answers, exit) = gather::ask(client, question.fleet.selector.as_ref()).await?;
    let mut named = rows(&answers.known, &answers.budgets, &answers.waits);
    named.retain(|row| is_named(row, text));
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

/// True if a text is the id of a row, or the registry that the row is about.
fn is_named(row: &Row, text: &str) -> bool {
    (is_id(text) && row.key.starts_with(text)) || registry_name(text).is_some_and(|registry| row.what == What::Registry(registry))
}

/// What `backoff clear` clears of a row.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) struct ToClear {
    /// The key or image that names the back-off entries.
    pub(in crate::commands) name: Option<String>,
    /// The owner of a budget whose quota is used up.
    pub(in crate::commands) spent_owner: Option<String>,
}

/// What is to clear of the row with an id. None if no row has that id.
///
/// # Errors
/// Several rows have the id, or nothing of the row can be cleared.
pub(in crate::commands) async fn to_clear(client: &FleetClient, question: &QuestionArgs, id: &str) -> Result<Option<ToClear>> {
    if !is_id(id) {
        return Ok(None);
    }
    let (answers, _) = gather::ask(client, question.fleet.selector.as_ref()).await?;
    Ok(to_clear_among(&rows(&answers.known, &answers.budgets, &answers.waits), &answers.known, id)?)
}

fn to_clear_among(rows: &[Row], known: &[Known], id: &str) -> Result<Option<ToClear>, UsageError> {
    let named: Vec<&Row> = rows.iter().filter(|row| row.key.starts_with(id)).collect();
    let row = match named.as_slice() {
        [] => return Ok(None),
        [row] => row,
        several => {
            return Err(UsageError(format!(
                "{} rows have an ID that begins with {id}: give it as `fleetpull status` shows it now",
                several.len()
            )));
        }
    };
    let (What::Registry(what) | What::Image(what)) = &row.what;
    let name = match &row.source {
        // The row of a shared entry has its key; one of nodes' own entries has their image.
        Source::Entries(places) if places.iter().any(|place| known[*place].is_shared()) => Some(row.key.clone()),
        Source::Entries(_) => Some(what.clone()),
        Source::Budget => None,
    };
    let spent_owner = row.figures.as_ref().filter(|figures| figures.is_spent).map(|figures| figures.owner.clone());
    if name.is_none() && spent_owner.is_none() {
        let text = format!("{id} is the rate of {what}, which cannot be cleared: `fleetpull explain {id}` says why it is low");
        return Err(UsageError(text));
    }
    Ok(Some(ToClear { name, spent_owner }))
}

#[cfg(test)]
mod tests {
    use contract::messages::throttler::{BudgetState, KnownLimits};

    use super::super::samples::{OWNER, Sample, budget, limited, missing, own, unavailable};
    use super::*;

    #[test]
    fn id_of_a_row_names_what_is_cleared() {
        let (other, slow) = (OWNER.replace("registry.example", "other.example"), OWNER.replace("registry.example", "slow.example"));
        let queued = BudgetState { waiting_count: 1, known: KnownLimits::default(), ..budget(&slow, 0) };
        let sample = Sample::of(2).knowing(&unavailable()).alone(1, own("third.example/a")).led(budget(&other, 0)).led(queued);
        let answers = sample.answers();
        let rows = rows(&answers.known, &answers.budgets, &answers.waits);
        let to_clear = |name: &str| {
            let has_name = |row: &&Row| matches!(&row.what, What::Registry(of) | What::Image(of) if of == name);
            let id = rows.iter().find(has_name).map(|row| row.id.as_str()).expect("a row");
            to_clear_among(&rows, &answers.known, id).map_err(|error| error.0)
        };
        let of = |name: Option<&str>, spent_owner: Option<&str>| {
            Ok(Some(ToClear { name: name.map(str::to_owned), spent_owner: spent_owner.map(str::to_owned) }))
        };
        assert_eq!(to_clear("registry.example"), of(Some(unavailable().key.as_str()), None));
        assert_eq!(to_clear("third.example/a:latest"), of(Some("third.example/a:latest"), None));
        assert_eq!(to_clear("other.example"), of(None, Some(other.as_str())));
        assert!(to_clear("slow.example").is_err_and(|error| error.contains("is the rate of slow.example")));
        assert_eq!(to_clear_among(&rows, &answers.known, "0123456789").map_err(|error| error.0), Ok(None));
        assert!(to_clear_among(&rows, &answers.known, "").is_err(), "several");
    }

    #[test]
    fn rows_are_named_by_their_id_and_by_their_registry() {
        let other = budget(&OWNER.replace("registry.example", "other.example"), 0);
        let sample = Sample::of(2).knowing(&unavailable()).knowing(&missing("0be1", "registry.example/a:1")).led(other);
        let answers = sample.answers();
        let rows = rows(&answers.known, &answers.budgets, &answers.waits);
        let named = |text: &str| rows.iter().filter(|row| is_named(row, text)).map(|row| row.state).collect::<Vec<_>>();
        assert_eq!(named("registry.example"), ["registry_unavailable"], "as the column WHAT shows it");
        assert_eq!(named("other.example"), ["quota_spent"]);
        assert_eq!(named("0be1"), ["not_found"]);
        assert!(["third.example", "registry.example/a:1", ""].iter().all(|text| named(text).is_empty()));
        let may = ["registry.example", "localhost:5000", "docker.io", "7f3a"].map(may_name_rows);
        assert_eq!((may, ["busybox", "app:v2", "r.example/a"].map(may_name_rows)), ([true; 4], [false; 3]));
    }

    #[test]
    fn row_of_a_quota_and_its_entry_clears_both() {
        let answers = Sample::of(2).knowing(&limited()).led(budget(OWNER, 0)).answers();
        let rows = rows(&answers.known, &answers.budgets, &answers.waits);
        let to_clear = to_clear_among(&rows, &answers.known, &rows[0].id).map_err(|error| error.0);
        assert_eq!(to_clear, Ok(Some(ToClear { name: Some(limited().key), spent_owner: Some(OWNER.to_owned()) })));
    }
}
