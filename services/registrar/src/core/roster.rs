//! The registrar's list of nodes: which are alive, their zones and ranks.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::messages::registrar::{FleetDigest, NodeList, Place, ReportAlive};
use contract::version::{self, Readers};
use contract::{DEADLINES, NodeName};

/// The most nodes in the roster: twice the largest planned fleet, a few MiB. A further node is answered without a rank.
const NODES_MAX: usize = 20_000;
/// The most zones in a digest, which then stays under 100 KiB. Nodes of further zones still count as alive.
const ZONES_MAX: usize = 1_000;
/// How much of a zone's name is kept: the longest value of the setting.
const ZONE_MAX_CHARS: usize = 63;
/// How much of an instance is kept: twice the length of an agent's own.
const INSTANCE_MAX_CHARS: usize = 64;
/// With more nodes than this the assertions do not recount them, because that would make each step slow.
const CHECKED_UP_TO: usize = 64;
/// How long a new registrar may not know all nodes: a round of reports with jitter.
const LEARNS_FOR: Duration = Duration::from_millis(DEADLINES.alive_every.as_millis() as u64 * 6 / 5);

/// The nodes that have reported to a registrar.
#[derive(Debug)]
pub(super) struct Roster {
    /// Until then, not every node may have reported.
    learns_until: Duration,
    /// Nodes alive by zone in the previous registrar's last digest; used until `learns_until`.
    inherited: BTreeMap<String, u64>,
    nodes: BTreeMap<NodeName, Seen>,
    /// The nodes alive, by name; the index is the rank.
    order: Vec<NodeName>,
    zones: BTreeMap<String, u64>,
    /// The versions that known nodes read, without those that left.
    readers: Readers,
    /// No node becomes silent or is forgotten before this time.
    next_scan: Duration,
    refused_total: u64,
}

#[derive(Debug)]
struct Seen {
    instance: String,
    zone: String,
    reads: Vec<u32>,
    reported_at: Duration,
    is_alive: bool,
    /// The node has left; a late report of the same instance does not bring it back.
    has_left: bool,
}

impl Roster {
    /// An empty roster. `inherited`: nodes alive by zone in the previous registrar's last digest.
    pub(super) fn new(now: Duration, inherited: BTreeMap<String, u64>) -> Self {
        Self {
            learns_until: now + LEARNS_FOR,
            inherited,
            nodes: BTreeMap::new(),
            order: Vec::new(),
            zones: BTreeMap::new(),
            readers: Readers::default(),
            next_scan: now + DEADLINES.alive_for,
            refused_total: 0,
        }
    }

    /// Takes a report that a node is alive or leaves. Repeated and late reports change nothing.
    pub(super) fn record(&mut self, now: Duration, report: &ReportAlive) -> Place {
        self.scan(now);
        let zone = zone_of(&report.zone);
        let has_left = self.nodes.get(&report.node).is_some_and(|seen| seen.has_left && seen.instance == instance_of(report));
        if report.leaves {
            self.record_leaving(now, report, zone.clone());
        } else if !has_left {
            self.record_alive(now, report, zone.clone());
        }
        self.place(now, &report.node, &zone)
    }

    /// The known nodes that have not left, with the age of their last report.
    pub(super) fn list(&mut self, now: Duration) -> NodeList {
        self.scan(now);
        let there = self.nodes.iter().filter(|(_, seen)| !seen.has_left);
        let ago = |seen: &Seen| u64::try_from(now.saturating_sub(seen.reported_at).as_millis()).unwrap_or(u64::MAX);
        NodeList { last_seen_ms_ago: there.map(|(name, seen)| (name.clone(), ago(seen))).collect() }
    }

    /// Nodes alive by zone.
    pub(super) fn alive(&mut self, now: Duration) -> BTreeMap<String, u64> {
        self.scan(now);
        let mut alive: BTreeMap<String, u64> = self.zones.iter().take(ZONES_MAX).map(|(zone, count)| (zone.clone(), *count)).collect();
        if now < self.learns_until {
            for (zone, count) in &self.inherited {
                let known = alive.entry(zone.clone()).or_default();
                *known = (*known).max(*count);
            }
        }
        alive
    }

    /// The newest version that the known nodes have in common, and how many do not read it; none before `learns_until`.
    pub(super) fn version(&mut self, now: Duration) -> Option<(u32, u64)> {
        self.scan(now);
        if now < self.learns_until { None } else { self.readers.in_common() }
    }

    /// How many nodes are known, and how many reports had no room.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.nodes.len() as u64, self.refused_total)
    }

    /// Asserts that the roster is consistent; with many nodes, only its bounds.
    pub(super) fn assert_invariants(&self) {
        debug_assert!(self.nodes.len() <= NODES_MAX, "nodes known are bounded");
        debug_assert!(self.order.len() <= self.nodes.len(), "nodes alive are known");
        if self.nodes.len() > CHECKED_UP_TO {
            return;
        }
        let alive: Vec<&NodeName> = self.nodes.iter().filter(|(_, seen)| seen.is_alive).map(|(name, _)| name).collect();
        debug_assert_eq!(self.order.iter().collect::<Vec<_>>(), alive, "ranks are those of the nodes alive");
        debug_assert_eq!(self.zones.values().sum::<u64>(), alive.len() as u64, "each node alive is in one zone");
        debug_assert!(self.nodes.values().all(|seen| !(seen.is_alive && seen.has_left)), "a node that has left is not alive");
    }

    fn place(&self, now: Duration, node: &NodeName, zone: &str) -> Place {
        let learns = now < self.learns_until;
        let inherited = |count: u64| if learns { count } else { 0 };
        let alive = (self.order.len() as u64).max(inherited(total(&self.inherited)));
        let in_zone = self.zones.get(zone).copied().unwrap_or_default();
        let alive_in_zone = in_zone.max(inherited(self.inherited.get(zone).copied().unwrap_or_default()));
        let rank = self.order.binary_search(node).ok().filter(|_| !learns);
        Place { alive, alive_in_zone, rank: rank.map(|rank| rank as u64) }
    }

    fn record_alive(&mut self, now: Duration, report: &ReportAlive, zone: String) {
        if !self.nodes.contains_key(&report.node) && self.nodes.len() >= NODES_MAX && !self.make_room() {
            self.refused_total += 1;
            return;
        }
        let was_in = self.nodes.get(&report.node).filter(|seen| seen.is_alive).map(|seen| seen.zone.clone());
        if was_in.as_deref() != Some(zone.as_str()) {
            match was_in {
                Some(old) => self.uncount(&old),
                None => self.enter(&report.node),
            }
            *self.zones.entry(zone.clone()).or_default() += 1;
        }
        let reads = version::normalised(&report.reads_versions);
        let seen = Seen { instance: instance_of(report), zone, reads, reported_at: now, is_alive: true, has_left: false };
        self.keep(report.node.clone(), seen);
        self.next_scan = self.next_scan.min(now + DEADLINES.alive_for);
    }

    /// Marks a known node as left, for as long as a late report may come.
    fn record_leaving(&mut self, now: Duration, report: &ReportAlive, zone: String) {
        let Some(seen) = self.nodes.get(&report.node) else { return };
        // A late farewell of the node's previous instance does not concern the new one.
        if seen.instance != instance_of(report) {
            return;
        }
        if seen.is_alive {
            let old = seen.zone.clone();
            self.mark_silent(&report.node, &old);
        }
        let departed = Seen { instance: instance_of(report), zone, reads: Vec::new(), reported_at: now, is_alive: false, has_left: true };
        self.keep(report.node.clone(), departed);
        self.next_scan = self.next_scan.min(now + DEADLINES.alive_for);
    }

    /// Forgets a node that has left, or else the node that has been silent the longest; false if all are alive.
    fn make_room(&mut self) -> bool {
        let silent = self.nodes.iter().filter(|(_, seen)| !seen.is_alive);
        let first = silent.min_by_key(|(_, seen)| (!seen.has_left, seen.reported_at)).map(|(name, _)| name.clone());
        first.is_some_and(|name| self.forget(&name))
    }

    fn keep(&mut self, name: NodeName, seen: Seen) {
        if !seen.has_left {
            self.readers.add(&seen.reads);
        }
        if let Some(before) = self.nodes.insert(name, seen).filter(|before| !before.has_left) {
            self.readers.remove(&before.reads);
        }
    }

    fn forget(&mut self, name: &NodeName) -> bool {
        let Some(seen) = self.nodes.remove(name) else { return false };
        if !seen.has_left {
            self.readers.remove(&seen.reads);
        }
        true
    }

    /// Marks nodes as silent after `DEADLINES.alive_for`, and forgets them after `DEADLINES.known_for`.
    fn scan(&mut self, now: Duration) {
        if now < self.next_scan {
            return;
        }
        let age = |seen: &Seen| now.saturating_sub(seen.reported_at);
        let silent = self.nodes.iter().filter(|(_, seen)| seen.is_alive && age(seen) >= DEADLINES.alive_for);
        let silent: Vec<(NodeName, String)> = silent.map(|(name, seen)| (name.clone(), seen.zone.clone())).collect();
        for (name, zone) in silent {
            self.mark_silent(&name, &zone);
        }
        let over = self.nodes.iter().filter(|(_, seen)| age(seen) >= if seen.has_left { DEADLINES.alive_for } else { DEADLINES.known_for });
        let over: Vec<NodeName> = over.map(|(name, _)| name.clone()).collect();
        for name in over {
            self.forget(&name);
        }
        let ends = |seen: &Seen| seen.reported_at + if seen.is_alive || seen.has_left { DEADLINES.alive_for } else { DEADLINES.known_for };
        self.next_scan = self.nodes.values().map(ends).min().unwrap_or(now + DEADLINES.alive_for);
    }

    fn enter(&mut self, name: &NodeName) {
        if let Err(place) = self.order.binary_search(name) {
            self.order.insert(place, name.clone());
        }
    }

    fn mark_silent(&mut self, name: &NodeName, zone: &str) {
        if let Ok(place) = self.order.binary_search(name) {
            self.order.remove(place);
        }
        self.uncount(zone);
        if let Some(seen) = self.nodes.get_mut(name) {
            seen.is_alive = false;
        }
    }

    fn uncount(&mut self, zone: &str) {
        if let Some(count) = self.zones.get_mut(zone) {
            *count -= 1;
            if *count == 0 {
                self.zones.remove(zone);
            }
        }
    }
}

/// How many nodes are alive, and how many in a zone; none if the digest lacks the zone or may lack others.
pub(super) fn alive_in_digest(digest: &FleetDigest, zone: &str) -> Option<(u64, u64)> {
    let in_zone = digest.alive.get(&zone_of(zone)).copied()?;
    (digest.alive.len() < ZONES_MAX).then(|| (total(&digest.alive), in_zone))
}

/// The nodes of all zones. The counts are another node's, and could overflow.
fn total(by_zone: &BTreeMap<String, u64>) -> u64 {
    by_zone.values().fold(0, |sum, count| sum.saturating_add(*count))
}

/// A zone's name, shortened to its bound.
fn zone_of(zone: &str) -> String {
    zone.chars().take(ZONE_MAX_CHARS).collect()
}

/// The report's instance, shortened to its bound.
fn instance_of(report: &ReportAlive) -> String {
    report.instance.chars().take(INSTANCE_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests;
