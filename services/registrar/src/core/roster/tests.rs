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
