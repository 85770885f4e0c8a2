//! The entries that the nodes of a fleet list.

use std::collections::BTreeSet;
use std::time::Duration;

use contract::FailureClass;
use contract::messages::backoff_tracker::{BackoffEntry, ListBackoffs};
use e2e::{Agent, Registry, Watch, until, until_within};
use serde_json::json;

use super::fleet::{Outage, test_name};

/// The longest time after the bus is back until all nodes have the same entries. It takes about 1 s, but all these fleets ask for it at the
/// same time.
const WITHIN: Duration = Duration::from_secs(10);
/// An entry whose next attempt is at least this far away is not tried while all agents restart, also on a busy machine.
const LEFT_AT_LEAST: Duration = Duration::from_secs(15);
/// The precision of a failure's age in a report that a node reads: whole milliseconds, and the time of the server's answers.
const READ_WITHIN: Duration = Duration::from_millis(200);

/// A healthy registry without images. One node gets its answer, and all nodes must learn of it without a request.
pub(crate) struct OtherRegistry(Registry);

impl OtherRegistry {
    pub(crate) fn new() -> Self {
        Self(Registry::new())
    }

    fn image(&self) -> String {
        self.0.image("shop/missing:v1")
    }

    /// Lets this node find that the image is missing.
    pub(crate) fn pull_missing(&self, agent: &Agent<'_>) {
        let row = agent.asked(&["pull", &self.image(), "-o", "json"]).expect(1).object();
        assert_eq!((&row["outcome"], &row["class"]), (&json!("failed"), &json!("not_found")), "{row}");
    }

    /// Waits until all of these agents have n01's report; asserts that no other node has made a request.
    pub(crate) fn until_known_to(&self, agents: &[Agent<'_>]) {
        let (watch, host) = (Watch::start(), self.0.host());
        for agent in agents {
            let limit = WITHIN.saturating_sub(watch.elapsed());
            until_within(&format!("{}: all know within {WITHIN:?} what one found out", test_name()), limit, || {
                shared_entries(agent).iter().any(|entry| is_of(entry, host) && entry.reporters == ["n01"]).then_some(())
            });
        }
        eprintln!("{}: {} know {:.1?} later what one found out", test_name(), agents.len(), watch.elapsed());
        assert_eq!(self.0.counts().requests, 1, "{}: no other node has asked", test_name());
    }
}

/// An entry that all nodes have, and whose next attempt is still to come.
#[derive(Debug)]
pub(crate) struct PendingEntry {
    entry: BackoffEntry,
    /// When the entry was listed, and its next attempt, by the clock of the outage's registry.
    listed: Duration,
    next_attempt: Duration,
}

impl PendingEntry {
    /// Waits for an entry whose next attempt is far enough away for all agents to restart before it.
    pub(crate) fn wait_for_one(outage: &Outage<'_>) -> Self {
        until(&format!("{}: the registry's answer holds the fleet back", test_name()), || {
            let listed = outage.registry.age();
            let entries = shared_entries(&outage.agents[0]);
            let entry = entries.into_iter().find(|entry| is_of(entry, outage.registry.host()))?;
            let left = Duration::from_millis(entry.next_attempt_ms);
            (left >= LEFT_AT_LEAST).then_some(Self { entry, listed, next_attempt: listed + left })
        })
    }

    /// Waits until each node lists the same entry with the same reporters.
    pub(crate) fn until_listed_by_all(&self, outage: &Outage<'_>) {
        let (expected, watch) = (facts(&self.entry), Watch::start());
        for agent in &outage.agents {
            until_within(&format!("{}: {expected:?} is known to each", test_name()), WITHIN.saturating_sub(watch.elapsed()), || {
                let ago = outage.registry.age() - self.listed;
                let age = |entry: &BackoffEntry| Duration::from_millis(entry.since_ms);
                let is_it = |entry: &BackoffEntry| facts(entry) == expected && age(entry) + READ_WITHIN >= age(&self.entry) + ago;
                shared_entries(agent).iter().any(is_it).then_some(())
            });
        }
    }

    /// Asserts that no node made a request between this time, by the clock of the outage's registry, and the entry's next attempt.
    pub(crate) fn assert_no_request_since(&self, killed: Duration, outage: &Outage<'_>) {
        let early = |at: &Duration| *at > killed && *at + READ_WITHIN < self.next_attempt;
        let asked: Vec<_> = outage.registry.requests().into_iter().map(|request| request.at).filter(early).collect();
        assert!(asked.is_empty(), "{}: asked at {asked:?} between {killed:?} and {:?}", test_name(), self.next_attempt);
        eprintln!("{}: no node asked for {:.1?}, from {killed:.1?} on", test_name(), self.next_attempt.saturating_sub(killed));
    }
}

/// The shared entries that a node lists.
pub(crate) fn shared_entries(agent: &Agent<'_>) -> Vec<BackoffEntry> {
    let entries = agent.ask(&ListBackoffs::default()).entries;
    entries.into_iter().filter(|entry| entry.view.is_some()).collect()
}

/// The key, class and reporters of an entry. Other fields may differ between nodes: if two failures have the same time, each node may take
/// another one for the newer.
pub(crate) fn facts(entry: &BackoffEntry) -> (String, FailureClass, BTreeSet<String>) {
    (entry.key.clone(), entry.class, entry.reporters.iter().cloned().collect())
}

fn is_of(entry: &BackoffEntry, registry: &str) -> bool {
    entry.view.as_ref().is_some_and(|view| view.registry == registry)
}
