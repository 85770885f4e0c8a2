//! The status as lines: a sentence on the worst problem, four lines on the fleet, and a table of the rows.

use bus::BucketServers;
use contract::NodeName;
use contract::messages::agent::BusLoss;

use super::model::{BusState, Nodes, Pulls, Sharing, Status, Unwell};
use super::row::{Row, Source, What};
use crate::commands::backoff::pause_line;
use crate::output::known_failures::named_few;
use crate::output::layout::{without_middle, wrapped};
use crate::output::refusal::next_attempt;
use crate::output::table::{Cell, Column, Look, Table, Tone};
use crate::output::{one_line, standing_pull, units};

/// The most lines, so that the status of a fleet of any size fits on one screen.
const LINES_MOST: usize = 40;
/// Silent nodes named on the line NODES, and as many degraded ones.
const NAMED: usize = 3;
/// Versions of the program that are named, the most common first.
const VERSIONS_NAMED: usize = 3;
/// Events that have waited for less than this are not reported, in milliseconds.
const UNSENT_FROM_MS: u64 = 1_000;
/// A wait that is shorter is not reported without a cause, in milliseconds: a pull waits a few seconds for its turn or for another node.
const WAIT_FROM_MS: u64 = 10_000;
/// The longest name in the sentence, in columns.
const SENTENCE_WHAT: usize = 40;
/// The width of the labels, in columns.
const LABEL: usize = 9;

/// The columns if all of them fit.
static IN_FULL: [Column; 8] = [
    Column::new("ID"),
    Column::name("WHAT", 24),
    Column::new("SCOPE"),
    Column::new("STATE"),
    Column::sentence("CAUSE", 20),
    Column::new("SINCE"),
    Column::new("NEXT ATTEMPT"),
    Column::new("WAITING"),
];
/// The columns on a narrower screen.
static IN_SHORT: [Column; 7] = [
    Column::new("ID"),
    Column::name("WHAT", 20),
    Column::new("STATE"),
    Column::sentence("CAUSE", 11),
    Column::new("SINCE"),
    Column::new("NEXT"),
    Column::new("WAITING"),
];

/// The whole status, in lines of at most `width` columns without terminal control characters but those of colours.
pub(super) fn lines(status: &Status, width: usize, has_colour: bool) -> Vec<String> {
    let mut lines = wrapped(&one_line(&sentence(status)), width);
    let bus = ("BUS", bus(&status.bus));
    let mut parts = vec![("FLEET", fleet(status)), bus, ("NODES", nodes(&status.nodes)), ("PULLS", pulls(status))];
    if status.bus.lost.is_some() {
        parts.swap(0, 1);
    }
    for (label, text) in parts {
        lines.extend(wrapped(&one_line(&format!("{label:<LABEL$}{text}")), width));
    }
    // Two lines are kept for the header of the table, and for the number of further rows.
    let room = LINES_MOST.saturating_sub(lines.len() + 2);
    let shown = status.rows.get(..room).unwrap_or(&status.rows);
    if !shown.is_empty() {
        lines.extend(table_of(shown, &Look { has_colour, ..Look::of_width(Some(width)) }));
    }
    let more = status.left_out.saturating_add((status.rows.len() - shown.len()) as u64);
    if more > 0 {
        lines.extend(wrapped(&format!("and {more} more, fleetpull backoff list"), width));
    }
    lines.truncate(LINES_MOST);
    lines
}

/// The sentence on the worst problem.
fn sentence(status: &Status) -> String {
    let Status { bus, nodes, rows, of_node, .. } = status;
    if let (Some(lost), Some(node)) = (&bus.lost, of_node) {
        // The next attempt of a row that delays nothing would read as that of the bus.
        let delaying = rows.first().filter(|row| row.waiting.nodes > 0);
        let waits = delaying.map(|row| format!(", {}{}", waiting(row), next(row))).unwrap_or_default();
        return without_a_bus(node, lost, &waits);
    }
    // A node that does not work is worse than a failure for which no node waits, unless the whole registry fails for all nodes: their pulls
    // are then refused, whether they wait or not.
    let is_worse = |row: &&Row| row.waiting.nodes > 0 || (row.holds_all && matches!(row.what, What::Registry(_)));
    let worst = rows.first().filter(|row| !row.is_over);
    if let Some(row) = worst.filter(|row| is_worse(row) || nodes.unwell.is_empty()) {
        return sentence_of(row);
    }
    if !nodes.unanswered.is_empty() && nodes.unwell.is_empty() {
        let names = named_few(&nodes.unanswered);
        return format!("{names} did not list back-off entries or pulls in time: is the agent busy, or of another version?");
    }
    match (nodes.unwell.first(), of_node) {
        (Some(Unwell { node, reason: None, since_ms }), _) => {
            let others = format!("{} of {} nodes continue without it", nodes.total - nodes.silent, nodes.total);
            silent(node, *since_ms, &others)
        }
        (Some(Unwell { node, reason: Some(reason), since_ms }), _) => {
            format!("{node} has been degraded for {}: {reason}", units::age(*since_ms))
        }
        (None, Some(node)) => match without_a_cause(&status.pulls) {
            Some(waits) => format!("{node}: {waits}"),
            None if rows.is_empty() => format!("all is well on {node}: nothing is held back"),
            None => format!("{node}: nothing is held back"),
        },
        (None, None) => {
            let waits = without_a_cause(&status.pulls);
            let ready = format!("{} of {} nodes are ready", nodes.ready, nodes.total);
            match (bus.servers.as_ref().and_then(down), waits) {
                (Some(down), Some(waits)) => format!("NATS: {down}; {ready}; {waits}"),
                (Some(down), None) => format!("NATS: {down}; {ready}, nothing is held back"),
                (None, Some(waits)) => format!("{waits}; {ready}"),
                (None, None) if rows.is_empty() => format!("all is well: {ready}, nothing is held back"),
                (None, None) => format!("{ready}, nothing is held back"),
            }
        }
    }
}

/// Says that pulls wait although no row has the cause. None if none waits for long.
fn without_a_cause(pulls: &Pulls) -> Option<String> {
    let oldest_ms = pulls.oldest_wait_ms.filter(|oldest_ms| *oldest_ms >= WAIT_FROM_MS)?;
    let wait = if pulls.waiting == 1 { "1 pull waits".to_owned() } else { format!("{} pulls wait", pulls.waiting) };
    Some(format!("{wait}, the oldest for {}, and no cause is known: `fleetpull pulls` lists what waits", units::age(oldest_ms)))
}

/// The sentence on a node that has lost its bus, and how it goes on. `waits` says what waits, with a comma before it; it comes before the
/// reason, which may be long. It is empty if nothing waits.
pub(in crate::commands) fn without_a_bus(node: &NodeName, lost: &BusLoss, waits: &str) -> String {
    let since = units::age(lost.since_ms);
    format!("{node} has had no bus for {since}{waits}: {}, it uses kubelet's back-off and reconnects automatically", lost.reason)
}

/// The sentence on a silent node: what to check, how the other nodes do, and how it reconnects.
pub(in crate::commands) fn silent(node: &NodeName, since_ms: u64, others: &str) -> String {
    let since = units::age(since_ms);
    format!(
        "{node} has been silent for {since}: is its agent running, and is its bus connected? {others}, a running agent reconnects automatically"
    )
}

fn sentence_of(row: &Row) -> String {
    // The name is shortened, so that the figures after it stay visible.
    let what = without_middle(what(row), SENTENCE_WHAT);
    let since = row.since_ms.map(|since_ms| format!(" for {}", units::age(since_ms))).unwrap_or_default();
    // The table shows in another column what `0/100 left` is about.
    let quota = if row.figures.as_ref().is_some_and(|figures| figures.is_spent) { "quota " } else { "" };
    format!("{what}: {quota}{}{since}, {}, {}{}", row.state_in_words, row.cause, waiting(row), next(row))
}

fn waiting(row: &Row) -> String {
    match (row.waiting.nodes, row.waiting.images) {
        (0, _) => "no node waits".to_owned(),
        (1, images) => format!("1 node waits for {}", counted(images, "image")),
        (nodes, images) => format!("{nodes} nodes wait for {}", counted(images, "image")),
    }
}

fn next(row: &Row) -> String {
    next_attempt(row.next_attempt_ms, row.prober.as_deref()).map(|next| format!(", {next}")).unwrap_or_default()
}

fn fleet(status: &Status) -> String {
    let Sharing { enforce, observe, off, pauses, policy_revision } = &status.sharing;
    let mut parts = vec![status.fleet.clone()];
    parts.extend(status.of_node.as_ref().map(|node| format!("as {node} knows it")));
    let counts = [(*enforce, "enforce"), (*observe, "observe"), (*off, "share nothing")];
    parts.extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")));
    parts.extend((*policy_revision > 0).then(|| format!("policy r{policy_revision}")));
    parts.extend(pauses.iter().take(NAMED).map(pause_line));
    parts.extend((pauses.len() > NAMED).then(|| format!("{} more pauses", pauses.len() - NAMED)));
    parts.join(", ")
}

fn bus(bus: &BusState) -> String {
    let state = match (&bus.lost, &bus.servers) {
        // The sentence already says why.
        (Some(lost), _) => format!("lost for {}", units::age(lost.since_ms)),
        (None, _) if bus.is_unset => "none is configured: this node shares nothing".to_owned(),
        (None, Some(servers)) => counted_servers(servers),
        (None, None) => "connected".to_owned(),
    };
    let answered = bus.answered_in_ms.map(|answered_in_ms| format!(", {answered_in_ms} ms")).unwrap_or_default();
    let unsent = match bus.oldest_unsent_ms {
        ..UNSENT_FROM_MS => String::new(),
        oldest_ms => format!("; oldest unsent event {}", units::age(oldest_ms)),
    };
    format!("{state}{answered}{unsent}")
}

/// `3 of 3 servers`, `2 of 3 servers (nats-2 is down)`, or `1 server`.
fn counted_servers(servers: &BucketServers) -> String {
    match (servers.total, down(servers)) {
        (1, None) => "1 server".to_owned(),
        (total, None) => format!("{total} of {total} servers"),
        (total, Some(down)) => format!("{} of {total} servers ({down})", servers.up()),
    }
}

/// The servers that are down, as the end of a sentence. None if all are up.
fn down(servers: &BucketServers) -> Option<String> {
    match servers.down.as_slice() {
        [] => None,
        [one] => Some(format!("{one} is down")),
        several => Some(format!("{} are down", several.join(", "))),
    }
}

fn nodes(nodes: &Nodes) -> String {
    let Nodes { total, ready, degraded, silent, unwell, versions, unanswered } = nodes;
    let named = |is_silent: bool, count: u64| {
        let of_kind = unwell.iter().filter(|unwell| unwell.reason.is_none() == is_silent).take(NAMED);
        let mut names: Vec<String> = of_kind.map(|unwell| format!("{} for {}", unwell.node, units::age(unwell.since_ms))).collect();
        names.extend((count > names.len() as u64).then(|| "...".to_owned()));
        names.join(", ")
    };
    let mut parts = vec![format!("{total}: {ready} ready")];
    parts.extend((*silent > 0).then(|| format!("{silent} silent ({})", named(true, *silent))));
    parts.extend((*degraded > 0).then(|| format!("{degraded} degraded ({})", named(false, *degraded))));
    parts.extend(
        (!unanswered.is_empty())
            .then(|| format!("{} did not list back-off entries or pulls ({})", unanswered.len(), named_few(unanswered))),
    );
    let mut versions: Vec<(&String, &u64)> = versions.iter().collect();
    versions.sort_by_key(|(version, count)| (std::cmp::Reverse(**count), *version));
    match versions.as_slice() {
        [] => {}
        [(version, _)] => parts.push(format!("version {version}")),
        several => {
            let shown = several.iter().take(VERSIONS_NAMED).map(|(version, count)| format!("{version} on {count}"));
            parts.push(format!("versions {}", shown.collect::<Vec<_>>().join(", ")));
        }
    }
    parts.join(", ")
}

fn pulls(status: &Status) -> String {
    let pulls = &status.pulls;
    let oldest = pulls.oldest_wait_ms.map(|oldest_ms| format!(", oldest wait {}", units::age(oldest_ms))).unwrap_or_default();
    format!("{}{oldest}", standing_pull::counts(pulls.running, pulls.waiting, pulls.standing))
}

fn what(row: &Row) -> &str {
    let (What::Registry(name) | What::Image(name)) = &row.what;
    name
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// The table with all columns if they fit, else with fewer columns and short words.
fn table_of(rows: &[Row], look: &Look) -> Vec<String> {
    let mut table = Table::new(&IN_FULL);
    rows.iter().for_each(|row| table.add(&row.id, in_full(row)));
    if !table.fits(look) {
        table = Table::new(&IN_SHORT);
        rows.iter().for_each(|row| table.add(&row.id, in_short(row)));
    }
    table.lines(look)
}

fn in_full(row: &Row) -> Vec<Cell> {
    let next = match (&row.prober, row.next_attempt_ms) {
        (Some(prober), _) => format!("now by {prober}"),
        (None, left_ms) => units::due(left_ms),
    };
    let waiting = match row.waiting.nodes {
        0 => "0".to_owned(),
        nodes => format!("{}, {}", counted(nodes, "node"), counted(row.waiting.images, "image")),
    };
    let [id, what, scope, since] = [row.id.as_str(), what(row), &row.scope, &since(row)].map(Cell::from);
    vec![id, what, scope, state(row), cause(row), since, Cell::from(next), Cell::from(waiting)]
}

fn in_short(row: &Row) -> Vec<Cell> {
    let next = if row.prober.is_some() { "now".to_owned() } else { units::due(row.next_attempt_ms) };
    let waiting = if row.waiting.nodes == 0 { "0".to_owned() } else { counted(row.waiting.nodes, "node") };
    let [id, what, since] = [row.id.as_str(), what(row), &since(row)].map(Cell::from);
    vec![id, what, state(row), cause(row), since, Cell::from(next), Cell::from(waiting)]
}

/// The cause; in a narrow column without the node that found it, or without what lowered a rate.
fn cause(row: &Row) -> Cell {
    let short = row.cause.split(" (").next().and_then(|cause| cause.split("; ").next()).unwrap_or_default();
    Cell::from(row.cause.as_str()).or_in_short(short)
}

/// The state. A budget that has not used up its quota only slows pulls down.
fn state(row: &Row) -> Cell {
    let is_slower = row.source == Source::Budget && !row.figures.as_ref().is_some_and(|figures| figures.is_spent);
    Cell::from(row.state_in_words.as_str()).toned(if is_slower { Tone::Warning } else { Tone::Bad })
}

fn since(row: &Row) -> String {
    row.since_ms.map_or_else(|| "-".to_owned(), units::age)
}

#[cfg(test)]
#[path = "dead_bus_tests.rs"]
mod dead_bus_tests;
#[cfg(test)]
#[path = "incidents_tests.rs"]
mod tests;
