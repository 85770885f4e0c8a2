//! Makes a row for each cause from back-off entries and budgets: one row for a shared entry, one row for each image that nodes delay by
//! their own back-off, and one row for a budget that delays pulls.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use contract::messages::backoff_tracker::{EntryKind, EntryQuery};
use contract::{FailureClass, NodeName, registry_of_budget};
use image::Reference;

use super::ids;
use super::row::{BudgetFigures, Row, Source, What};
use super::waits::{Causes, Waiting, Waits, normalised};
use super::what_and_scope::{WhatAndScope, state_in_words, what_and_scope};
use crate::commands::holds::Budgets;
use crate::output::known_failures::{Known, found_by};
use crate::output::units::SOON_MS;

/// All rows, the worst first: sorted by waiting nodes, those that hold all nodes before others and those that hold none last, registries
/// before images, then by duration.
pub(super) fn rows(known: &[Known], budgets: &Budgets, waits: &Waits) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (place, known) in known.iter().enumerate().filter(|(_, known)| known.is_shared()) {
        rows.push(of_shared(place, known));
    }
    let shared = Index::of(known, &rows);
    rows.extend(of_nodes_own(known, &shared));
    for budget in budgets.all() {
        let Some(figures) = BudgetFigures::of(&budget.state) else { continue };
        let of_owner = rows.iter().position(|row| is_about_budget(known, row, &budget.state.owner));
        let of_outage = || rows.iter().position(|row| figures.is_slowed_by_failures() && is_outage(row, &budget.state.owner));
        match of_owner.or_else(of_outage) {
            Some(place) => figures.complete(&mut rows[place]),
            None => rows.push(figures.row(budget)),
        }
    }
    let index = Index::of(known, &rows);
    let counts = waits.by_cause(rows.len(), |image| index.causes_of(image), |row, node| is_known_to(known, &rows[row], node));
    for (row, mut waiting) in rows.iter_mut().zip(counts) {
        if let Source::Entries(places) = &row.source
            && let [place] = places.as_slice()
            && !row.holds_all
        {
            waiting.nodes = waiting.nodes.min(known[*place].held_most());
        }
        row.is_over &= waiting.nodes == 0;
        row.waiting = waiting;
    }
    rows.sort_by_cached_key(|row| {
        let is_of_image = matches!(row.what, What::Image(_));
        (Reverse(row.waiting), row.is_over, !row.holds_all, is_of_image, Reverse(row.node_count), Reverse(row.since_ms), row.key.clone())
    });
    let keys: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    let ids = ids::shortest(&keys);
    rows.iter_mut().zip(ids).for_each(|(row, id)| row.id = id);
    rows
}

fn of_shared(place: usize, known: &Known) -> Row {
    let entry = &known.entry;
    let WhatAndScope { what, scope } = what_and_scope(&entry.key_parts);
    Row {
        key: entry.key.clone(),
        id: String::new(),
        what,
        scope,
        state: entry.class.as_str(),
        state_in_words: state_in_words(entry.class).to_owned(),
        cause: format!("{} ({})", known.last_result(), found_by(entry)),
        message: Some(entry.cause.clone()).filter(|cause| !cause.is_empty()),
        since_ms: Some(entry.since_ms),
        next_attempt_ms: Some(known.due_ms()),
        prober: known.prober().map(str::to_owned),
        node_count: known.nodes.len(),
        waiting: Waiting::default(),
        holds_all: known.holds_all() && !known.is_only_observed(),
        is_over: false,
        figures: None,
        source: Source::Entries(vec![place]),
    }
}

/// A row for each image that nodes delay by their own back-off and that has no shared entry.
fn of_nodes_own(known: &[Known], shared: &Index<'_>) -> Vec<Row> {
    let mut by_image: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, own) in known.iter().enumerate().filter(|(_, known)| !known.is_shared()) {
        let Some(image) = own.entry.key_parts.one_image().map(normalised) else { continue };
        let is_shared = |row: &usize| own.nodes.first().is_some_and(|node| known[shared.places[*row]].holds(node));
        if !shared.causes_of(&image).holding.iter().any(is_shared) {
            by_image.entry(image).or_default().push(place);
        }
    }
    by_image.into_iter().filter_map(|(image, places)| of_own(known, image, places)).collect()
}

fn of_own(known: &[Known], image: String, mut places: Vec<usize>) -> Option<Row> {
    places.sort_by_key(|place| known[*place].nodes.first());
    let mut nodes: Vec<&NodeName> = places.iter().filter_map(|place| known[*place].nodes.first()).collect();
    nodes.dedup();
    let newest = places.iter().map(|place| &known[*place]).min_by_key(|known| known.entry.last_ms_ago)?;
    let (result, finder) = (newest.last_result(), newest.nodes.first());
    let same = places.iter().map(|place| &known[*place]).filter(|known| known.last_result() == result);
    let others: BTreeSet<&NodeName> = same.filter_map(|known| known.nodes.first()).filter(|node| Some(*node) != finder).collect();
    let more = if others.is_empty() { String::new() } else { format!(" +{}", others.len()) };
    let scope = match nodes.as_slice() {
        [node] => node.to_string(),
        nodes => format!("{} nodes", nodes.len()),
    };
    Some(Row {
        key: ids::hash("own", &image),
        id: String::new(),
        what: What::Image(image),
        scope,
        state: newest.entry.class.as_str(),
        state_in_words: state_in_words(newest.entry.class).to_owned(),
        cause: format!("{result} ({}{more})", finder.map_or("-", NodeName::as_str)),
        message: Some(newest.entry.cause.clone()).filter(|cause| !cause.is_empty()),
        since_ms: places.iter().map(|place| known[*place].entry.since_ms).max(),
        next_attempt_ms: places.iter().map(|place| known[*place].due_ms()).min(),
        prober: None,
        node_count: nodes.len(),
        waiting: Waiting::default(),
        holds_all: false,
        is_over: places.iter().all(|place| known[*place].due_ms() < SOON_MS),
        figures: None,
        source: Source::Entries(places),
    })
}

/// True if a row is about the back-off entry of a budget's owner.
fn is_about_budget(known: &[Known], row: &Row, owner: &str) -> bool {
    let Source::Entries(places) = &row.source else { return false };
    let key_parts = places.first().map(|place| &known[*place].entry.key_parts);
    key_parts.is_some_and(|key_parts| key_parts.kind == EntryKind::Budget && key_parts.owner == owner)
}

/// True if a row says that the registry of a budget is down: then the rate is low for the same cause.
fn is_outage(row: &Row, owner: &str) -> bool {
    row.state == FailureClass::RegistryUnavailable.as_str() && row.what == What::Registry(registry_of_budget(owner))
}

/// True if the subject of a row delays a node: a budget delays every node, an entry those that it binds.
fn is_known_to(known: &[Known], row: &Row, node: &NodeName) -> bool {
    match &row.source {
        Source::Budget => true,
        // One shared entry, or one entry per node.
        Source::Entries(places) => match places.as_slice() {
            // A used-up quota also delays nodes that the entry does not bind.
            [place] if row.holds_all => known[*place].is_obeyed_by(node),
            [place] => known[*place].holds(node),
            places => places.binary_search_by(|place| known[*place].nodes.first().cmp(&Some(node))).is_ok(),
        },
    }
}

/// Rows by their subject.
struct Index<'a> {
    known: &'a [Known],
    /// The first entry of each row. Not used for rows of budgets.
    places: Vec<usize>,
    /// The rows about one image.
    by_image: BTreeMap<String, Vec<usize>>,
    /// The rows of entries about more than one image.
    by_registry: BTreeMap<String, Vec<usize>>,
    /// The rows of budgets with a used-up quota.
    spent: BTreeMap<String, Vec<usize>>,
    /// The first row of other budgets.
    queues: BTreeMap<String, usize>,
}

impl<'a> Index<'a> {
    fn of(known: &'a [Known], rows: &[Row]) -> Self {
        let (by_image, by_registry, spent, queues) = Default::default();
        let mut index = Self { known, places: vec![0; rows.len()], by_image, by_registry, spent, queues };
        for (number, row) in rows.iter().enumerate() {
            let entry = match &row.source {
                Source::Budget => {
                    index.add_budget(number, row);
                    continue;
                }
                Source::Entries(places) => {
                    index.places[number] = places.first().copied().unwrap_or_default();
                    &known[index.places[number]].entry
                }
            };
            match entry.key_parts.one_image() {
                Some(image) => index.by_image.entry(normalised(image)).or_default().push(number),
                None => index.by_registry.entry(entry.key_parts.registry.clone()).or_default().push(number),
            }
        }
        index
    }

    fn add_budget(&mut self, number: usize, row: &Row) {
        let What::Registry(registry) = &row.what else { return };
        if row.figures.as_ref().is_some_and(|figures| figures.is_spent) {
            self.spent.entry(registry.clone()).or_default().push(number);
        } else {
            self.queues.entry(registry.clone()).or_insert(number);
        }
    }

    /// The rows that delay an image.
    fn causes_of(&self, image: &str) -> Causes {
        let registry = Reference::parse(image).map(|reference| reference.registry().to_owned()).unwrap_or_default();
        let query = EntryQuery::of(image);
        let of_registry = self.by_registry.get(&registry).into_iter().flatten();
        let named = of_registry.filter(|row| query.names(&self.known[self.places[**row]].entry));
        let of_image = self.by_image.get(image).into_iter().flatten();
        let spent = self.spent.get(&registry).into_iter().flatten();
        Causes { holding: named.chain(of_image).chain(spent).copied().collect(), queue: self.queues.get(&registry).copied() }
    }
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
