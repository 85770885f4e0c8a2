#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

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
    roster.list(now).last_seen_ms_ago.keys().map(ToString::to_string).collect()
}

#[test]
fn long_instance_is_shortened_and_still_recognised() {
    let mut roster = Roster::new(at(0), BTreeMap::new());
    let endless = "i".repeat(1_000_000);
    roster.record(at(0), &report("n1", &endless, "a"));
    assert_eq!(roster.nodes.values().map(|seen| seen.instance.len()).collect::<Vec<_>>(), [INSTANCE_MAX_CHARS]);
    roster.record(at(1), &leaving("n1", &endless));
    assert!(names(&mut roster, at(1)).is_empty(), "it is recognised when it leaves");
}

#[test]
fn ranks_follow_names_after_one_round_of_reports() {
    let mut roster = Roster::new(at(0), BTreeMap::new());
    for (name, zone) in [("n3", "a"), ("n1", "a"), ("n2", "b")] {
        assert_eq!(roster.record(at(1), &report(name, "i", zone)).rank, None, "a new registrar gives no ranks");
    }
    assert_eq!(roster.record(at(11), &report("n1", "i", "a")).rank, None);
    for (name, zone, rank, in_zone) in [("n3", "a", 2, 2), ("n1", "a", 0, 2), ("n2", "b", 1, 1)] {
        let place = roster.record(at(12), &report(name, "i", zone));
        assert_eq!(place, Place { alive: 3, alive_in_zone: in_zone, rank: Some(rank) });
    }
    assert_eq!(roster.alive(at(12)), BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)]));
}

#[test]
fn impossible_counts_in_a_digest_do_not_overflow() {
    let alive: BTreeMap<String, u64> = ["a", "b"].map(|zone| (zone.to_owned(), u64::MAX)).into();
    let digest = FleetDigest { alive: alive.clone(), ..FleetDigest::default() };
    assert_eq!(alive_in_digest(&digest, "a"), Some((u64::MAX, u64::MAX)));
    let mut roster = Roster::new(at(0), alive);
    assert_eq!(roster.record(at(1), &report("n1", "i", "a")), Place { alive: u64::MAX, alive_in_zone: u64::MAX, rank: None });
}

#[test]
fn silent_node_is_not_alive_and_later_forgotten() {
    let mut roster = Roster::new(at(0), BTreeMap::new());
    roster.record(at(0), &report("n1", "i", "a"));
    roster.record(at(0), &report("n2", "i", "a"));
    assert_eq!(roster.record(at(31), &report("n2", "i", "a")).alive, 2);
    assert_eq!(roster.record(at(32), &report("n2", "i", "a")), Place { alive: 1, alive_in_zone: 1, rank: Some(0) });
    assert_eq!(names(&mut roster, at(599)), ["n1", "n2"]);
    assert_eq!(names(&mut roster, at(600)), ["n2"]);
    assert_eq!(roster.alive(at(600)), BTreeMap::new());
    assert_eq!(roster.record(at(601), &report("n1", "j", "a")).alive, 1);
}

#[test]
fn node_that_left_returns_only_with_a_new_instance() {
    let mut roster = Roster::new(at(0), BTreeMap::new());
    roster.record(at(1), &report("n1", "first", "a"));
    roster.record(at(2), &leaving("n1", "first"));
    roster.record(at(2), &leaving("n1", "first"));
    assert_eq!(roster.record(at(3), &report("n1", "first", "a")).alive, 0, "a late report does not bring it back");
    assert_eq!(names(&mut roster, at(3)), Vec::<String>::new());
    assert_eq!(roster.record(at(4), &report("n1", "second", "b")).alive, 1);
    roster.record(at(5), &leaving("n1", "first"));
    assert_eq!(names(&mut roster, at(5)), ["n1"], "a late farewell of the earlier instance does not remove the new one");
    assert_eq!(roster.alive(at(5)), BTreeMap::from([("b".to_owned(), 1)]));
}

#[test]
fn node_that_moves_counts_in_its_new_zone_alone() {
    let mut roster = Roster::new(at(0), BTreeMap::new());
    roster.record(at(1), &report("n1", "i", "a"));
    roster.record(at(2), &report("n1", "j", "b"));
    assert_eq!(roster.alive(at(2)), BTreeMap::from([("b".to_owned(), 1)]));
}

#[test]
fn counts_of_the_previous_registrar_hold_for_one_round() {
    let mut roster = Roster::new(at(0), BTreeMap::from([("a".to_owned(), 7), ("b".to_owned(), 2)]));
    assert_eq!(roster.record(at(1), &report("n1", "i", "a")), Place { alive: 9, alive_in_zone: 7, rank: None });
    assert_eq!(roster.alive(at(1))["b"], 2);
    assert_eq!(roster.record(at(12), &report("n1", "i", "a")), Place { alive: 1, alive_in_zone: 1, rank: Some(0) });
    assert_eq!(roster.alive(at(12)), BTreeMap::from([("a".to_owned(), 1)]));
}

#[test]
fn common_version_is_that_of_all_known_nodes_that_have_not_left() {
    let mut roster = Roster::new(at(0), BTreeMap::new());
    let reading = |name: &str, reads: &[u32]| ReportAlive { reads_versions: reads.to_vec(), ..report(name, "i", "a") };
    roster.record(at(1), &reading("old", &[1]));
    assert_eq!(roster.version(at(11)), None, "not all nodes have reported");
    for _ in 0..2 {
        roster.record(at(12), &reading("new", &[1, 2]));
        roster.record(at(12), &reading("newer", &[1, 2, 3]));
    }
    assert_eq!(roster.version(at(12)), Some((1, 0)));
    // The old node is upgraded: same name, new instance.
    roster.record(at(13), &ReportAlive { instance: "j".to_owned(), ..reading("old", &[1, 2]) });
    assert_eq!(roster.version(at(13)), Some((2, 0)));
    roster.record(at(14), &leaving("new", "i"));
    roster.record(at(15), &reading("stranger", &[7]));
    assert_eq!(roster.version(at(15)), Some((2, 1)), "a node without a common version does not affect the others");
    roster.record(at(614), &report("late", "i", "a"));
    assert_eq!(roster.version(at(706)), Some((1, 0)), "a node without reports for long does not count");
}

#[test]
fn nodes_beyond_the_bound_replace_silent_nodes_alone() {
    let mut roster = Roster::new(at(0), BTreeMap::new());
    for number in 0..NODES_MAX {
        let now = if number == 7 { at(0) } else { at(10) };
        roster.record(now, &report(&format!("n{number:05}"), "i", "a"));
    }
    let late = roster.record(at(11), &report("z", "i", "a"));
    assert_eq!(late, Place { alive: NODES_MAX as u64, alive_in_zone: NODES_MAX as u64, rank: None });
    assert_eq!(roster.counts(), (NODES_MAX as u64, 1));
    // n00007 falls silent.
    assert!(roster.record(at(33), &report("z", "i", "a")).rank.is_some());
    assert_eq!(roster.counts(), (NODES_MAX as u64, 1));
    assert!(!names(&mut roster, at(33)).contains(&"n00007".to_owned()));
}

#[test]
fn zones_and_their_names_are_bounded() {
    let mut roster = Roster::new(at(0), BTreeMap::new());
    for number in 0..ZONES_MAX + 5 {
        roster.record(at(1), &report(&format!("n{number}"), "i", &format!("{number}-{}", "z".repeat(10_000))));
    }
    let alive = roster.alive(at(1));
    assert_eq!(alive.len(), ZONES_MAX);
    assert!(alive.keys().all(|zone| zone.chars().count() == ZONE_MAX_CHARS));
}

proptest! {
    /// Compares the roster with a plain recount of all reports.
    #[test]
    fn counts_and_ranks_are_those_of_a_recount(steps in prop::collection::vec((0_u8..6, 0_u8..2, 0_u8..3, 0_u64..20, any::<bool>()), 0..60)) {
        let mut roster = Roster::new(at(0), BTreeMap::new());
        let mut now = at(20);
        let mut last_reports: BTreeMap<String, (String, String, Duration, bool)> = BTreeMap::new();
        for (node, instance, zone, pause, leaves) in steps {
            now += at(pause);
            let (name, instance, zone) = (format!("n{node}"), format!("i{instance}"), format!("z{zone}"));
            let report = ReportAlive { leaves, ..report(&name, &instance, &zone) };
            let before = last_reports.get(&name).filter(|(_, _, at, left)| now - *at < if *left { DEADLINES.alive_for } else { DEADLINES.known_for }).cloned();
            match before {
                Some((of, _, _, _)) if leaves && of == instance => { last_reports.insert(name.clone(), (instance, zone.clone(), now, true)); }
                _ if leaves => {}
                Some((of, _, _, true)) if of == instance => {}
                _ => { last_reports.insert(name.clone(), (instance, zone.clone(), now, false)); }
            }
            let alive: Vec<(&String, &String)> = last_reports.iter().filter(|(_, (_, _, at, left))| !left && now - *at < DEADLINES.alive_for).map(|(name, (_, zone, _, _))| (name, zone)).collect();
            let expected = Place {
                alive: alive.len() as u64,
                alive_in_zone: alive.iter().filter(|(_, of)| **of == zone).count() as u64,
                rank: alive.iter().position(|(of, _)| **of == name).map(|rank| rank as u64),
            };
            prop_assert_eq!(roster.record(now, &report), expected);
        }
    }
}
