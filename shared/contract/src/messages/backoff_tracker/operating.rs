//! What operators ask: which back-offs there are; clear them; pause sharing.

use serde::{Deserialize, Serialize};

use super::EntryAbout;
use crate::{Command, FailureClass, PodRef, Service, TraceContext, View};

/// What this node knows of failures: its own back-offs and what the fleet shares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListBackoffs {
    /// Only what this names: a key as listed or its beginning, or an image that is held back. None: all.
    #[serde(default)]
    pub what: Option<String>,
    /// Only of this registry, as images name it. None: of all.
    #[serde(default)]
    pub registry: Option<String>,
    /// Only what failed for this pod, by its namespace and name, and has not succeeded since: also what its own rule does not hold back.
    /// None: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// At most so many entries; none: [`LISTED_MOST`].
    #[serde(default)]
    pub limit: Option<u64>,
    /// Of what is shared the key alone: another node has told the rest.
    #[serde(default)]
    pub shared_by_key: bool,
}

/// The most entries of one list: at half a kilobyte each, what a message may hold.
pub const LISTED_MOST: usize = 1_000;

impl Command for ListBackoffs {
    type Reply = BackoffList;
    const SERVICE: Service = Service::BackoffTracker;
    const VERB: &'static str = "list";
}

/// The answer to [`ListBackoffs`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffList {
    /// What is known and looked for, shared entries first. At most [`LISTED_MOST`]; see `left_out`.
    pub entries: Vec<BackoffEntry>,
    /// The keys of what is shared, if no more than these was asked for.
    #[serde(default)]
    pub shared_keys: Vec<String>,
    /// How many more of these there are.
    #[serde(default)]
    pub left_out: u64,
    /// How many others there are that were not looked for.
    #[serde(default)]
    pub others: u64,
    /// `enforce`, `observe`, `off`.
    pub share: String,
    /// Whether the bus is gone, so that the node goes by kubelet's rule.
    #[serde(default)]
    pub alone: bool,
    /// Pauses in force.
    #[serde(default)]
    pub pauses: Vec<Pause>,
}

/// One failure that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackoffEntry {
    /// Names it in `explain` and `clear`: 32 hex digits for what is shared, else the image, for a pod `namespace/name image`.
    pub key: String,
    /// What it is about.
    pub about: EntryAbout,
    /// The node's view of the registry; none for what is this node's own.
    pub view: Option<View>,
    /// What kind of failure.
    pub class: FailureClass,
    /// Who binds: `everybody`, `reporters` (not corroborated yet), `this node`.
    pub binds: String,
    /// Who says so, the newest first; at most 10.
    pub reporters: Vec<String>,
    /// How many say so.
    pub reporter_count: u64,
    /// Which failure in a row.
    pub step: u32,
    /// How long ago the first of them was, in milliseconds.
    pub since_ms: u64,
    /// How long ago the last was, in milliseconds.
    pub last_ms_ago: u64,
    /// Milliseconds until the next attempt; 0 when it is due.
    pub next_attempt_ms: u64,
    /// Who holds the lead or the probe now, if somebody does.
    pub probed_by: Option<String>,
    /// `<reason>: <message>` of the last failure.
    pub cause: String,
    /// The span of the attempt that failed last.
    pub trace: Option<TraceContext>,
}

impl BackoffEntry {
    /// Whether the fleet shares it; else it is a node's own.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.view.is_some()
    }
}

/// Forget what holds an image or an entry, here. To every node at once it is said on the bus.
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
    /// What was forgotten, in words; empty: nothing matched.
    pub cleared: Vec<String>,
    /// What was not cleared, and why, in words.
    #[serde(default)]
    pub still_binding: Vec<String>,
}

/// Nobody is refused by shared knowledge for a while, on every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseSharing {
    /// Of which registry (`host[:port]`); none: all.
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
    /// Why only this node was told, in words: it tells the others when it can. None: all are told.
    #[serde(default)]
    pub only_here: Option<String>,
}

/// A pause in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Of which registry; none: all.
    #[serde(default)]
    pub registry: Option<String>,
    /// Milliseconds until it ends by itself.
    pub left_ms: u64,
    /// Who paused.
    pub by: String,
}
