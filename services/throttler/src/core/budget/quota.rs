//! How many pulls a registry still allows, as far as it has stated. No more are granted than are known to be left.

mod learning;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::NodeName;
use contract::messages::throttler::{KnownLimits, RegistryLimit, all_used_up};

pub(super) use self::learning::stated_length;
use super::planted_bug::PlantedBug;

/// The check waits until another node has been in contact for this long. A leader may have been elected while most nodes were cut off, and
/// a node that comes back with the first of them may know of the quota as well.
const OTHERS_REPORT_WITHIN: Duration = Duration::from_secs(1);
/// For this long, only one pull at a time may ask a registry whose limits are not known. If it has not answered by then, twice as many may
/// ask each further second, because a runtime that never reports limits must not hold up the fleet.
const PROBE_ALONE: Duration = Duration::from_secs(2);
/// This many of the pulls that are left by nodes' reports may be used already: the node of an earlier leader's last grant may be cut off.
const UNREPORTED_PULLS: u64 = 1;
/// After this many pulls without a known answer, a registry counts as one without limits.
const SILENT_PROBES: u32 = 3;
/// The most times in one window at which permits ended without a known answer. What is left bounds these permits, but it may be much.
const UNSETTLED_MAX: usize = 1_000;

/// Which nodes may have one more permit.
#[derive(Debug)]
pub(super) struct Allowance<'a> {
    quota: &'a Quota,
    /// Nodes that alone report that nothing is left. Another node's pull checks it.
    reporters: BTreeSet<&'a NodeName>,
    /// Sources of which nothing is left.
    used_up: BTreeSet<&'a str>,
}

impl Allowance<'_> {
    pub(super) fn is_for(&self, node: &NodeName) -> bool {
        let source = self.quota.sources.get(node);
        !self.reporters.contains(node) && source.is_none_or(|source| !self.used_up.contains(source.as_str()))
    }
}

/// What a window leaves for one more permit.
enum Room {
    Left,
    Nothing,
    /// Nothing by the report of one node alone, which another node's pull may check.
    NothingReported,
}

/// The source that the registry counts as one, if it names one, and the window's length as it states it, in milliseconds.
pub(super) type WindowKey = (Option<String>, u64);

/// The window that a limit is about.
pub(super) fn window_key(limit: &RegistryLimit) -> WindowKey {
    (limit.source.clone(), limit.window_ms)
}

#[derive(Clone, Debug)]
struct Window {
    limit: u64,
    /// The lowest number that was reported.
    remaining: u64,
    reported_at: Duration,
    length: Duration,
    resets: Duration,
    reporters: BTreeSet<NodeName>,
    /// How long the report of one node alone counts.
    alone_for: Duration,
    /// When permits ended without a known answer of the registry, and how many, as far as no later pull has stated this window.
    unsettled: BTreeMap<Duration, u64>,
}

/// Outstanding permits that are not included in what the registry has stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Out {
    /// Permits whose answer is not known yet.
    pub(super) open: u64,
    /// When the first of them was granted.
    pub(super) since: Option<Duration>,
}

/// The quotas of one owner.
#[derive(Debug, Default)]
pub(super) struct Quota {
    windows: BTreeMap<WindowKey, Window>,
    /// The registry states no limits; never true while a window is known. If neither, no answer is known yet.
    none_stated: bool,
    /// The source as which the registry counts each node.
    sources: BTreeMap<NodeName, String>,
    /// Whether a pull of this term has reported limits. Until then, one pull at a time finds out.
    first_hand: bool,
    /// The first two nodes that have called, and when. At least one of them is not the only reporter.
    callers: Vec<(NodeName, Duration)>,
    silent: u32,
    distrusted: BTreeMap<NodeName, Duration>,
    planted_bug: Option<PlantedBug>,
}

impl Quota {
    pub(super) fn new(planted_bug: Option<PlantedBug>) -> Self {
        Self { planted_bug, ..Self::default() }
    }

    /// Forgets windows that are over. The next pull shows the state of the new one.
    pub(super) fn expire(&mut self, now: Duration) {
        let before = self.windows.len();
        self.windows.retain(|_, window| now < window.resets);
        if self.windows.is_empty() && before > 0 {
            self.silent = 0;
        }
        self.distrusted.retain(|_, until| now < *until);
    }

    /// Forgets all windows, as if they were over.
    pub(super) fn forget(&mut self) {
        self.windows.clear();
        self.silent = 0;
    }

    pub(super) fn node_called(&mut self, now: Duration, node: &NodeName) {
        if self.callers.len() < 2 && self.callers.iter().all(|(known, _)| known != node) {
            self.callers.push((node.clone(), now));
        }
    }

    /// Whether a node other than these called long enough ago to have reported what it knows.
    fn others_had_time_to_report(&self, now: Duration, reporters: &BTreeSet<NodeName>) -> bool {
        self.callers.iter().any(|(node, since)| !reporters.contains(node) && now >= *since + OTHERS_REPORT_WITHIN)
    }

    /// Whether the registry has stated that nothing is left of a quota, for all sources that it distinguishes.
    pub(super) fn is_spent(&self) -> bool {
        let spent = |window: &Window| (window.remaining == 0).then_some(window.resets);
        all_used_up(self.windows.iter().map(|((source, _), window)| (source.as_deref(), spent(window)))).is_some()
    }

    /// Whether a quota is known.
    pub(super) fn is_limited(&self) -> bool {
        !self.windows.is_empty()
    }

    /// Which nodes may have one more permit in addition to those that are out; none if no node may.
    ///
    /// Each source has its own windows, and windows without a source apply to all. A node whose source is not known may have a permit while
    /// any source has room.
    pub(super) fn allows(&self, now: Duration, out: Out) -> Option<Allowance<'_>> {
        let mut allowance = Allowance { quota: self, reporters: BTreeSet::new(), used_up: BTreeSet::new() };
        if !self.is_limited() {
            let over = out.since.map_or(Duration::ZERO, |since| now.saturating_sub(since)).saturating_sub(PROBE_ALONE);
            let doublings = over.as_millis().div_ceil(1_000).min(20) as u32;
            return (self.none_stated || out.open < 1 << doublings).then_some(allowance);
        }
        for ((source, _), window) in &self.windows {
            match (self.room_in(now, window, out), source) {
                (Room::Left, _) => {}
                (Room::NothingReported, _) => allowance.reporters.extend(window.reporters.iter()),
                (Room::Nothing, None) => return None,
                (Room::Nothing, Some(source)) => {
                    allowance.used_up.insert(source.as_str());
                }
            }
        }
        let mut sources = self.windows.keys().filter_map(|(source, _)| source.as_deref()).peekable();
        let no_source_has_room = sources.peek().is_some() && sources.all(|source| allowance.used_up.contains(source));
        (!no_source_has_room).then_some(allowance)
    }

    fn room_in(&self, now: Duration, window: &Window, out: Out) -> Room {
        let left = self.left(window, out);
        if self.first_hand || self.planted_bug == Some(PlantedBug::QuotaIsCountedLate) {
            if left > 0 {
                return Room::Left;
            }
        } else if left > UNREPORTED_PULLS {
            return if out.open == 0 { Room::Left } else { Room::Nothing };
        } else if left > 0 {
            return Room::Nothing;
        }
        let alone = window.reporters.len() < 2 && out.open == 0 && now >= window.reported_at + window.alone_for;
        if alone && self.others_had_time_to_report(now, &window.reporters) { Room::NothingReported } else { Room::Nothing }
    }

    fn left(&self, window: &Window, out: Out) -> u64 {
        let counted = if self.planted_bug == Some(PlantedBug::QuotaIsCountedLate) { 0 } else { not_included(window, out) };
        window.remaining.saturating_sub(counted)
    }

    /// How long a node waits with `ahead` requests before it, by the quota's windows: those of its own source, if that is known.
    pub(super) fn wait(&self, now: Duration, out: Out, ahead: u64, node: &NodeName) -> Duration {
        let wait_in = |window: &Window| {
            let left = self.left(window, out);
            if ahead < left {
                return Duration::ZERO;
            }
            let windows = (ahead - left).checked_div(window.limit).unwrap_or(0);
            window.resets.saturating_sub(now).saturating_add(window.length.saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX)))
        };
        let mut waits: BTreeMap<Option<&String>, Duration> = BTreeMap::new();
        for ((source, _), window) in &self.windows {
            let wait = waits.entry(source.as_ref()).or_default();
            *wait = wait_in(window).max(*wait);
        }
        let common = waits.remove(&None);
        let in_source = waits.get(&self.sources.get(node)).copied().or_else(|| waits.into_values().min());
        common.max(in_source).unwrap_or_default()
    }

    /// A permit of `node` ended without a reported answer, and the registry may have counted its pull.
    pub(super) fn ended_unanswered(&mut self, now: Duration, node: &NodeName) {
        self.silent = self.silent.saturating_add(1);
        if self.silent >= SILENT_PROBES {
            self.none_stated();
        }
        let own = self.sources.get(node);
        for (_, window) in self.windows.iter_mut().filter(|((source, _), _)| may_count(source.as_ref(), own)) {
            *window.unsettled.entry(now).or_default() += 1;
            while window.unsettled.len() > UNSETTLED_MAX
                && let Some((_, count)) = window.unsettled.pop_first()
                && let Some(mut next) = window.unsettled.first_entry()
            {
                *next.get_mut() += count;
            }
        }
    }

    /// The part of `known` that concerns a node: the windows of its own source, if that is known.
    pub(super) fn known_to(&self, node: &NodeName, mut known: KnownLimits) -> KnownLimits {
        if let Some(source) = self.sources.get(node) {
            known.limits.retain(|limit| limit.source.as_ref().is_none_or(|of| of == source));
        }
        known
    }

    /// The limits for nodes to remember for the next leader, and for people.
    pub(super) fn known(&self, now: Duration, out: Out) -> KnownLimits {
        let limit = |((source, window_ms), window): (&WindowKey, &Window)| RegistryLimit {
            source: source.clone(),
            limit: window.limit,
            remaining: self.left(window, out),
            window_ms: *window_ms,
            reset_ms: Some(window.resets.saturating_sub(now).as_millis() as u64),
        };
        KnownLimits { none_stated: self.none_stated, limits: self.windows.iter().map(limit).collect() }
    }
}

/// Whether a pull of a node may count in a window of this source; `own`: the node's source, if it is known.
fn may_count(source: Option<&String>, own: Option<&String>) -> bool {
    source.is_none() || own.is_none() || source == own
}

/// The pulls that are not included in what the registry has stated of this window.
fn not_included(window: &Window, out: Out) -> u64 {
    out.open + window.unsettled.values().sum::<u64>()
}

#[cfg(test)]
mod tests;
