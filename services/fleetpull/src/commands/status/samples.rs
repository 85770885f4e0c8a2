//! Answers of nodes, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bus::BucketServers;
use contract::messages::agent::NodeDescription;
use contract::messages::backoff_tracker::{BackoffEntry, EntryKind, KeyParts};
use contract::messages::pull_coordinator::{PullState, PullStatus};
use contract::messages::throttler::{BudgetList, BudgetState, KnownLimits, RegistryLimit};
use contract::{FailureClass, NodeName, View};

use super::model::Answers;
use super::waits::Waits;
use crate::commands::budget::Merger;
use crate::commands::holds::Budgets;
use crate::output::known_failures;
use crate::output::silent::Silent;

pub(super) const OWNER: &str = "default|registry.example|h||anonymous|e";

pub(super) fn node(number: usize) -> NodeName {
    format!("n{number}").parse().expect("a name")
}

/// A node without problems.
pub(in crate::commands) fn description(number: usize) -> NodeDescription {
    NodeDescription {
        node: node(number),
        instance: "i".to_owned(),
        host: String::new(),
        started_ms: 0,
        version: "0.1.0".to_owned(),
        state: "ok".to_owned(),
        since_ms: 60_000,
        runtime: "oci-layout".to_owned(),
        labels: BTreeMap::new(),
        zone: String::new(),
        pulling: 0,
        waiting: 0,
        standing: 0,
        backoff: 0,
        oldest_unsent_ms: 0,
        share: "enforce".to_owned(),
        reads_versions: vec![1],
        policy_revision: 41,
        bus_loss: None,
        bus_unset: false,
    }
}

pub(super) fn silent(number: usize, seconds: u64) -> Silent {
    let ago = Duration::from_secs(seconds);
    Silent { node: node(number), ago, labels: None, known_for: Duration::from_secs(3_600) }
}

/// An entry about a part of `registry.example`.
pub(super) fn of_registry(kind: EntryKind) -> KeyParts {
    KeyParts::of(kind, "registry.example")
}

/// An entry about an image.
pub(super) fn of_image(kind: EntryKind, image: &str) -> KeyParts {
    let registry = image::Reference::parse(image).map(|image| image.registry().to_owned()).unwrap_or_default();
    KeyParts { image: image.to_owned(), ..KeyParts::of(kind, &registry) }
}

/// A shared entry whose key starts with `key`.
pub(super) fn shared(key: &str, key_parts: KeyParts, class: FailureClass, cause: &str) -> BackoffEntry {
    let view = View { scope: "default".to_owned(), registry: "registry.example".to_owned(), ..View::default() };
    BackoffEntry {
        key: format!("{key:0<32}"),
        key_parts,
        view: Some(view),
        class,
        binds: "everybody".to_owned(),
        reporters: vec!["n1".to_owned()],
        reporter_count: 1,
        step: 3,
        since_ms: 252_000,
        last_ms_ago: 3_000,
        next_attempt_ms: 3_400,
        cause: format!("ErrImagePull: {cause}"),
        ..BackoffEntry::default()
    }
}

pub(super) fn unavailable() -> BackoffEntry {
    let cause = "registry.example: 503 Service Unavailable for manifest v1";
    let (endpoint, zone) = ("registry.example:443".to_owned(), "a".to_owned());
    let key_parts = KeyParts { endpoint, zone, ..of_registry(EntryKind::Registry) };
    shared("7f3a", key_parts, FailureClass::RegistryUnavailable, cause)
}

pub(super) fn missing(key: &str, image: &str) -> BackoffEntry {
    let cause = "registry.example: 404 Not Found (MANIFEST_UNKNOWN: manifest unknown) for manifest v9";
    BackoffEntry {
        next_attempt_ms: 41_000,
        since_ms: 672_000,
        ..shared(key, of_image(EntryKind::Image, image), FailureClass::NotFound, cause)
    }
}

/// A back-off entry of one node.
pub(super) fn own(key: &str) -> BackoffEntry {
    BackoffEntry {
        key: key.to_owned(),
        key_parts: of_image(EntryKind::NodeImage, key.rsplit(' ').next().unwrap_or(key)),
        binds: "this node".to_owned(),
        class: FailureClass::NodeLocal,
        cause: "ErrImagePull: no space left on device".to_owned(),
        since_ms: 20_000,
        next_attempt_ms: 12_000,
        ..BackoffEntry::default()
    }
}

/// The back-off entry of a budget's owner.
pub(super) fn limited() -> BackoffEntry {
    let key_parts = KeyParts { owner: OWNER.to_owned(), ..of_registry(EntryKind::Budget) };
    shared("91c0", key_parts, FailureClass::RateLimited, "registry.example: 429 Too Many Requests for manifest v1")
}

/// A budget with this much of its quota left, as its leader reports it.
pub(super) fn budget(owner: &str, remaining: u64) -> BudgetState {
    let limit = RegistryLimit { limit: 100, remaining, window_ms: 21_600_000, reset_ms: Some(8_040_000), source: None };
    BudgetState {
        owner: owner.to_owned(),
        leads: true,
        epoch: 1,
        per_second: 200.0,
        per_second_in_force: 200.0,
        policy_revision: 41,
        known: KnownLimits { limits: vec![limit], ..KnownLimits::default() },
        ..BudgetState::default()
    }
}

pub(super) fn waiting(image: &str, since_ms: u64) -> PullStatus {
    let (state, callers, done_bytes, total_bytes) = (PullState::Waiting, 1, 0, 0);
    PullStatus { image: image.to_owned(), state, since_ms, callers, pods: Vec::new(), done_bytes, total_bytes, layers: Vec::new() }
}

/// Composes the answers of a fleet.
pub(super) struct Sample {
    answers: Answers,
    failures: known_failures::Merger,
    budgets: Merger,
}

impl Sample {
    pub(super) fn of(nodes: usize) -> Self {
        let answers = Answers {
            fleet: "prod-eu".to_owned(),
            of_one_node: false,
            nodes: (1..=nodes).map(description).collect(),
            silent: Vec::new(),
            unanswered: Vec::new(),
            known: Vec::new(),
            left_out: 0,
            pauses: Vec::new(),
            budgets: Budgets::default(),
            waits: Waits::default(),
            servers: Some(BucketServers { total: 3, down: Vec::new() }),
            answered_in_ms: Some(4),
        };
        Self { answers, failures: known_failures::Merger::default(), budgets: Merger::default() }
    }

    /// Makes any other change.
    pub(super) fn with(mut self, change: impl FnOnce(&mut Answers)) -> Self {
        change(&mut self.answers);
        self
    }

    /// All nodes have this entry.
    pub(super) fn knowing(mut self, entry: &BackoffEntry) -> Self {
        for described in &mut self.answers.nodes {
            described.backoff += 1;
            self.failures.add(&described.node, vec![entry.clone()]);
        }
        self
    }

    /// Only this node has this entry.
    pub(super) fn alone(mut self, number: usize, entry: BackoffEntry) -> Self {
        self.failures.add(&node(number), vec![entry]);
        self
    }

    pub(super) fn led(mut self, state: BudgetState) -> Self {
        self.budgets.add(&node(1), BudgetList { budgets: vec![state], ..BudgetList::default() });
        self
    }

    /// The first `nodes` nodes have waited for an image for `since_ms`.
    pub(super) fn waiting(mut self, nodes: usize, image: &str, since_ms: u64) -> Self {
        for described in self.answers.nodes.iter_mut().take(nodes) {
            described.waiting += 1;
            self.answers.waits.add_pulls(&described.node, &[waiting(image, since_ms)]);
        }
        self
    }

    pub(super) fn answers(self) -> Answers {
        let budgets = Budgets::from_merged(self.budgets);
        let left_out = self.answers.left_out + self.failures.left_out();
        let mut known = self.failures.into_known();
        let observers = self.answers.nodes.iter().filter(|described| described.share == "observe").map(|described| described.node.clone());
        let observers: Rc<BTreeSet<NodeName>> = Rc::new(observers.collect());
        known.iter_mut().for_each(|known| known.note_observers(&observers));
        budgets.delay(&mut known);
        Answers { left_out, known, budgets, ..self.answers }
    }
}
