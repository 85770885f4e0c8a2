//! `fleetpull nodes`: lists the nodes.

use std::collections::BTreeMap;

use anyhow::Result;
use contract::NodeName;
use contract::messages::agent::NodeDescription;
use serde::Serialize;

use crate::cli::NodesArgs;
use crate::commands::watch::ListRequest;
use crate::exit::Exit;
use crate::fleet::{FleetClient, Members};
use crate::output::listing::Listing;
use crate::output::silent::{Silent, milliseconds};
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::{given, json_line, units};

/// The state of a node that is known but does not answer.
const SILENT: &str = "silent";
/// The state of a node without problems.
const OK: &str = "ok";
/// The prefix of the state of a degraded node; the reason follows.
const DEGRADED: &str = "degraded: ";
/// Nodes that are not ready and are named below the table with the reason; the others are counted.
const NAMED_NOT_READY: usize = 10;

/// All columns; the labels are last.
static COLUMNS_WITH_LABELS: [Column; 16] = [
    Column::name("NAME", 10),
    Column::new("STATUS"),
    Column::name("ZONE", 4),
    Column::sentence("RUNTIME", 7),
    Column::new("VERSION"),
    Column::new("RUNNING"),
    Column::new("WAITING"),
    Column::new("BLOCKED"),
    Column::new("AGE"),
    Column::wide("SINCE"),
    Column::wide("STANDING"),
    Column::wide("SHARE"),
    Column::wide("UNSENT"),
    Column::wide("HOST"),
    Column::wide("REASON"),
    Column::name("LABELS", 6),
];
/// The columns without labels.
static COLUMNS: &[Column] = COLUMNS_WITH_LABELS.split_at(15).0;

/// A node in JSON. The names and their meaning are an interface.
#[derive(Serialize)]
pub(super) struct JsonNode<'a> {
    node: &'a NodeName,
    instance: Option<&'a str>,
    started_at: Option<String>,
    version: Option<&'a str>,
    state: &'a str,
    since_ms: u64,
    runtime: Option<&'a str>,
    zone: Option<&'a str>,
    /// Null if unknown.
    labels: Option<&'a BTreeMap<String, String>>,
    pulling: Option<u64>,
    waiting: Option<u64>,
    backoff: Option<u64>,
    reads_versions: &'a [u32],
}

/// A listed node.
pub(super) struct Listed {
    pub(super) node: NodeDescription,
    knows_labels: bool,
}

impl Listed {
    /// True if the node is known but does not answer.
    pub(super) fn is_silent(&self) -> bool {
        self.node.state == SILENT
    }
}

impl<'a> JsonNode<'a> {
    pub(super) fn of(Listed { node, knows_labels }: &'a Listed) -> Self {
        let answers = node.state != SILENT;
        let known = |count: u64| answers.then_some(count);
        Self {
            node: &node.node,
            instance: given(&node.instance),
            started_at: answers.then(|| units::rfc_3339(node.started_ms)),
            version: given(&node.version),
            state: &node.state,
            since_ms: node.since_ms,
            runtime: given(&node.runtime),
            zone: given(&node.zone),
            labels: knows_labels.then_some(&node.labels),
            pulling: known(node.pulling),
            waiting: known(node.waiting),
            backoff: known(node.backoff),
            reads_versions: &node.reads_versions,
        }
    }
}

/// Lists the agents.
pub(super) fn carry_out(args: &NodesArgs) -> Result<Exit> {
    let columns = if args.show_labels { &COLUMNS_WITH_LABELS[..] } else { COLUMNS };
    let request = ListRequest::of(args.question.output, &args.list, columns)?;
    request.show(&args.question, async |client: &FleetClient| {
        let nodes = listed(args, client).await?;
        Ok((listing(&nodes, columns, request.has_objects(), client.clock().now().wall_ms()), Exit::Success))
    })
}

pub(super) async fn listed(args: &NodesArgs, client: &FleetClient) -> Result<Vec<Listed>> {
    let Members { answering, duplicates, silent: left_out, .. } = client.members(args.question.fleet.selector.as_ref()).await?;
    let answering = answering.into_iter().chain(duplicates).map(|node| Listed { node, knows_labels: true });
    let mut nodes: Vec<Listed> = answering.chain(left_out.into_iter().map(silent)).collect();
    // A stable sort keeps the agent that the fleet reaches by a name before its duplicates.
    nodes.sort_by(|one, other| one.node.node.cmp(&other.node.node));
    Ok(nodes)
}

/// The list as shown at `now_ms`, in milliseconds since 1970-01-01.
fn listing(nodes: &[Listed], columns: &'static [Column], with_objects: bool, now_ms: u64) -> Listing {
    // The text for an empty list is empty, because a fleet without nodes is an error.
    let mut listing = Listing::new(Table::new(columns), "");
    for node in nodes {
        listing.table.add(node.node.node.as_str(), cells(node, now_ms));
    }
    listing.facts = not_ready(nodes);
    if with_objects {
        listing.objects = nodes.iter().filter_map(|node| json_line(&JsonNode::of(node))).collect();
    }
    listing
}

/// A node that is known but does not answer: only the time of its last contact and its labels are known.
fn silent(Silent { node, ago, labels, .. }: Silent) -> Listed {
    let knows_labels = labels.is_some();
    let node = NodeDescription {
        node,
        instance: String::new(),
        host: String::new(),
        started_ms: 0,
        version: String::new(),
        state: SILENT.to_owned(),
        since_ms: milliseconds(ago),
        runtime: String::new(),
        labels: labels.unwrap_or_default(),
        zone: String::new(),
        pulling: 0,
        waiting: 0,
        standing: 0,
        backoff: 0,
        oldest_unsent_ms: 0,
        share: String::new(),
        reads_versions: Vec::new(),
        policy_revision: 0,
        bus_loss: None,
        bus_unset: false,
    };
    Listed { node, knows_labels }
}

fn cells(Listed { node, .. }: &Listed, now_ms: u64) -> Vec<Cell> {
    let is_silent = node.state == SILENT;
    let known = |cell: Cell| if is_silent { Cell::nothing() } else { cell };
    let labels: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    vec![
        Cell::from(node.node.as_str()),
        status(node),
        Cell::from(node.zone.as_str()),
        runtime(&node.runtime),
        Cell::from(node.version.as_str()),
        known(Cell::count(node.pulling)),
        known(Cell::count(node.waiting)),
        known(Cell::count(node.backoff)),
        known(Cell::age(now_ms.saturating_sub(node.started_ms))),
        Cell::age(node.since_ms),
        known(Cell::count(node.standing)),
        Cell::from(node.share.as_str()),
        known(Cell::age(node.oldest_unsent_ms)),
        Cell::from(node.host.as_str()),
        reason(node).map_or_else(Cell::nothing, Cell::from),
        Cell::from(labels.join(",")),
    ]
}

/// The runtime, in a narrow column without its version.
fn runtime(name_and_version: &str) -> Cell {
    let name = name_and_version.split(' ').next().unwrap_or_default();
    Cell::from(name_and_version).or_in_short(name)
}

/// The status in one word, which is never cut.
fn status(node: &NodeDescription) -> Cell {
    match node.state.as_str() {
        OK => Cell::from("ready").toned(Tone::Good),
        SILENT => Cell::from(SILENT).toned(Tone::Bad),
        _ => Cell::from("degraded").toned(Tone::Warning),
    }
}

/// Why a node is degraded.
pub(super) fn reason(node: &NodeDescription) -> Option<&str> {
    let is_degraded = !matches!(node.state.as_str(), OK | SILENT);
    is_degraded.then(|| node.state.strip_prefix(DEGRADED).unwrap_or(&node.state))
}

/// Describes the nodes that are not ready.
fn not_ready(nodes: &[Listed]) -> Vec<String> {
    let all: Vec<&NodeDescription> = nodes.iter().map(|listed| &listed.node).filter(|node| node.state != OK).collect();
    let (named, others) = all.split_at(all.len().min(NAMED_NOT_READY));
    let sentence = |node: &&NodeDescription| match reason(node) {
        Some(reason) => format!("{} is degraded: {reason}", node.node),
        None => format!("{} has been {}", node.node, status_in_words(node)),
    };
    let further = (!others.is_empty()).then(|| format!("{} more are not ready: see them with -o wide", others.len()));
    named.iter().map(sentence).chain(further).collect()
}

/// The status with its details.
pub(super) fn status_in_words(node: &NodeDescription) -> String {
    match node.state.as_str() {
        OK => "ready".to_owned(),
        SILENT => format!("{SILENT} for {}", units::age(node.since_ms)),
        state => state.to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::output::table::Look;

    pub(in crate::commands::nodes) const NOW_MS: u64 = 1_790_000_000_000;

    pub(in crate::commands::nodes) fn well(name: &str) -> Listed {
        let described = serde_json::from_value(json!({
            "node": name, "instance": "i", "started_ms": NOW_MS - 90_000_000, "version": "0.1.0", "state": "ok", "since_ms": 90_000_000,
            "runtime": "containerd 2.1.0", "labels": { "disk": "ssd", "zone": "a" }, "zone": "eu-1a", "pulling": 3, "waiting": 12,
            "backoff": 2, "share": "enforce",
        }));
        Listed { node: described.expect("a description"), knows_labels: true }
    }

    fn silent_for(name: &str, seconds: u64) -> Listed {
        let ago = Duration::from_secs(seconds);
        silent(Silent { node: name.parse().expect("a name"), ago, labels: None, known_for: 12 * ago })
    }

    #[test]
    fn nodes_have_a_row_each_that_fits_80_columns() {
        let mut degraded = well("n2.rack-7.example");
        degraded.node.state = "degraded: no bus since 12:00:03Z: connection refused".to_owned();
        let nodes = [well("n1"), degraded, silent_for("n3", 240)];
        let shown = listing(&nodes, COLUMNS, false, NOW_MS);
        assert_eq!(
            shown.table.lines(&Look::of_width(Some(79))),
            [
                "NAME        STATUS    ZONE   RUNTIME    VERSION  RUNNING  WAITING  BLOCKED  AGE",
                "n1          ready     eu-1a  contai...  0.1.0    3        12       2        25h",
                "n2....mple  degraded  eu-1a  contai...  0.1.0    3        12       2        25h",
                "n3          silent    -      -          -        -        -        -        -",
            ]
        );
        let sentences = [
            "n2.rack-7.example is degraded: no bus since 12:00:03Z: connection refused".to_owned(),
            "n3 has been silent for 4m".to_owned(),
        ];
        assert_eq!(shown.facts, sentences);
    }

    #[test]
    fn ten_nodes_that_are_not_ready_are_named_and_the_others_counted() {
        let nodes: Vec<Listed> = (0..5_000).map(|number| silent_for(&format!("n{number:04}"), 240)).collect();
        let shown = listing(&nodes, COLUMNS, false, NOW_MS);
        assert_eq!(shown.facts.len(), NAMED_NOT_READY + 1);
        assert_eq!(shown.facts.last().map(String::as_str), Some("4990 more are not ready: see them with -o wide"));
    }

    #[test]
    fn all_of_it_is_shown_where_no_terminal_is() {
        let mut degraded = well("n2");
        degraded.node.state = "degraded: no bus since 12:00:03Z".to_owned();
        let shown = listing(&[degraded, silent_for("n3", 240)], &COLUMNS_WITH_LABELS, false, NOW_MS);
        let lines = shown.table.lines(&Look { is_wide: true, ..Look::of_width(None) });
        let header = lines[0].split_whitespace().skip(8).collect::<Vec<_>>().join(" ");
        assert_eq!(header, "AGE SINCE STANDING SHARE UNSENT HOST REASON LABELS");
        assert!(lines[1].ends_with("no bus since 12:00:03Z  disk=ssd,zone=a"), "{lines:#?}");
        assert!(lines[2].starts_with("n3    silent ") && lines[2].ends_with('-'), "{lines:#?}");
    }

    #[test]
    fn labels_of_a_silent_node_are_null_unless_they_are_known() {
        for (labels, expected) in [
            (None, serde_json::Value::Null),
            (Some(BTreeMap::new()), json!({})),
            (Some(BTreeMap::from([("zone".to_owned(), "a".to_owned())])), json!({ "zone": "a" })),
        ] {
            let (node, ago) = ("n1".parse().expect("a name"), Duration::from_secs(5));
            let listed = silent(Silent { node, ago, labels, known_for: 12 * ago });
            let json = serde_json::to_value(JsonNode::of(&listed)).expect("serialises");
            assert_eq!((&json["labels"], &json["state"], &json["pulling"]), (&expected, &json!("silent"), &json!(null)));
        }
    }

    #[test]
    fn a_clock_that_went_back_and_any_figure_are_shown() {
        let mut node = well("n1");
        (node.node.started_ms, node.node.since_ms, node.node.pulling) = (u64::MAX, u64::MAX, u64::MAX);
        let shown = listing(&[node], COLUMNS, true, 0);
        assert_eq!(shown.objects.len(), 1);
        assert!(shown.table.lines(&Look::of_width(Some(20))).iter().all(|line| line.chars().count() <= 20));
    }
}
