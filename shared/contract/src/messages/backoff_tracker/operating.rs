//! Commands of operators: list back-off entries, clear them, pause sharing.

use serde::{Deserialize, Serialize};

use super::KeyParts;
use crate::{Command, FailureClass, PodRef, Service, TraceContext, View};

/// Asks for the failures that this node knows: its own back-offs and the shared entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListBackoffs {
    /// Only what this finds: a key as listed or its beginning, or an image that is refused. None: all.
    #[serde(default)]
    pub what: Option<String>,
    /// Only entries of this registry, as images name it. None: all.
    #[serde(default)]
    pub registry: Option<String>,
    /// Only what failed for this pod (namespace and name) and has not succeeded since, even if its own rule allows an attempt now. None:
    /// all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// The most entries; none: [`LISTED_MOST`].
    #[serde(default)]
    pub limit: Option<u64>,
    /// Of shared entries only the keys, because another node has sent the rest.
    #[serde(default)]
    pub shared_by_key: bool,
}

/// The most entries of one list. At 0.5 KiB each they fit into a message.
pub const LISTED_MOST: usize = 1_000;

impl Command for ListBackoffs {
    type Reply = BackoffList;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "list";
}

/// The answer to [`ListBackoffs`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffList {
    /// The entries found, shared ones first. At most [`LISTED_MOST`], and as many as fit into a message; see `left_out`. Each has only the
    /// beginning of its cause if that is long and there are many entries.
    pub entries: Vec<BackoffEntry>,
    /// The keys of shared entries, if only these were asked for.
    #[serde(default)]
    pub shared_keys: Vec<String>,
    /// How many more entries were found.
    #[serde(default)]
    pub left_out: u64,
    /// How many entries did not match.
    #[serde(default)]
    pub others: u64,
    /// `enforce`, `observe`, `off`.
    pub share: String,
    /// Whether the node is without bus, so that it follows kubelet's rule.
    #[serde(default)]
    pub alone: bool,
    /// Pauses in force.
    #[serde(default)]
    pub pauses: Vec<Pause>,
}

/// One known failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackoffEntry {
    /// Its key for `explain` and `clear`: 32 hex digits for a shared entry, else the image, for a pod `namespace/name image`.
    pub key: String,
    /// The parts of its key: what it is about.
    pub key_parts: KeyParts,
    /// The node's view of the registry; none for the node's own back-off.
    pub view: Option<View>,
    /// The class of the failure.
    pub class: FailureClass,
    /// The nodes that it refuses: `everybody`; `unconfirmed`: only the node that reports it, until another node confirms it;
    /// `reporters`: only these, because too few nodes report it; `this node`.
    pub binds: String,
    /// The nodes that report it, newest first; at most 10.
    pub reporters: Vec<String>,
    /// How many nodes report it.
    pub reporter_count: u64,
    /// The number of failures in a row, of all nodes that report it.
    pub step: u32,
    /// How long ago the first of them was, in milliseconds.
    pub since_ms: u64,
    /// How long ago the last was, in milliseconds.
    pub last_ms_ago: u64,
    /// Milliseconds until the next attempt; 0 when it is due.
    pub next_attempt_ms: u64,
    /// The node with the lead or probe lease, if there is one.
    pub probed_by: Option<String>,
    /// `<reason>: <message>` of the last failure.
    pub cause: String,
    /// The span of the attempt that failed last.
    pub trace: Option<TraceContext>,
}

impl BackoffEntry {
    /// Whether it is shared; else it is a node's own.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.view.is_some()
    }
}

/// Clears an image or an entry on this node. Sent over the bus to clear it on all nodes at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearBackoff {
    /// A key as listed, or an image.
    pub what: String,
    /// Who clears, for the event: `user@host`.
    pub by: String,
}

impl Command for ClearBackoff {
    type Reply = BackoffCleared;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "clear";
}

/// The answer to [`ClearBackoff`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffCleared {
    /// What was cleared, in words; empty: nothing matched.
    pub cleared: Vec<String>,
    /// What was not cleared, and why, in words.
    #[serde(default)]
    pub still_binding: Vec<String>,
}

/// Pauses sharing on every node: shared entries refuse nobody for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseSharing {
    /// The registry (`host[:port]`); none: all.
    #[serde(default)]
    pub registry: Option<String>,
    /// For how long, in milliseconds; 0 ends a pause.
    pub for_ms: u64,
    /// Who pauses, for the event: `user@host`.
    pub by: String,
}

impl Command for PauseSharing {
    type Reply = SharingPaused;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "pause";
}

/// The answer to [`PauseSharing`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingPaused {
    /// The pauses in force now.
    pub pauses: Vec<Pause>,
    /// Why only this node knows of it, in words: it informs the others when it can. None: all know.
    #[serde(default)]
    pub only_here: Option<String>,
}

/// A pause in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The registry; none: all.
    #[serde(default)]
    pub registry: Option<String>,
    /// Milliseconds until it ends by itself.
    pub left_ms: u64,
    /// Who paused.
    pub by: String,
}
