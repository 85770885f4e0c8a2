//! Writes a report as text and as JSON.

use serde::Serialize;

use super::figures::{Figures, Outcome};
use super::worst::{Tally, Worst};
use crate::output::{self, table, units};

/// The outcomes in the order of the report.
const OUTCOMES: [&str; 6] = ["pulled", "failed", "backoff", "invalid_name", "inspect_failed", "never_pull"];
/// The causes in the order of the report.
const CAUSES: [&str; 4] = ["backoff", "slots", "budget", "other"];

/// The time range of a report, in milliseconds since 1970-01-01.
#[derive(Clone, Copy)]
pub(super) struct Between {
    pub(super) since_ms: u64,
    pub(super) until_ms: u64,
}

/// The row with the totals. The names and their meaning are an interface.
#[derive(Serialize)]
struct JsonReport {
    kind: &'static str,
    since_at: String,
    until_at: String,
    events: u64,
    /// Null if there are no events.
    first_at: Option<String>,
    last_at: Option<String>,
    pulled_bytes: u64,
    /// Events that report lost events. The figures are then too low.
    losses: u64,
}

#[derive(Serialize)]
struct JsonPulls<'a> {
    kind: &'static str,
    outcome: &'static str,
    count: u64,
    by_class: &'a std::collections::BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct JsonSpared {
    kind: &'static str,
    spans: u64,
    attempts_by_kubelets_rule: u64,
    attempts_made: u64,
    /// Negative if more attempts were made than kubelet's rule makes.
    attempts_spared: i64,
    /// Spans that were ended early to limit memory.
    spans_cut: u64,
}

#[derive(Serialize)]
struct JsonWaits {
    kind: &'static str,
    cause: &'static str,
    count: u64,
    sum_ms: u64,
    median_ms: Option<u64>,
    longest_ms: u64,
}

#[derive(Serialize)]
struct JsonName {
    kind: &'static str,
    /// Null for the sum of all other names.
    name: Option<String>,
    failed: u64,
    refused: u64,
    pulled: u64,
    attempts_spared: i64,
}

#[derive(Serialize)]
struct JsonObserved {
    kind: &'static str,
    would_be_refused: u64,
    /// Attempts that failed.
    rightly: u64,
    /// Attempts that pulled the image.
    wrongly: u64,
    entries_compared: u64,
    /// Entries about a repository or a login: events do not say which attempts they concern.
    entries_not_compared: u64,
    /// Entries, and images and registries with an open one, that were forgotten early to limit memory.
    entries_cut: u64,
}

/// A section of names: the kind of its JSON rows, its title, and its rows.
type Section = (&'static str, &'static str, Vec<(Option<String>, Tally)>);

fn sections(images: Worst, registries: Worst, nodes: Worst, top: usize) -> [Section; 3] {
    let rows = |worst: Worst| {
        let (rows, others) = worst.end(top);
        rows.into_iter().map(|(name, tally)| (Some(name), tally)).chain(others.map(|tally| (None, tally))).collect()
    };
    [("image", "IMAGE", rows(images)), ("registry", "REGISTRY", rows(registries)), ("node", "NODE", rows(nodes))]
}

/// Writes the report as one JSON object per line.
pub(super) fn json(figures: Figures, between: Between, top: usize) {
    let at = |ms: Option<u64>| ms.map(units::rfc_3339);
    output::json(&JsonReport {
        kind: "report",
        since_at: units::rfc_3339(between.since_ms),
        until_at: units::rfc_3339(between.until_ms),
        events: figures.events,
        first_at: at(figures.first_ms),
        last_at: at(figures.last_ms),
        pulled_bytes: figures.pulled_bytes,
        losses: figures.losses,
    });
    for outcome in OUTCOMES {
        let none = Outcome::default();
        let Outcome { count, by_class } = figures.outcomes.get(outcome).unwrap_or(&none);
        output::json(&JsonPulls { kind: "pulls", outcome, count: *count, by_class });
    }
    output::json(&JsonSpared {
        kind: "spared",
        spans: figures.spans,
        attempts_by_kubelets_rule: figures.spared.by_rule,
        attempts_made: figures.spared.made,
        attempts_spared: figures.spared.spared(),
        spans_cut: figures.spans_cut,
    });
    for cause in CAUSES {
        let waits = figures.waits.get(cause).cloned().unwrap_or_default();
        let (count, sum_ms, median_ms, longest_ms) = (waits.count, waits.sum_ms, waits.median_ms(), waits.longest_ms);
        output::json(&JsonWaits { kind: "waits", cause, count, sum_ms, median_ms, longest_ms });
    }
    let observed = &figures.observed;
    output::json(&JsonObserved {
        kind: "observed",
        would_be_refused: observed.failed.saturating_add(observed.pulled),
        rightly: observed.failed,
        wrongly: observed.pulled,
        entries_compared: observed.entries_compared,
        entries_not_compared: observed.entries_not_compared,
        entries_cut: observed.cut,
    });
    for (kind, _, rows) in sections(figures.images, figures.registries, figures.nodes, top) {
        for (name, tally) in rows {
            let Tally { failed, refused, pulled, .. } = tally;
            output::json(&JsonName { kind, name, failed, refused, pulled, attempts_spared: tally.spared() });
        }
    }
}

/// Writes the report as text.
pub(super) fn text(figures: Figures, between: Between, top: usize) {
    let time = |ms: u64| units::rfc_3339(ms / 1_000 * 1_000);
    output::fact(&format!("{} events from {} to {}", figures.events, time(between.since_ms), time(between.until_ms)));
    let rows: Vec<Vec<String>> = OUTCOMES.iter().filter_map(|name| Some(outcome(name, figures.outcomes.get(name)?))).collect();
    section(&["PULLS", "COUNT", "CLASSES"], &rows);
    spared(&figures);
    let rows: Vec<Vec<String>> = CAUSES.iter().filter_map(|cause| Some((cause, figures.waits.get(cause)?))).map(waits).collect();
    section(&["WAITED FOR", "PULLS", "TOGETHER", "MEDIAN", "LONGEST"], &rows);
    observed(&figures);
    for (_, title, rows) in sections(figures.images, figures.registries, figures.nodes, top) {
        let rows: Vec<Vec<String>> = rows.into_iter().map(name).collect();
        section(&[title, "FAILED", "REFUSED", "PULLED", "SPARED"], &rows);
    }
}

/// Writes an empty line and a table, if the table has rows.
fn section(header: &[&str], rows: &[Vec<String>]) {
    if !rows.is_empty() {
        output::fact("");
        table::columns(header, rows).iter().for_each(|line| output::fact(line));
    }
}

fn outcome(name: &&str, outcome: &Outcome) -> Vec<String> {
    let classes: Vec<String> = outcome.by_class.iter().map(|(class, count)| format!("{count} {class}")).collect();
    vec![(*name).to_owned(), outcome.count.to_string(), classes.join(", ")]
}

fn waits((cause, waits): (&&str, &super::spread::Spread)) -> Vec<String> {
    // Most waits for a permit take less than a second.
    let time = |ms| if ms < units::SOON_MS { units::milliseconds(ms) } else { units::age(ms) };
    let median = waits.median_ms().map_or_else(|| "-".to_owned(), time);
    vec![(*cause).to_owned(), waits.count.to_string(), time(waits.sum_ms), median, time(waits.longest_ms)]
}

fn name((name, tally): (Option<String>, Tally)) -> Vec<String> {
    let name = name.map_or_else(|| "(others)".to_owned(), |name| output::one_line(&name));
    let numbers = [tally.failed.to_string(), tally.refused.to_string(), tally.pulled.to_string(), tally.spared().to_string()];
    [name].into_iter().chain(numbers).collect()
}

fn spared(figures: &Figures) {
    if figures.spans == 0 {
        return;
    }
    let (by_rule, made, spared) = (figures.spared.by_rule, figures.spared.made, figures.spared.spared());
    output::fact("");
    output::fact(&failing_attempts(made, by_rule, spared));
}

/// The sentence on the failing attempts that were made, and on those that kubelet's back-off makes on each node by itself.
fn failing_attempts(made: u64, by_rule: u64, spared: i64) -> String {
    let difference = match spared {
        0 => format!("as many as with kubelet's back-off alone ({by_rule})"),
        1.. => format!("{spared} fewer than with kubelet's back-off alone ({by_rule})"),
        _ => format!("{} more than with kubelet's back-off alone ({by_rule})", spared.unsigned_abs()),
    };
    format!("failing attempts: {made}, {difference}")
}

fn observed(figures: &Figures) {
    let observed = &figures.observed;
    let refused = observed.failed.saturating_add(observed.pulled);
    if observed.entries_compared + observed.entries_not_compared == 0 {
        return;
    }
    output::fact("");
    output::fact(&format!(
        "attempts while a back-off entry was open: {refused}; fleet.share = enforce would have refused {} of them rightly (they failed) and \
         {} wrongly (they succeeded)",
        observed.failed, observed.pulled
    ));
    if observed.entries_not_compared > 0 {
        output::fact(&format!(
            "back-off entries about a repository or a login: {}; they are not compared, because events do not say which attempts they concern",
            observed.entries_not_compared
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_attempts_are_compared_with_kubelets_back_off() {
        for (made, by_rule, spared, sentence) in [
            (3, 9, 6, "failing attempts: 3, 6 fewer than with kubelet's back-off alone (9)"),
            (9, 9, 0, "failing attempts: 9, as many as with kubelet's back-off alone (9)"),
            (12, 9, -3, "failing attempts: 12, 3 more than with kubelet's back-off alone (9)"),
        ] {
            assert_eq!(failing_attempts(made, by_rule, spared), sentence);
        }
    }
}
