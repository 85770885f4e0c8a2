//! Stories of one follower: changes, losses and snapshots, and what it does about them.

use super::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(created: &str, sequence: u64) -> Position {
    Position { created: created.to_owned(), sequence }
}

fn changed(sequence: u64) -> Input {
    Input::Changed { sequence }
}

fn announced(created: &str, sequence: u64) -> Input {
    Input::Announced { position: at(created, sequence), within: s(1) }
}

fn reading(began: u64, since: Position, known: u64) -> Reading {
    Reading { since, known, began: s(began) }
}

fn read(reading: Reading, position: Position) -> Input {
    Input::Read { reading, newest: Some(position.sequence), position }
}

fn read_in(seconds: u64) -> Effect {
    Effect::Later(s(seconds), Input::ReadNow)
}

/// A sequence of inputs with times in seconds, and their effects. Without other followers the snapshots are not spread.
fn play(story: Vec<(u64, Input, Vec<Effect>)>) -> Follower {
    let (mut follower, mut chance) = (Follower { followers: 0, ..Follower::default() }, Random::seeded(1));
    let began = follower.step(s(0), &mut chance, read(Reading::default(), at("a", 5)));
    assert_eq!(began, [Effect::BusBack, Effect::CaughtUp]);
    for (now, input, effects) in story {
        let shown = format!("{input:?} at {now} s");
        assert_eq!(follower.step(s(now), &mut chance, input), effects, "{shown}");
    }
    follower
}

#[test]
fn changes_in_order_and_repeated_ones_need_no_snapshot() {
    let follower = play([6, 7, 7, 8].map(|sequence| (1, changed(sequence), vec![])).to_vec());
    assert_eq!(follower.counts(), Counts { gaps: 0, snapshots: 1 });
    assert_eq!(follower.lag(), 0);
}

#[test]
fn a_missing_change_is_read_once_what_follows_shows_it() {
    let follower = play(vec![
        (1, changed(7), vec![read_in(1)]),
        // A snapshot is planned already.
        (1, changed(9), vec![]),
        (2, Input::ReadNow, vec![Effect::Read(reading(2, at("a", 5), 9))]),
        (3, read(reading(2, at("a", 5), 9), at("a", 9)), vec![Effect::CaughtUp]),
        (9, changed(10), vec![]),
        // A late one may be the first of another bucket.
        (9, changed(3), vec![read_in(0)]),
    ]);
    assert_eq!(follower.counts(), Counts { gaps: 3, snapshots: 2 });
}

#[test]
fn change_missed_during_a_snapshot_causes_another() {
    let first = reading(9, at("a", 5), 7);
    play(vec![
        (9, changed(7), vec![read_in(0)]),
        (9, Input::ReadNow, vec![Effect::Read(first.clone())]),
        // Change 8 is lost after the server took the snapshot.
        (10, changed(9), vec![]),
        (10, read(first, at("a", 7)), vec![Effect::CaughtUp, read_in(2)]),
        (12, Input::ReadNow, vec![Effect::Read(reading(12, at("a", 7), 9))]),
        (12, read(reading(12, at("a", 7), 9), at("a", 9)), vec![Effect::CaughtUp]),
        (19, changed(10), vec![]),
    ]);
}

#[test]
fn lost_last_change_is_read_after_another_node_announces_it() {
    let follower = play(vec![
        (9, announced("a", 5), vec![]),
        (9, announced("a", 6), vec![Effect::Later(s(1), Input::Due(6))]),
        // It was in transit.
        (9, changed(6), vec![]),
        (10, Input::Due(6), vec![]),
        (19, announced("a", 8), vec![Effect::Later(s(1), Input::Due(8))]),
        (20, Input::Due(8), vec![read_in(0)]),
    ]);
    assert_eq!((follower.lag(), follower.counts().gaps), (2, 1));
}

#[test]
fn later_gap_does_not_hide_a_newer_change_that_was_announced() {
    let first = reading(9, at("a", 5), 7);
    play(vec![
        (9, changed(7), vec![read_in(0)]),
        (9, Input::ReadNow, vec![Effect::Read(first.clone())]),
        (9, announced("a", 100), vec![Effect::Later(s(1), Input::Due(100))]),
        (10, Input::Due(100), vec![]),
        // Of the changes up to 100 only this one is not lost.
        (10, changed(50), vec![]),
        (10, read(first, at("a", 60)), vec![Effect::CaughtUp, read_in(2)]),
        (12, Input::ReadNow, vec![Effect::Read(reading(12, at("a", 60), 100))]),
    ]);
}

#[test]
fn a_bucket_that_was_made_again_is_noticed_and_followed_from_its_beginning() {
    play(vec![
        (9, announced("", 5), vec![]),
        (9, announced("b", 1), vec![read_in(0)]),
        (9, Input::ReadNow, vec![Effect::Read(reading(9, at("a", 5), 5))]),
        (9, read(reading(9, at("a", 5), 5), at("b", 1)), vec![Effect::MadeAgain, Effect::CaughtUp]),
        (19, changed(2), vec![]),
        (19, changed(4), vec![read_in(0)]),
        (19, Input::ReadNow, vec![Effect::Read(reading(19, at("b", 1), 4))]),
    ]);
}

#[test]
fn nothing_of_a_lost_bucket_counts_as_missing_in_the_next_one() {
    let follower = play(vec![
        (9, announced("a", 1_000), vec![Effect::Later(s(1), Input::Due(1_000))]),
        (9, announced("b", 1), vec![read_in(0)]),
        (9, Input::ReadNow, vec![Effect::Read(reading(9, at("a", 5), 5))]),
        (9, read(reading(9, at("a", 5), 5), at("b", 1)), vec![Effect::MadeAgain, Effect::CaughtUp]),
    ]);
    assert_eq!(follower.lag(), 0);
}

#[test]
fn a_change_that_no_snapshot_has_was_forged_or_comes_again() {
    let far = u64::MAX;
    play(vec![
        (9, changed(far), vec![read_in(0)]),
        (9, changed(6), vec![]),
        (9, Input::ReadNow, vec![Effect::Read(reading(9, at("a", 5), far))]),
        (9, read(reading(9, at("a", 5), far), at("a", 6)), vec![Effect::CaughtUp]),
        (19, changed(7), vec![]),
        (19, changed(9), vec![read_in(0)]),
    ]);
}

#[test]
fn after_a_lost_connection_a_snapshot_comes_before_the_bus_is_used() {
    let of = |began| reading(began, at("a", 5), 5);
    let follower = play(vec![
        (9, Input::Disconnected, vec![]),
        (12, Input::BusBack, vec![read_in(0)]),
        (12, Input::ReadNow, vec![Effect::Read(of(12))]),
        // The reading hangs, and the connection is lost again.
        (13, Input::Disconnected, vec![]),
        (14, Input::BusBack, vec![read_in(0)]),
        (14, Input::ReadNow, vec![Effect::Read(of(14))]),
        (15, Input::NotRead, vec![read_in(2)]),
        (17, Input::ReadNow, vec![Effect::Read(of(17))]),
        (17, read(of(17), at("a", 5)), vec![Effect::BusBack, Effect::CaughtUp]),
        // The hanging reading is answered after all.
        (18, read(of(12), at("z", 1)), vec![]),
        // If the bus did not answer while there was a connection, nothing need be missing.
        (29, Input::BusBack, vec![Effect::BusBack, read_in(0)]),
    ]);
    assert!(!follower.reads_after_loss());
}

#[test]
fn nothing_is_read_before_the_first_snapshot() {
    let (mut follower, mut chance) = (Follower::default(), Random::seeded(1));
    for input in [changed(4), announced("a", 9), Input::Due(9), Input::BusBack] {
        let effects = follower.step(s(1), &mut chance, input);
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Later(_, Input::ReadNow))), "{effects:?}");
    }
}

#[test]
fn snapshots_of_many_followers_are_spread_by_their_number_within_bounds() {
    for (followers, few, all) in [(1, 5, 5), (100, 500, 500), (10_000, 2_000, 30_000), (u64::MAX, 2_000, 30_000)] {
        for (input, most) in [(changed(9), few), (Input::BusBack, all)] {
            let within = |seed| {
                let mut chance = Random::seeded(seed);
                let mut follower = Follower { followers, disconnected: false, read_at: Some(s(0)), ..Follower::default() };
                let effects = follower.step(s(9), &mut chance, input.clone());
                let later = |effect| if let Effect::Later(after, Input::ReadNow) = effect { Some(after) } else { None };
                effects.into_iter().find_map(later).expect("a snapshot is planned")
            };
            let latest = (0..100).map(within).max().expect("one hundred");
            let most = Duration::from_millis(most);
            assert!(latest <= most && latest > most.mul_f64(0.9), "{followers} followers, {input:?}: {latest:?}");
        }
    }
}
