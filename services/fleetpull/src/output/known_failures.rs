//! The merged back-off entries of nodes: a shared entry is listed once, however many nodes have it.

mod json_key_parts;
mod merger;
mod rows;

use std::collections::BTreeMap;
use std::rc::Rc;

use contract::messages::backoff_tracker::BackoffEntry;
use contract::{FailureClass, NodeName, TraceContext, View};
use image::Reference;
use serde::Serialize;

use super::{given, one_line, trace_link, units};
pub use json_key_parts::JsonKeyParts;
pub use merger::Merger;
pub use rows::{COLUMNS, table};

/// Times that are closer than this are shown as one.
const SAME_WITHIN_MS: u64 = 1_000;
/// The next prober. No node is chosen before the attempt is due: then the first node that needs it takes the lease, and a node that
/// reported the failure waits 1 to 2 s longer.
const NEXT_PROBER: &str = "one node for all: the first that then needs it; its reporters wait 1 to 2 s longer";
/// Nodes that are named before the others are counted.
const NODES_NAMED: usize = 10;
/// The same limit on a line with other facts.
const NODES_NAMED_ASIDE: usize = 4;

/// An entry, and the nodes that have it.
#[derive(Clone, Debug)]
pub struct Known {
    /// The entry from the node with the newest version of it.
    pub entry: BackoffEntry,
    /// The nodes with the entry, by name; one node for an entry that is not shared. Entries of the same nodes share the list.
    pub nodes: Rc<[NodeName]>,
    /// The milliseconds until the next attempt on each node that sent the whole entry: a node that failed itself waits longer than others.
    next: BTreeMap<NodeName, u64>,
    /// The milliseconds until the quota of the entry's budget is available again. 0 if it is not used up.
    quota_wait_ms: u64,
}

/// The entry in JSON. The names and their meaning are an interface.
#[derive(Serialize)]
struct JsonEntry<'a> {
    kind: &'static str,
    shared: bool,
    key: &'a str,
    /// The subject in words.
    what: String,
    key_parts: JsonKeyParts<'a>,
    view: Option<JsonView<'a>>,
    class: FailureClass,
    binds: Option<&'a str>,
    /// At most 10 reporters, the newest first.
    reporters: &'a [String],
    reporter_count: u64,
    /// The number of failures in a row.
    step: u32,
    /// How long the failures have lasted.
    since_ms: u64,
    /// The time of the last failure.
    failed_at: String,
    next_attempt_ms: u64,
    probed_by: Option<&'a str>,
    cause: Option<&'a str>,
    /// The span of the last failed attempt, as a traceparent.
    trace: Option<TraceContext>,
    trace_id: Option<String>,
    node_count: usize,
    /// The nodes, at most 10.
    nodes: &'a [NodeName],
}

/// A view in JSON.
#[derive(Serialize)]
pub struct JsonView<'a> {
    scope: Option<&'a str>,
    registry: Option<&'a str>,
    route: Option<&'a str>,
    boot: Option<&'a str>,
}

impl<'a> JsonView<'a> {
    /// The view as JSON.
    #[must_use]
    pub fn of(view: &'a View) -> Self {
        let View { scope, registry, route, boot } = view;
        Self { scope: given(scope), registry: given(registry), route: given(route), boot: given(boot) }
    }
}

/// The milliseconds until the next attempt, and the node that may make it.
type Due<'a> = (u64, Option<&'a NodeName>);

impl Known {
    /// The soonest and the latest next attempt, each with its node and the milliseconds until then.
    fn span(&self) -> (Due<'_>, Due<'_>) {
        let by_time = || self.next.iter().map(|(node, left)| (self.with_quota(*left), Some(node)));
        let own = (self.with_quota(self.entry.next_attempt_ms), None);
        (by_time().min().unwrap_or(own), by_time().max().unwrap_or(own))
    }

    /// The milliseconds until an attempt for which the back-off leaves `left_ms`: it also waits for the quota.
    fn with_quota(&self, left_ms: u64) -> u64 {
        left_ms.max(self.quota_wait_ms)
    }

    /// Makes the next attempt wait for the quota of the entry's budget.
    pub fn wait_for_quota(&mut self, wait_ms: u64) {
        self.quota_wait_ms = wait_ms;
    }

    /// The node that makes the next attempt now, if any. While the quota is used up, a prober has no permit.
    #[must_use]
    pub fn prober(&self) -> Option<&str> {
        self.entry.probed_by.as_deref().filter(|_| self.quota_wait_ms == 0)
    }

    /// The milliseconds until the first node may make the next attempt.
    #[must_use]
    pub fn due_ms(&self) -> u64 {
        self.span().0.0
    }

    /// True if the entry is shared.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.entry.view.is_some()
    }

    /// The node whose own entry it is.
    fn own_node(&self) -> Option<&NodeName> {
        self.nodes.first().filter(|_| !self.is_shared())
    }

    /// The entry as JSON at `now_ms`, in milliseconds since 1970-01-01, as the fleet has it.
    #[must_use]
    pub fn json(&self, now_ms: u64) -> impl Serialize + '_ {
        self.json_with(now_ms, self.due_ms())
    }

    /// The entry as JSON, as one node has it.
    #[must_use]
    pub fn json_of(&self, node: &NodeName, now_ms: u64) -> impl Serialize + '_ {
        self.json_with(now_ms, self.with_quota(self.next.get(node).copied().unwrap_or(self.entry.next_attempt_ms)))
    }

    fn json_with(&self, now_ms: u64, next_attempt_ms: u64) -> JsonEntry<'_> {
        let entry = &self.entry;
        JsonEntry {
            kind: "entry",
            shared: self.is_shared(),
            key: &entry.key,
            what: entry.key_parts.to_string(),
            key_parts: JsonKeyParts::of(&entry.key_parts),
            view: entry.view.as_ref().map(JsonView::of),
            class: entry.class,
            binds: given(&entry.binds),
            reporters: &entry.reporters,
            reporter_count: entry.reporter_count,
            step: entry.step,
            since_ms: entry.since_ms,
            failed_at: units::rfc_3339(now_ms.saturating_sub(entry.last_ms_ago)),
            next_attempt_ms,
            probed_by: entry.probed_by.as_deref(),
            cause: given(&entry.cause),
            trace: entry.trace,
            trace_id: entry.trace.map(|trace| trace.trace_id_hex()),
            node_count: self.nodes.len(),
            nodes: self.nodes.get(..NODES_NAMED).unwrap_or(&self.nodes),
        }
    }

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
                units::seconds(entry.since_ms),
                entry.step.max(1),
                at(entry.last_ms_ago),
                units::seconds(entry.last_ms_ago)
            ),
        );
        let attempt =
            entry.trace.map_or_else(String::new, |trace| format!(", attempt {:016x} of trace {:032x}", trace.span_id, trace.trace_id));
        line("found by:", format!("{}{attempt}", found_by_all(entry, &self.nodes)));
        if let Some(link) = entry.trace.and_then(|trace| trace_link::of(&trace.trace_id_hex())) {
            line("its trace:", link);
        }
        line("error:", one_line(&entry.cause));
        let binds = || format!("{}; {} it", binds_in_words(&entry.binds), nodes_hold(&self.nodes));
        line("binds:", self.own_node().map_or_else(binds, ToString::to_string));
        let ((soonest, _), (latest, latest_node)) = self.span();
        let next = match (self.prober(), soonest) {
            (Some(prober), _) => format!("{prober} tries now, for all"),
            (None, 0) if self.is_shared() => format!("due, by {NEXT_PROBER}; the others wait for what it finds"),
            (None, 0) => "due".to_owned(),
            (None, left) if self.is_shared() => {
                format!("in {}, at {}, by {NEXT_PROBER}", units::seconds(left), units::time_of_day(now_ms.saturating_add(left)))
            }
            (None, left) => format!("in {}, at {}", units::seconds(left), units::time_of_day(now_ms.saturating_add(left))),
        };
        let later = latest_node.filter(|_| self.prober().is_none() && differ(soonest, latest));
        let later = later.map(|node| format!("; {node} not before {}", due_in(latest))).unwrap_or_default();
        let quota = if self.quota_wait_ms > 0 { "; until then its quota is used up" } else { "" };
        line("next attempt:", format!("{next}{later}{quota}"));
        match &entry.view {
            Some(view) => line("view:", full_view(view)),
            None => line("view:", format!("none: it is the own back-off of {}", named(&self.nodes))),
        }
        lines
    }
}

fn due_in(left_ms: u64) -> String {
    if left_ms == 0 { "due".to_owned() } else { units::seconds(left_ms) }
}

/// True if two times are shown separately. The time between requests to two nodes makes no difference.
fn differ(soonest: u64, latest: u64) -> bool {
    latest.saturating_sub(soonest) >= SAME_WITHIN_MS
}

/// True if two texts name the same image.
#[must_use]
pub fn same_image(one: &str, other: &str) -> bool {
    one == other || Reference::parse(other).is_ok_and(|other| is_same(one, &other))
}

fn is_same(word: &str, image: &Reference) -> bool {
    Reference::parse(word).is_ok_and(|other| other.normalised() == image.normalised())
}

/// The newest reporter of an entry, and the number of others.
#[must_use]
pub fn found_by(entry: &BackoffEntry) -> String {
    match (entry.reporters.first(), entry.reporter_count) {
        (None, _) => "-".to_owned(),
        (Some(first), 0 | 1) => first.clone(),
        (Some(first), count) => format!("{first} +{}", count - 1),
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

/// The names of some nodes, and the number of others.
#[must_use]
pub fn named(nodes: &[NodeName]) -> String {
    first_named(nodes, NODES_NAMED)
}

/// Like [`named`], but short enough for a line with other facts.
#[must_use]
pub fn named_few(nodes: &[NodeName]) -> String {
    first_named(nodes, NODES_NAMED_ASIDE)
}

fn first_named(nodes: &[NodeName], most: usize) -> String {
    let names: Vec<&str> = nodes.iter().take(most).map(NodeName::as_str).collect();
    match nodes.len().saturating_sub(most) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn binds_in_words(binds: &str) -> &str {
    match binds {
        "unconfirmed" => "unconfirmed: 1 node reports it, others wait 4s at most",
        "reporters" => "its reporters alone",
        binds => binds,
    }
}

fn nodes_hold(nodes: &[NodeName]) -> String {
    if nodes.len() == 1 { "1 node holds".to_owned() } else { format!("{} nodes hold", nodes.len()) }
}

fn full_view(view: &View) -> String {
    let boot = if view.boot.is_empty() { String::new() } else { format!(", on the host booted as {}", view.boot) };
    format!("scope {}, registry {}, route {}{boot}; nodes with another view do not have this entry", view.scope, view.registry, view.route)
}

#[cfg(test)]
mod tests {
    use contract::messages::backoff_tracker::{EntryKind, KeyParts};

    use super::*;

    pub(super) fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    pub(super) fn shared(image: &str, step: u32) -> BackoffEntry {
        let view = View {
            scope: "default".to_owned(),
            registry: "registry.example".to_owned(),
            route: "0123456789ab".to_owned(),
            ..View::default()
        };
        BackoffEntry {
            key: "316e2d029ab1c464307b9b74a4007f6a".to_owned(),
            key_parts: KeyParts { image: image.to_owned(), ..KeyParts::of(EntryKind::Image, "registry.example") },
            view: Some(view),
            class: FailureClass::NotFound,
            binds: "everybody".to_owned(),
            reporters: vec!["n1".to_owned()],
            reporter_count: 2,
            step,
            since_ms: 63_000,
            last_ms_ago: 3_000,
            next_attempt_ms: 7_040,
            cause: "ErrImagePull: 404 Not Found\n(MANIFEST_UNKNOWN)".to_owned(),
            trace: TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ..BackoffEntry::default()
        }
    }

    pub(super) fn own(image: &str) -> BackoffEntry {
        let key_parts = KeyParts { image: image.to_owned(), ..KeyParts::of(EntryKind::NodeImage, "docker.io") };
        BackoffEntry { key: image.to_owned(), key_parts, binds: "this node".to_owned(), ..BackoffEntry::default() }
    }

    fn of_two() -> Vec<Known> {
        let mut merger = Merger::default();
        let probed = BackoffEntry { probed_by: Some("n3".to_owned()), ..shared("registry.example/a:1", 1) };
        // The first answer counts.
        merger.add(&node("n2"), vec![probed, own("busybox")]);
        merger.add(&node("n1"), vec![shared("registry.example/a:1", 2), own("busybox")]);
        merger.into_known()
    }

    #[test]
    fn node_that_waits_longer_than_others_is_named_with_its_time() {
        let mut merger = Merger::default();
        merger.add(&node("n1"), vec![BackoffEntry { next_attempt_ms: 0, ..shared("a:1", 1) }]);
        merger.add(&node("n3"), vec![BackoffEntry { next_attempt_ms: 12_400, ..shared("a:1", 2) }]);
        let known = merger.into_known().remove(0);
        let details = known.details(0).join("\n");
        assert!(details.contains("next attempt: due, by ") && details.contains("; n3 not before 12.4 s"), "{details}");
        let left =
            |node_name: &str| serde_json::to_value(known.json_of(&node(node_name), 0)).expect("serialises")["next_attempt_ms"].clone();
        assert_eq!((left("n1"), left("n3")), (0.into(), 12_400.into()), "as each refuses");
        assert_eq!(serde_json::to_value(known.json(0)).expect("serialises")["next_attempt_ms"], 0);
    }

    #[test]
    fn shared_entry_has_one_row() {
        let known = of_two();
        assert_eq!(known.iter().map(|known| known.nodes.len()).collect::<Vec<_>>(), [2, 1, 1]);
        assert_eq!((known[0].entry.step, known[0].entry.probed_by.as_deref()), (2, Some("n3")), "the newest, and its prober");
    }

    #[test]
    fn one_screen_answers_every_question() {
        let details = Known {
            entry: shared("registry.example/a:1", 2),
            nodes: [node("n1"), node("n2")].into(),
            next: BTreeMap::new(),
            quota_wait_ms: 0,
        }
        .details(1_769_860_803_000);
        assert_eq!(
            details,
            [
                "image registry.example/a:1: not_found  (key 316e2d029ab1c464307b9b74a4007f6a)",
                "  since:        11:59:00Z (1m3s ago); failure 2 in a row, the last at 12:00:00Z (3.0 s ago)",
                "  found by:     n1 and 1 more, attempt 00f067aa0ba902b7 of trace 4bf92f3577b34da6a3ce929d0e0e4736",
                "  error:        ErrImagePull: 404 Not Found (MANIFEST_UNKNOWN)",
                "  binds:        everybody; 2 nodes hold it",
                "  next attempt: in 7.0 s, at 12:00:10Z, by one node for all: the first that then needs it; its reporters wait 1 to 2 s longer",
                "  view:         scope default, registry registry.example, route 0123456789ab; nodes with another view do not have this entry",
            ]
        );
    }
}
