//! All details of a back-off entry, for `explain` and `backoff explain`.

use contract::messages::backoff_tracker::BackoffEntry;
use contract::{NodeName, View};

use super::{Known, differ, named};
use crate::output::units::{self, SOON_MS};
use crate::output::{one_line, trace_link};

/// The next prober. No node is chosen before the attempt is due: then the first node that needs it takes the lease, and a node that
/// reported the failure waits 1 to 2 s longer.
const NEXT_PROBER: &str = "one node for all: the first that then needs it; its reporters wait 1s to 2s longer";

impl Known {
    /// All details of the entry, one line for each question.
    #[must_use]
    pub fn details(&self, now_ms: u64) -> Vec<String> {
        let entry = &self.entry;
        let at = |ago: u64| units::time_of_day(now_ms.saturating_sub(ago));
        let key = if self.is_shared() { format!("  (key {})", entry.key) } else { String::new() };
        let mut lines = vec![format!("{}: {}{key}", one_line(&self.subject()), entry.class)];
        let mut line = |name: &str, text: String| lines.push(format!("  {name:<13} {text}"));
        line(
            "since:",
            format!(
                "{} ({} ago); failure {} in a row, the last at {} ({} ago)",
                at(entry.since_ms),
                units::age(entry.since_ms),
                entry.step.max(1),
                at(entry.last_ms_ago),
                units::age(entry.last_ms_ago)
            ),
        );
        let attempt =
            entry.trace.map_or_else(String::new, |trace| format!(", attempt {:016x} of trace {:032x}", trace.span_id, trace.trace_id));
        line("found by:", format!("{}{attempt}", found_by_all(entry, &self.nodes)));
        if let Some(link) = entry.trace.and_then(|trace| trace_link::of(&trace.trace_id_hex())) {
            line("its trace:", link);
        }
        line("error:", one_line(&entry.cause));
        let binds = || format!("{}; {} it", binds_in_words(&entry.binds), nodes_know(&self.nodes));
        line("binds:", self.own_node().map_or_else(binds, ToString::to_string));
        let ((soonest, _), (latest, latest_node)) = self.span();
        let is_for_all = self.holds_all() && !self.is_without_bus && !self.is_paused;
        let due = match soonest {
            ..SOON_MS => units::due(Some(soonest)),
            left => format!("{}, at {}", units::due(Some(left)), units::time_of_day(now_ms.saturating_add(left))),
        };
        let next = match (self.prober(), soonest) {
            (Some(prober), _) if self.is_without_bus => format!("now by {prober}"),
            (Some(prober), _) => format!("now by {prober}, for all"),
            (None, ..SOON_MS) if is_for_all => format!("{due}, by {NEXT_PROBER}; the others wait for what it finds"),
            (None, _) if is_for_all => format!("{due}, by {NEXT_PROBER}"),
            (None, _) if self.is_shared() && self.is_without_bus => format!("{due}, by each node for itself, because no bus is reached"),
            (None, _) if self.is_shared() && self.is_paused => format!("{due}, by each node for itself, because sharing is paused"),
            (None, _) if self.is_shared() => format!("{due}, by its reporters; other nodes need not wait for it"),
            (None, _) => due,
        };
        let later = latest_node.filter(|_| self.prober().is_none() && differ(soonest, latest));
        let later = later.map(|node| format!("; {node} not before {}", units::age(latest))).unwrap_or_default();
        let quota = if self.quota_wait_ms > 0 { "; until then its quota is used up" } else { "" };
        line("next attempt:", format!("{next}{later}{quota}"));
        match &entry.view {
            Some(view) => line("view:", full_view(view)),
            None => line("view:", format!("none: it is the own back-off of {}", named(&self.nodes))),
        }
        lines
    }
}

fn found_by_all(entry: &BackoffEntry, nodes: &[NodeName]) -> String {
    if entry.reporters.is_empty() {
        return named(nodes);
    }
    let reporters = entry.reporters.join(", ");
    match entry.reporter_count.saturating_sub(entry.reporters.len() as u64) {
        0 => reporters,
        more => format!("{reporters} and {more} more"),
    }
}

fn binds_in_words(binds: &str) -> &str {
    match binds {
        "unconfirmed" => "unconfirmed: 1 node reports it, and another that waits attempts it at once",
        "reporters" => "its reporters alone",
        binds => binds,
    }
}

fn nodes_know(nodes: &[NodeName]) -> String {
    match nodes {
        [node] => format!("{node} knows"),
        nodes => format!("{} nodes know", nodes.len()),
    }
}

fn full_view(view: &View) -> String {
    let boot = if view.boot.is_empty() { String::new() } else { format!(", on the host booted as {}", view.boot) };
    format!("scope {}, registry {}, route {}{boot}; nodes with another view do not have this entry", view.scope, view.registry, view.route)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use super::super::Merger;
    use super::super::tests::{node, shared};
    use super::*;

    #[test]
    fn node_that_waits_longer_than_others_is_named_with_its_time() {
        let mut merger = Merger::default();
        merger.add(&node("n1"), vec![BackoffEntry { next_attempt_ms: 0, ..shared("a:1", 1) }]);
        merger.add(&node("n3"), vec![BackoffEntry { next_attempt_ms: 12_400, ..shared("a:1", 2) }]);
        let known = merger.into_known().remove(0);
        let details = known.details(0).join("\n");
        assert!(details.contains("next attempt: due, by ") && details.contains("; n3 not before 12s"), "{details}");
        let left =
            |node_name: &str| serde_json::to_value(known.json_of(&node(node_name), 0)).expect("serialises")["next_attempt_ms"].clone();
        assert_eq!((left("n1"), left("n3")), (0.into(), 12_400.into()), "as each refuses");
        assert_eq!(serde_json::to_value(known.json(0)).expect("serialises")["next_attempt_ms"], 0);
    }

    #[test]
    fn next_attempt_reads_as_in_the_list() {
        for (next_attempt_ms, expected) in
            [(999, "next attempt: due, by "), (41_900, "next attempt: in 41s, at "), (21_598_200, "next attempt: in 5h59m, at ")]
        {
            let mut merger = Merger::default();
            merger.add(&node("n1"), vec![BackoffEntry { next_attempt_ms, ..shared("a:1", 1) }]);
            let known = merger.into_known().remove(0);
            let details = known.details(0).join("\n");
            assert!(details.contains(expected), "{details}");
        }
    }

    #[test]
    fn node_without_a_bus_makes_the_next_attempt_for_itself() {
        for (without_bus, expected) in [(vec![], ", by one node for all: "), (vec![node("n1")], ", by each node for itself, ")] {
            let mut merger = Merger::default();
            merger.add(&node("n1"), vec![shared("a:1", 1)]);
            let mut known = merger.into_known().remove(0);
            known.note_nodes_without_bus(&without_bus.into_iter().collect());
            let details = known.details(0).join("\n");
            assert!(details.contains(expected), "{details}");
            known.entry.probed_by = Some("n1".to_owned());
            let probed = known.details(0).join("\n");
            assert_eq!(probed.contains("now by n1, for all"), expected.contains("for all"), "{probed}");
        }
    }

    #[test]
    fn reporters_that_alone_are_held_make_the_next_attempt() {
        let mut merger = Merger::default();
        merger.add(&node("n1"), vec![BackoffEntry { binds: "reporters".to_owned(), ..shared("a:1", 1) }]);
        let mut known = merger.into_known().remove(0);
        let details = known.details(0).join("\n");
        let parts = ["binds:        its reporters alone; n1 knows it", ", by its reporters; other nodes need not wait for it"];
        assert!(parts.iter().all(|part| details.contains(part)), "{details}");
        known.wait_for_quota(8_040_000);
        let details = known.details(0).join("\n");
        assert!(!details.contains("other nodes need not wait") && details.contains("; until then its quota is used up"), "{details}");
    }

    #[test]
    fn one_screen_answers_every_question() {
        let details = Known {
            entry: shared("registry.example/a:1", 2),
            nodes: [node("n1"), node("n2")].into(),
            next: BTreeMap::new(),
            quota_wait_ms: 0,
            is_without_bus: false,
            is_paused: false,
            observers: Rc::default(),
        }
        .details(1_769_860_803_000);
        assert_eq!(
            details,
            [
                "image registry.example/a:1: not_found  (key 316e2d029ab1c464307b9b74a4007f6a)",
                "  since:        11:59:00Z (63s ago); failure 2 in a row, the last at 12:00:00Z (3s ago)",
                "  found by:     n1 and 1 more, attempt 00f067aa0ba902b7 of trace 4bf92f3577b34da6a3ce929d0e0e4736",
                "  error:        ErrImagePull: 404 Not Found (MANIFEST_UNKNOWN)",
                "  binds:        everybody; 2 nodes know it",
                "  next attempt: in 7s, at 12:00:10Z, by one node for all: the first that then needs it; its reporters wait 1s to 2s longer",
                "  view:         scope default, registry registry.example, route 0123456789ab; nodes with another view do not have this entry",
            ]
        );
    }
}
