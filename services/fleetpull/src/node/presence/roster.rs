//! Who is there, as the registrar knows it.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;
use contract::messages::registrar::{ALIVE_EVERY_MS, ALIVE_FOR_MS, FleetDigest, KNOWN_FOR_MS, NodeList, Place, ReportAlive};
use contract::version::{self, Readers};

/// The most nodes that are known: twice the largest fleet that is planned for, a few MiB. A further one is answered, but has no place.
const NODES_MAX: usize = 20_000;
/// The most zones in a digest: far more than any fleet has, and a digest stays under 100 KiB. Nodes of further zones count as alive all the same.
const ZONES_MAX: usize = 1_000;
/// What is kept of a zone's name, as long as the setting may be.
const ZONE_MAX_CHARS: usize = 63;
/// What is kept of an instance; an agent's own has half of it.
const INSTANCE_MAX_CHARS: usize = 64;
/// A new registrar does not know all before every agent had its turn, the slowest with its jitter.
const LEARNS_FOR: Duration = Duration::from_millis(ALIVE_EVERY_MS + ALIVE_EVERY_MS / 5);

const ALIVE_FOR: Duration = Duration::from_millis(ALIVE_FOR_MS);
const KNOWN_FOR: Duration = Duration::from_millis(KNOWN_FOR_MS);

/// The nodes that a registrar has heard.
#[derive(Debug)]
pub(super) struct Roster {
    /// Until when not every node may have been heard.
    learns_until: Duration,
    /// Nodes alive by zone as the registrar before said: good until this one knows.
    inherited: BTreeMap<String, u64>,
    nodes: BTreeMap<NodeName, Seen>,
    /// Who is alive, by name: the place in it is the rank.
    order: Vec<NodeName>,
    zones: BTreeMap<String, u64>,
    /// What those read that are known and have not left.
    readers: Readers,
    /// Before this time nobody can have fallen silent for too long.
    next_scan: Duration,
    refused_total: u64,
}

#[derive(Debug)]
struct Seen {
    instance: String,
    zone: String,
    reads: Vec<u32>,
    heard: Duration,
    is_alive: bool,
    /// It went in good order: a late message of the same start does not bring it back.
    has_left: bool,
}

impl Roster {
    /// Knows nobody yet. `inherited`: nodes alive by zone as was last said by whoever was registrar before.
    pub(super) fn new(now: Duration, inherited: BTreeMap<String, u64>) -> Self {
        Self {
            learns_until: now + LEARNS_FOR,
            inherited,
            nodes: BTreeMap::new(),
            order: Vec::new(),
            zones: BTreeMap::new(),
            readers: Readers::default(),
            next_scan: now + ALIVE_FOR,
            refused_total: 0,
        }
    }

    /// A node says that it is alive, or that it leaves. Hearing the same twice, or late, changes nothing.
    pub(super) fn hear(&mut self, now: Duration, report: &ReportAlive) -> Place {
        self.scan(now);
        let zone = zone_of(&report.zone);
        let gone = self.nodes.get(&report.node).is_some_and(|seen| seen.has_left && seen.instance == instance_of(report));
        if report.leaves {
            self.see_leaving(now, report, zone.clone());
        } else if !gone {
            self.see_alive(now, report, zone.clone());
        }
        self.place(now, &report.node, &zone)
    }

    /// How long ago each was heard that is known and has not left.
    pub(super) fn list(&mut self, now: Duration) -> NodeList {
        self.scan(now);
        let there = self.nodes.iter().filter(|(_, seen)| !seen.has_left);
        let ago = |seen: &Seen| u64::try_from(now.saturating_sub(seen.heard).as_millis()).unwrap_or(u64::MAX);
        NodeList { heard_ms_ago: there.map(|(name, seen)| (name.clone(), ago(seen))).collect() }
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

    /// The newest version that all known nodes read, and how many do not read it; none while not every node may have been heard.
    pub(super) fn version(&mut self, now: Duration) -> Option<(u32, u64)> {
        self.scan(now);
        if now < self.learns_until { None } else { self.readers.in_common() }
    }

    /// How many are known, and how many more there would be were there room.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.nodes.len() as u64, self.refused_total)
    }

    fn place(&self, now: Duration, node: &NodeName, zone: &str) -> Place {
        let learns = now < self.learns_until;
        let inherited = |count: u64| if learns { count } else { 0 };
        let alive = (self.order.len() as u64).max(inherited(self.inherited.values().sum()));
        let in_zone = self.zones.get(zone).copied().unwrap_or_default();
        let alive_in_zone = in_zone.max(inherited(self.inherited.get(zone).copied().unwrap_or_default()));
        let rank = self.order.binary_search(node).ok().filter(|_| !learns);
        Place { alive, alive_in_zone, rank: rank.map(|rank| rank as u64) }
    }

    fn see_alive(&mut self, now: Duration, report: &ReportAlive, zone: String) {
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
        let reads = version::heard(&report.reads_versions);
        let seen = Seen { instance: instance_of(report), zone, reads, heard: now, is_alive: true, has_left: false };
        self.keep(report.node.clone(), seen);
        self.next_scan = self.next_scan.min(now + ALIVE_FOR);
    }

    /// Kept as gone for as long as a late message may come; who was never heard needs no memory.
    fn see_leaving(&mut self, now: Duration, report: &ReportAlive, zone: String) {
        let Some(seen) = self.nodes.get(&report.node) else { return };
        // An agent that was started anew under the name is not sent away by the end of the one before.
        if seen.instance != instance_of(report) {
            return;
        }
        if seen.is_alive {
            let old = seen.zone.clone();
            self.strike_out(&report.node, &old);
        }
        let gone = Seen { instance: instance_of(report), zone, reads: Vec::new(), heard: now, is_alive: false, has_left: true };
        self.keep(report.node.clone(), gone);
        self.next_scan = self.next_scan.min(now + ALIVE_FOR);
    }

    /// Forgets whoever has left or was silent the longest; false if all are alive.
    fn make_room(&mut self) -> bool {
        let silent = self.nodes.iter().filter(|(_, seen)| !seen.is_alive);
        let first = silent.min_by_key(|(_, seen)| (!seen.has_left, seen.heard)).map(|(name, _)| name.clone());
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

    /// Lets time do its work: who was not heard for too long is not alive, and later not known any more.
    fn scan(&mut self, now: Duration) {
        if now < self.next_scan {
            return;
        }
        let age = |seen: &Seen| now.saturating_sub(seen.heard);
        let silent = self.nodes.iter().filter(|(_, seen)| seen.is_alive && age(seen) >= ALIVE_FOR);
        let silent: Vec<(NodeName, String)> = silent.map(|(name, seen)| (name.clone(), seen.zone.clone())).collect();
        for (name, zone) in silent {
            self.strike_out(&name, &zone);
        }
        let over = self.nodes.iter().filter(|(_, seen)| age(seen) >= if seen.has_left { ALIVE_FOR } else { KNOWN_FOR });
        let over: Vec<NodeName> = over.map(|(name, _)| name.clone()).collect();
        for name in over {
            self.forget(&name);
        }
        let ends = |seen: &Seen| seen.heard + if seen.is_alive || seen.has_left { ALIVE_FOR } else { KNOWN_FOR };
        self.next_scan = self.nodes.values().map(ends).min().unwrap_or(now + ALIVE_FOR);
    }

    fn enter(&mut self, name: &NodeName) {
        if let Err(place) = self.order.binary_search(name) {
            self.order.insert(place, name.clone());
        }
    }

    fn strike_out(&mut self, name: &NodeName, zone: &str) {
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

/// How many nodes are alive, and how many of them in a zone; none where a digest does not tell all.
pub(super) fn alive_as_said(digest: &FleetDigest, zone: &str) -> Option<(u64, u64)> {
    let in_zone = digest.alive.get(&zone_of(zone)).copied()?;
    (digest.alive.len() < ZONES_MAX).then(|| (digest.alive.values().sum(), in_zone))
}

/// What a zone is called, as much of its name as is kept.
fn zone_of(zone: &str) -> String {
    zone.chars().take(ZONE_MAX_CHARS).collect()
}

/// Which start of an agent reports, as much of it as is kept.
fn instance_of(report: &ReportAlive) -> String {
    report.instance.chars().take(INSTANCE_MAX_CHARS).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn report(node: &str, instance: &str, zone: &str) -> ReportAlive {
        let (instance, zone) = (instance.to_owned(), zone.to_owned());
        ReportAlive { node: node.parse().unwrap(), instance, zone, reads_versions: vec![1], leaves: false }
    }

    fn leaving(node: &str, instance: &str) -> ReportAlive {
        ReportAlive { leaves: true, ..report(node, instance, "a") }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn names(roster: &mut Roster, now: Duration) -> Vec<String> {
        roster.list(now).heard_ms_ago.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn of_an_endless_instance_no_more_is_kept_than_tells_starts_apart() {
        let mut roster = Roster::new(at(0), BTreeMap::new());
        let endless = "i".repeat(1_000_000);
        roster.hear(at(0), &report("n1", &endless, "a"));
        assert_eq!(roster.nodes.values().map(|seen| seen.instance.len()).collect::<Vec<_>>(), [INSTANCE_MAX_CHARS]);
        roster.hear(at(1), &leaving("n1", &endless));
        assert!(names(&mut roster, at(1)).is_empty(), "it is known again when it leaves");
    }

    #[test]
    fn ranks_follow_names_once_a_round_is_over() {
        let mut roster = Roster::new(at(0), BTreeMap::new());
        for (name, zone) in [("n3", "a"), ("n1", "a"), ("n2", "b")] {
            assert_eq!(roster.hear(at(1), &report(name, "i", zone)).rank, None, "a new registrar tells no ranks");
        }
        assert_eq!(roster.hear(at(11), &report("n1", "i", "a")).rank, None);
        for (name, zone, rank, in_zone) in [("n3", "a", 2, 2), ("n1", "a", 0, 2), ("n2", "b", 1, 1)] {
            let place = roster.hear(at(12), &report(name, "i", zone));
            assert_eq!(place, Place { alive: 3, alive_in_zone: in_zone, rank: Some(rank) });
        }
        assert_eq!(roster.alive(at(12)), BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]));
    }

    #[test]
    fn who_is_silent_is_not_alive_and_later_not_known() {
        let mut roster = Roster::new(at(0), BTreeMap::new());
        roster.hear(at(0), &report("n1", "i", "a"));
        roster.hear(at(0), &report("n2", "i", "a"));
        assert_eq!(roster.hear(at(31), &report("n2", "i", "a")).alive, 2);
        assert_eq!(roster.hear(at(32), &report("n2", "i", "a")), Place { alive: 1, alive_in_zone: 1, rank: Some(0) });
        assert_eq!(names(&mut roster, at(599)), ["n1", "n2"]);
        assert_eq!(names(&mut roster, at(600)), ["n2"]);
        assert_eq!(roster.alive(at(600)), BTreeMap::new());
        assert_eq!(roster.hear(at(601), &report("n1", "j", "a")).alive, 1);
    }

    #[test]
    fn who_leaves_is_gone_whatever_comes_late_and_comes_back_when_started_anew() {
        let mut roster = Roster::new(at(0), BTreeMap::new());
        roster.hear(at(1), &report("n1", "first", "a"));
        roster.hear(at(2), &leaving("n1", "first"));
        roster.hear(at(2), &leaving("n1", "first"));
        assert_eq!(roster.hear(at(3), &report("n1", "first", "a")).alive, 0, "a late message brings nobody back");
        assert_eq!(names(&mut roster, at(3)), Vec::<String>::new());
        assert_eq!(roster.hear(at(4), &report("n1", "second", "b")).alive, 1);
        roster.hear(at(5), &leaving("n1", "first"));
        assert_eq!(names(&mut roster, at(5)), ["n1"], "the end of the one before does not send the new one away");
        assert_eq!(roster.alive(at(5)), BTreeMap::from([("b".to_owned(), 1)]));
    }

    #[test]
    fn a_node_that_moves_is_counted_in_its_new_zone_alone() {
        let mut roster = Roster::new(at(0), BTreeMap::new());
        roster.hear(at(1), &report("n1", "i", "a"));
        roster.hear(at(2), &report("n1", "j", "b"));
        assert_eq!(roster.alive(at(2)), BTreeMap::from([("b".to_owned(), 1)]));
    }

    #[test]
    fn what_the_registrar_before_said_is_good_until_this_one_knows() {
        let mut roster = Roster::new(at(0), BTreeMap::from([("a".to_owned(), 7), ("b".to_owned(), 2)]));
        assert_eq!(roster.hear(at(1), &report("n1", "i", "a")), Place { alive: 9, alive_in_zone: 7, rank: None });
        assert_eq!(roster.alive(at(1))["b"], 2);
        assert_eq!(roster.hear(at(12), &report("n1", "i", "a")), Place { alive: 1, alive_in_zone: 1, rank: Some(0) });
        assert_eq!(roster.alive(at(12)), BTreeMap::from([("a".to_owned(), 1)]));
    }

    #[test]
    fn the_version_in_common_is_that_of_all_who_are_known_and_have_not_left() {
        let mut roster = Roster::new(at(0), BTreeMap::new());
        let reading = |name: &str, reads: &[u32]| ReportAlive { reads_versions: reads.to_vec(), ..report(name, "i", "a") };
        roster.hear(at(1), &reading("old", &[1]));
        assert_eq!(roster.version(at(11)), None, "not all have been heard");
        for _ in 0..2 {
            roster.hear(at(12), &reading("new", &[1, 2]));
            roster.hear(at(12), &reading("newer", &[1, 2, 3]));
        }
        assert_eq!(roster.version(at(12)), Some((1, 0)));
        // Brought to the new version: the same name, started anew.
        roster.hear(at(13), &ReportAlive { instance: "j".to_owned(), ..reading("old", &[1, 2]) });
        assert_eq!(roster.version(at(13)), Some((2, 0)));
        roster.hear(at(14), &leaving("new", "i"));
        roster.hear(at(15), &reading("stranger", &[7]));
        assert_eq!(roster.version(at(15)), Some((2, 1)), "one alone does not part the others");
        roster.hear(at(614), &report("late", "i", "a"));
        assert_eq!(roster.version(at(706)), Some((1, 0)), "who was not heard for long does not count");
    }

    #[test]
    fn more_nodes_than_there_is_room_for_take_the_place_of_the_silent_alone() {
        let mut roster = Roster::new(at(0), BTreeMap::new());
        for number in 0..NODES_MAX {
            let now = if number == 7 { at(0) } else { at(10) };
            roster.hear(now, &report(&format!("n{number:05}"), "i", "a"));
        }
        let late = roster.hear(at(11), &report("z", "i", "a"));
        assert_eq!(late, Place { alive: NODES_MAX as u64, alive_in_zone: NODES_MAX as u64, rank: None });
        assert_eq!(roster.counts(), (NODES_MAX as u64, 1));
        // n00007 falls silent.
        assert!(roster.hear(at(33), &report("z", "i", "a")).rank.is_some());
        assert_eq!(roster.counts(), (NODES_MAX as u64, 1));
        assert!(!names(&mut roster, at(33)).contains(&"n00007".to_owned()));
    }

    #[test]
    fn names_of_zones_and_their_number_are_bounded() {
        let mut roster = Roster::new(at(0), BTreeMap::new());
        for number in 0..ZONES_MAX + 5 {
            roster.hear(at(1), &report(&format!("n{number}"), "i", &format!("{number}-{}", "z".repeat(10_000))));
        }
        let alive = roster.alive(at(1));
        assert_eq!(alive.len(), ZONES_MAX);
        assert!(alive.keys().all(|zone| zone.chars().count() == ZONE_MAX_CHARS));
    }

    proptest! {
        /// Against a plain recount of what was heard.
        #[test]
        fn counts_and_ranks_are_those_of_a_recount(steps in prop::collection::vec((0_u8..6, 0_u8..2, 0_u8..3, 0_u64..20, any::<bool>()), 0..60)) {
            let mut roster = Roster::new(at(0), BTreeMap::new());
            let mut now = at(20);
            let mut heard: BTreeMap<String, (String, String, Duration, bool)> = BTreeMap::new();
            for (node, instance, zone, pause, leaves) in steps {
                now += at(pause);
                let (name, instance, zone) = (format!("n{node}"), format!("i{instance}"), format!("z{zone}"));
                let told = ReportAlive { leaves, ..report(&name, &instance, &zone) };
                let before = heard.get(&name).filter(|(_, _, at, left)| now - *at < if *left { ALIVE_FOR } else { KNOWN_FOR }).cloned();
                match before {
                    Some((of, _, _, _)) if leaves && of == instance => { heard.insert(name.clone(), (instance, zone.clone(), now, true)); }
                    _ if leaves => {}
                    Some((of, _, _, true)) if of == instance => {}
                    _ => { heard.insert(name.clone(), (instance, zone.clone(), now, false)); }
                }
                let alive: Vec<(&String, &String)> = heard.iter().filter(|(_, (_, _, at, left))| !left && now - *at < ALIVE_FOR).map(|(name, (_, zone, _, _))| (name, zone)).collect();
                let expected = Place {
                    alive: alive.len() as u64,
                    alive_in_zone: alive.iter().filter(|(_, of)| **of == zone).count() as u64,
                    rank: alive.iter().position(|(of, _)| **of == name).map(|rank| rank as u64),
                };
                prop_assert_eq!(roster.hear(now, &told), expected);
            }
        }
    }
}
