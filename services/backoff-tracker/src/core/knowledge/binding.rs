//! The entries as this node derives them, and those that refuse it an attempt.

use std::time::Duration;

use contract::View;

use super::backoff_key::BackoffKeyId;
use super::entry::{Entry, Viewpoint};
use super::node::Knowledge;
use super::planted_bug::PlantedBug;
use super::target::TargetKeys;

impl Knowledge {
    /// The entries of all keys that fail, for lists.
    #[must_use]
    pub fn entries(&self, now: Duration) -> Vec<Entry> {
        self.replica.backoff_keys().filter_map(|backoff_key| self.entry(now, backoff_key)).collect()
    }

    /// How many entries refuse this node. Without a bus these are the entries that were known when it was lost, as long as they count.
    #[must_use]
    pub fn binding_count(&self, now: Duration) -> usize {
        let counts = |entry: &Entry| {
            self.without_bus.is_none_or(|without_bus| self.held_without_bus_until(entry, without_bus).is_some_and(|until| now < until))
        };
        let holds = |entry: &&Entry| entry.refuses_all && !self.exemptions.holds(now, entry.backoff_key.view()) && counts(entry);
        self.entries(now).iter().filter(holds).count()
    }

    pub(super) fn entry(&self, now: Duration, backoff_key: BackoffKeyId) -> Option<Entry> {
        self.replica.entry(backoff_key, self.viewpoint(now))
    }

    /// The entries of all keys that can refuse a target, broadest first.
    pub(super) fn entries_of(&self, now: Duration, target_keys: &TargetKeys) -> impl Iterator<Item = Entry> {
        target_keys.ids.iter().filter_map(move |backoff_key| self.entry(now, *backoff_key))
    }

    pub(super) fn viewpoint(&self, now: Duration) -> Viewpoint<'_> {
        let trusts_anyone = self.has(PlantedBug::TrustsEveryReporter);
        let known = |nodes: usize| if self.fleet.in_zone.is_some() { nodes.max(1) } else { usize::MAX };
        let (alive, alive_in_zone) = (known(self.fleet.alive), known(self.fleet.in_zone.unwrap_or_default()));
        let endless = self.has(PlantedBug::StepsGrow);
        Viewpoint { node: &self.node, now, alive_in_zone, alive, trusts_anyone, endless }
    }

    /// The entries that refuse this node an attempt at the image.
    pub(super) fn binding(&self, now: Duration, target_keys: &TargetKeys) -> Vec<Entry> {
        self.entries_of(now, target_keys).filter(|entry| entry.refuses_all).collect()
    }

    /// The first entry of these keys that this node reports and that refuses all nodes.
    pub(super) fn binding_of(&self, now: Duration, mut backoff_keys: impl Iterator<Item = BackoffKeyId>) -> Option<Entry> {
        let shared = |backoff_key| self.entry(now, backoff_key).filter(|entry| entry.mine && entry.refuses_all);
        if self.is_without_bus() { None } else { backoff_keys.find_map(shared) }
    }

    /// True if other nodes' reports refuse nothing of this view here.
    pub(super) fn is_exempt(&self, now: Duration, view: &View) -> bool {
        self.exemptions.holds(now, view)
    }
}

/// Of the entries that refuse a request, the one that does so the longest.
pub(super) fn not_due(now: Duration, binding: &[Entry]) -> Option<&Entry> {
    binding.iter().filter(|entry| now < entry.next_attempt).max_by_key(|entry| entry.next_attempt)
}
