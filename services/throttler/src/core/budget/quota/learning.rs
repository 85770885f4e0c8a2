//! What a quota learns from the limits that nodes report, and which reports count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::NodeName;
use contract::messages::throttler::RegistryLimit;

use super::{Out, Quota, Window, may_count, not_included, window_key};
use crate::core::budget::WINDOW_MAX;

/// A registry that does not state its window's length is asked again after this.
const WINDOW_UNSTATED: Duration = Duration::from_secs(60);
/// Added to the end of a window, because registries count in whole seconds.
const WINDOW_MARGIN: Duration = Duration::from_secs(1);
/// If one node alone reports less than other nodes' pulls explain, its report counts for this long. Then another node's pull checks it.
const LONE_REPORT_COUNTS_FOR: Duration = Duration::from_secs(4);
/// The same if that node learned the number from an earlier leader, and other nodes know the window too: the node may be the only one that
/// knows of the last granted pulls.
const LONE_INHERITED_REPORT_COUNTS_FOR: Duration = Duration::from_secs(60);
/// A node is distrusted for this long after other nodes refuted its report: its report alone does not count.
const DISTRUSTED_FOR: Duration = Duration::from_secs(600);
/// The most windows of one owner; further ones are ignored. Real registries state one or two for each address by which they know the fleet.
const WINDOWS_MAX: usize = 64;
/// The most of them that one node alone reports; for a further one, its oldest one is forgotten.
const WINDOWS_OF_ONE_MAX: usize = 4;
/// The most nodes whose source is remembered: those of a large fleet.
const SOURCES_MAX: usize = 10_000;
/// The most distrusted nodes that are remembered; a further one takes the place of the one that was distrusted first.
const DISTRUSTED_MAX: usize = 1_000;

impl Quota {
    /// Takes what the registry stated to `node` in a pull whose permit was granted at `granted`; none if the time is not known, because
    /// another node or an earlier leader reports it. `out`: the other outstanding permits.
    pub(in crate::core::budget) fn learn(
        &mut self,
        now: Duration,
        node: &NodeName,
        granted: Option<Duration>,
        limits: &[RegistryLimit],
        out: Out,
    ) {
        // Another node may state any number.
        let limits = &limits[..limits.len().min(WINDOWS_MAX)];
        self.silent = 0;
        self.node_called(now, node);
        self.learn_source(node, granted.is_some(), limits);
        if limits.is_empty() {
            if let Some(granted) = granted {
                self.refute(now, node, granted);
            }
            return self.none_stated();
        }
        for limit in limits {
            let explained = self.windows.get(&window_key(limit)).map_or(0, |window| not_included(window, out)) + 1;
            self.learn_one(now, node, granted, limit, explained);
        }
        if let Some(granted) = granted {
            self.count_in_others(node, limits);
            self.settle(node, granted, limits);
            self.first_hand = true;
        }
    }

    /// Counts a pull in the windows that its answer did not state: a registry may state fewer windows in a refusal than in other answers,
    /// or only that nothing is left. A stated window of the same length is the same one, with or without its source: if a registry begins
    /// to state sources, the window without a source must not count the pulls of all of them.
    fn count_in_others(&mut self, node: &NodeName, stated: &[RegistryLimit]) {
        let own = self.sources.get(node);
        for ((source, window_ms), window) in &mut self.windows {
            if may_count(source.as_ref(), own) && stated.iter().all(|limit| limit.window_ms != *window_ms) {
                window.remaining = window.remaining.saturating_sub(1);
                // Another node's refusal confirms what one node alone reported.
                if window.remaining == 0 && window.reporters.len() < 2 && stated.iter().all(|limit| limit.remaining == 0) {
                    window.reporters.insert(node.clone());
                }
            }
        }
    }

    /// The answer to a pull that was granted at `granted` includes what ended before, in the windows that it states and in the one of the
    /// same length without a source.
    fn settle(&mut self, node: &NodeName, granted: Duration, stated: &[RegistryLimit]) {
        if self.distrusted.contains_key(node) {
            return;
        }
        for ((source, window_ms), window) in &mut self.windows {
            let states = |limit: &RegistryLimit| limit.window_ms == *window_ms && (source.is_none() || limit.source == *source);
            if stated.iter().any(states) {
                window.unsettled = window.unsettled.split_off(&granted);
            }
        }
    }

    /// Learns the source of a node from its own pull. Otherwise from its report, if that names one source only: leaders send a node only
    /// the windows of its own source.
    fn learn_source(&mut self, node: &NodeName, first_hand: bool, limits: &[RegistryLimit]) {
        let mut named = limits.iter().filter_map(|limit| limit.source.as_ref());
        let Some(source) = named.next().filter(|source| first_hand || named.all(|other| other == *source)) else { return };
        let known = self.sources.contains_key(node);
        if (known && first_hand) || (!known && self.sources.len() < SOURCES_MAX) {
            self.sources.insert(node.clone(), source.clone());
        }
    }

    /// A pull granted at `granted` succeeded and the registry stated no limits to `node`. If one node alone had reported that nothing is
    /// left, it meant a limit that is not the fleet's, or lied.
    fn refute(&mut self, now: Duration, node: &NodeName, granted: Duration) {
        let wrong = |window: &Window| {
            window.remaining == 0 && window.reporters.len() == 1 && !window.reporters.contains(node) && window.reported_at < granted
        };
        let refuted = self.windows.values().filter(|window| wrong(window)).flat_map(|window| window.reporters.iter().cloned());
        let refuted: Vec<NodeName> = refuted.collect();
        self.distrust(now, refuted);
        self.windows.retain(|_, window| !wrong(window));
    }

    fn distrust(&mut self, now: Duration, reporters: impl IntoIterator<Item = NodeName>) {
        self.distrusted.extend(reporters.into_iter().map(|reporter| (reporter, now + DISTRUSTED_FOR)));
        while self.distrusted.len() > DISTRUSTED_MAX
            && let Some(first) = self.distrusted.iter().min_by_key(|(_, until)| **until).map(|(node, _)| node.clone())
        {
            self.distrusted.remove(&first);
        }
    }

    fn learn_one(&mut self, now: Duration, node: &NodeName, granted: Option<Duration>, limit: &RegistryLimit, explained: u64) {
        let resets = now + stated_length(limit) + if granted.is_some() { WINDOW_MARGIN } else { Duration::ZERO };
        let length = if limit.window_ms == 0 { stated_length(limit) } else { Duration::from_millis(limit.window_ms).min(WINDOW_MAX) };
        let reported = Window {
            limit: limit.limit,
            remaining: limit.remaining,
            reported_at: now,
            length,
            resets,
            reporters: BTreeSet::from([node.clone()]),
            alone_for: LONE_REPORT_COUNTS_FOR,
            unsettled: BTreeMap::new(),
        };
        let key = window_key(limit);
        let Some(window) = self.windows.get_mut(&key) else {
            if limit.remaining == 0 && self.distrusted.contains_key(node) {
                return;
            }
            self.make_room(node);
            if self.windows.len() < WINDOWS_MAX {
                self.none_stated = false;
                self.windows.insert(key, reported);
            }
            return;
        };
        if granted.is_some_and(|granted| granted > window.reported_at) && limit.remaining > window.remaining {
            // The registry stated more after it had stated less: the window is new, or one report is a lie.
            let Window { reporters, unsettled, .. } = std::mem::replace(window, reported);
            window.unsettled = unsettled;
            if reporters.len() == 1 && !reporters.contains(node) {
                self.distrust(now, reporters);
            }
        } else if limit.remaining.saturating_add(explained) >= window.remaining {
            if limit.remaining < window.remaining {
                (window.remaining, window.reported_at) = (limit.remaining, now);
            }
            window.reporters.insert(node.clone());
            if window.reporters.len() > 2 {
                window.reporters.pop_last();
            }
            if granted.is_some() && limit.reset_ms.is_some() {
                window.resets = window.resets.max(resets);
            }
        } else if !self.distrusted.contains_key(node) {
            // Less is left than all outstanding permits explain: others share the quota, or the report is a lie.
            let alone_for = if granted.is_none() && !window.reporters.contains(node) {
                LONE_INHERITED_REPORT_COUNTS_FOR
            } else {
                LONE_REPORT_COUNTS_FOR
            };
            let unsettled = std::mem::take(&mut window.unsettled);
            *window = Window { resets: window.resets.min(resets), alone_for, unsettled, ..reported };
        }
    }

    /// Forgets the oldest window that `node` alone reports, if there are too many of these.
    fn make_room(&mut self, node: &NodeName) {
        let is_own = |window: &Window| window.reporters.len() == 1 && window.reporters.contains(node);
        let own = || self.windows.iter().filter(|(_, window)| is_own(window));
        if own().count() >= WINDOWS_OF_ONE_MAX
            && let Some(oldest) = own().min_by_key(|(_, window)| window.reported_at).map(|(key, _)| key.clone())
        {
            self.windows.remove(&oldest);
        }
    }

    /// A pull has shown that the registry states no limits, which alone does not show that a known window is over.
    pub(in crate::core::budget) fn none_stated(&mut self) {
        self.none_stated = self.windows.is_empty();
    }
}

/// How long a limit counts from when it was stated, for a leader and for a node that remembers it for the next leader.
pub(in crate::core::budget) fn stated_length(limit: &RegistryLimit) -> Duration {
    let stated = match (limit.reset_ms, limit.window_ms) {
        (Some(reset_ms), _) => Duration::from_millis(reset_ms),
        (None, 0) => WINDOW_UNSTATED,
        (None, window_ms) => Duration::from_millis(window_ms),
    };
    stated.min(WINDOW_MAX)
}
