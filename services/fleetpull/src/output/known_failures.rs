//! The merged back-off entries of nodes: a shared entry is listed once, however many nodes have it.

mod details;
mod json_key_parts;
mod merger;
mod pauses;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use contract::messages::backoff_tracker::BackoffEntry;
use contract::{FailureClass, NodeName, TraceContext, View};
use image::Reference;
use serde::Serialize;

use super::{given, units};
pub use json_key_parts::JsonKeyParts;
pub use merger::Merger;
pub use pauses::note_pauses;
pub use rows::{COLUMNS, table};

/// Times that are closer than this are shown as one.
const SAME_WITHIN_MS: u64 = 1_000;
/// Nodes that are named before the others are counted.
const NODES_NAMED: usize = 10;
/// The same limit on a line with other facts.
const NODES_NAMED_ASIDE: usize = 4;
/// What an entry binds if only the nodes that report it are held, because too few do or because the registry serves others.
const REPORTERS: &str = "reporters";

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
    /// True if no node with the entry reaches the bus. Each then makes an attempt of its own.
    is_without_bus: bool,
    /// True if an operator has paused sharing of the entry's registry. Then, too, each node makes an attempt of its own.
    is_paused: bool,
    /// The nodes that only observe: each waits for its own back-off. All entries share the set.
    observers: Rc<BTreeSet<NodeName>>,
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

    /// Notes which nodes do not reach the bus.
    pub fn note_nodes_without_bus(&mut self, without_bus: &BTreeSet<NodeName>) {
        self.is_without_bus = !self.nodes.is_empty() && self.nodes.iter().all(|node| without_bus.contains(node));
    }

    /// Notes which nodes only observe.
    pub fn note_observers(&mut self, observers: &Rc<BTreeSet<NodeName>>) {
        self.observers = Rc::clone(observers);
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

    /// True if the entry holds all nodes that have it, and not only those that report it. A used-up quota holds all nodes too. An unknown
    /// word is a newer agent's, and may mean all nodes.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        self.is_shared() && (self.entry.binds != REPORTERS || self.quota_wait_ms > 0)
    }

    /// True if the entry holds a node back.
    #[must_use]
    pub fn holds(&self, node: &NodeName) -> bool {
        self.concerns(node) && self.is_obeyed_by(node)
    }

    /// True if a node has the entry and does not only observe. It may be held by a quota even if the entry does not bind it.
    #[must_use]
    pub fn is_obeyed_by(&self, node: &NodeName) -> bool {
        self.nodes.binary_search(node).is_ok() && !(self.is_shared() && self.observers.contains(node))
    }

    /// True if all nodes with the shared entry only observe.
    #[must_use]
    pub fn is_only_observed(&self) -> bool {
        self.is_shared() && self.nodes.iter().all(|node| self.observers.contains(node))
    }

    /// True if the entry binds a node, which may only observe. All nodes have an entry that binds its reporters alone.
    #[must_use]
    pub fn concerns(&self, node: &NodeName) -> bool {
        let BackoffEntry { reporters, reporter_count, .. } = &self.entry;
        // If some reporters are not named, the node may be one of them.
        let may_be_bound = || *reporter_count > reporters.len() as u64 || reporters.iter().any(|reporter| reporter == node.as_str());
        self.nodes.binary_search(node).is_ok() && (!self.is_shared() || self.holds_all() || may_be_bound())
    }

    /// The most nodes that the entry holds back. Among many nodes that may be reporters, only as many are.
    #[must_use]
    pub fn held_most(&self) -> u64 {
        let all = self.nodes.len() as u64;
        if self.holds_all() { all } else { all.min(self.entry.reporter_count.max(1)) }
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
    fn shared_entry_has_one_row() {
        let known = of_two();
        assert_eq!(known.iter().map(|known| known.nodes.len()).collect::<Vec<_>>(), [2, 1, 1]);
        assert_eq!((known[0].entry.step, known[0].entry.probed_by.as_deref()), (2, Some("n3")), "the newest, and its prober");
    }
}
