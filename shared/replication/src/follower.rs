//! The state of a node that follows one bucket.

use std::time::Duration;

use clock::Random;

use crate::server_time::ServerTime;

/// The least time between two snapshots.
const READS_APART: Duration = Duration::from_secs(2);
/// The spread of snapshots for each follower: a server then gives 200 a second. The replica is used meanwhile.
const SPREAD_OF_ONE: Duration = Duration::from_millis(5);
/// The longest spread if all followers read: when a bus answers again without a lost connection, or when the bucket was made again.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);
/// The longest spread if few followers read: few miss the same message, and lost connections come back one after the other.
const LONGEST_SPREAD_OF_FEW: Duration = Duration::from_secs(2);

/// How far a bucket has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// When the bucket was made, by its server's clock. A different value means a different bucket; empty: unknown.
    pub created: String,
    /// The sequence of its newest change.
    pub sequence: u64,
}

impl Position {
    fn is_of_another(&self, other: &Self) -> bool {
        !self.created.is_empty() && !other.created.is_empty() && self.created != other.created
    }
}

/// A snapshot that is being read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Only what was stored after this is needed, if the bucket is still the same.
    pub since: Position,
    /// The newest known change when the reading began.
    known: u64,
    /// When it began.
    began: Duration,
}

/// An input of the follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A change of the bucket has been received.
    Changed {
        /// Its sequence.
        sequence: u64,
    },
    /// Another node has published how far the bucket has come.
    Announced {
        /// How far.
        position: Position,
        /// How long changes may still be in transit.
        within: Duration,
    },
    /// The changes up to this one should have been received by now. From [`Effect::Later`].
    Due(u64),
    /// How many nodes follow the bucket.
    Followers(u64),
    /// The connection to the bus was lost.
    Disconnected,
    /// The bus is reached again, or answers again.
    BusBack,
    /// The time to read has come. From [`Effect::Later`].
    ReadNow,
    /// A snapshot was read. If [`Effect::CaughtUp`] does not follow, ignore the snapshot: a later one was read first.
    Read {
        /// The reading of the effect; the default for the first snapshot.
        reading: Reading,
        /// How far the snapshot goes.
        position: Position,
        /// The sequence of the newest change in it, if there is any.
        newest: Option<u64>,
    },
    /// A snapshot could not be read.
    NotRead,
}

/// An action for the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give this input after this time.
    Later(Duration, Input),
    /// Read a snapshot; [`Input::Read`] or [`Input::NotRead`] follows.
    Read(Reading),
    /// The bucket is a different one than before, without the earlier contents.
    MadeAgain,
    /// The bus may be used. At the start and after a lost connection a snapshot is read first.
    BusBack,
    /// Everything that was stored before the snapshot has been received.
    CaughtUp,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often something was missing.
    pub gaps: u64,
    /// Snapshots that were read.
    pub snapshots: u64,
}

/// The state of a node that follows one bucket. It begins with the first snapshot.
#[derive(Debug)]
pub struct Follower {
    /// The bucket, and its newest change that was received or read.
    followed: Position,
    /// The newest missing change, which a snapshot must include; 0: none.
    missing: u64,
    /// What was stored up to here need not be read again.
    read: Position,
    read_at: Option<Duration>,
    /// When the last answered reading began.
    read_from: Duration,
    /// The longest spread of the planned or running snapshot; none: there is none.
    reading: Option<Duration>,
    /// Whether the connection was lost since the last snapshot; true before the first one.
    disconnected: bool,
    /// The newest change that another node has published.
    announced: u64,
    followers: u64,
    server_time: ServerTime,
    counts: Counts,
}

impl Default for Follower {
    fn default() -> Self {
        Self {
            followed: Position::default(),
            missing: 0,
            read: Position::default(),
            read_at: None,
            read_from: Duration::ZERO,
            reading: None,
            disconnected: true,
            announced: 0,
            followers: 1,
            server_time: ServerTime::default(),
            counts: Counts::default(),
        }
    }
}

impl Follower {
    /// Takes one input and returns its effects. `chance` spreads the snapshots of all followers.
    pub fn step(&mut self, now: Duration, chance: &mut Random, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        let read_within = match input {
            Input::Changed { sequence } => self.changed(sequence),
            Input::Announced { position, within } => self.announced(&position, within, &mut effects),
            Input::Due(sequence) => self.due(sequence),
            Input::Followers(followers) => {
                self.followers = followers;
                None
            }
            Input::Disconnected => {
                self.disconnected = true;
                None
            }
            Input::BusBack => Some(self.bus_is_back(&mut effects)),
            Input::ReadNow => {
                let known = self.followed.sequence.max(self.missing);
                effects.push(Effect::Read(Reading { since: self.read.clone(), known, began: now }));
                None
            }
            Input::Read { reading, position, newest } => self.read(now, &reading, position, newest, &mut effects),
            Input::NotRead => {
                self.read_at = Some(now);
                self.reading.take()
            }
        };
        if let Some(longest) = read_within {
            self.read_soon(now, chance, longest, &mut effects);
        }
        effects
    }

    /// How much later than the fastest message this one came, by the server's stamp in nanoseconds.
    pub fn late(&mut self, now: Duration, stamp: i128) -> Duration {
        self.server_time.late(now, stamp)
    }

    /// As [`ServerTime::ahead`].
    #[must_use]
    pub fn server_ahead(&self) -> Option<i128> {
        self.server_time.ahead()
    }

    /// How many changes that another node has published were not received.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.announced.saturating_sub(self.followed.sequence)
    }

    /// Whether the bus must not be used before the planned or running snapshot, because the connection was lost.
    #[must_use]
    pub fn reads_after_loss(&self) -> bool {
        self.disconnected && self.reading.is_some()
    }

    /// Counts since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Handles a received change. A repeat has no effect. An earlier one came late, or is of a bucket that was made again.
    fn changed(&mut self, sequence: u64) -> Option<Duration> {
        let followed = self.followed.sequence;
        self.followed.sequence = followed.max(sequence);
        if sequence == followed || sequence.checked_sub(1) == Some(followed) {
            return None;
        }
        self.counts.gaps += 1;
        if sequence > followed {
            self.missing = sequence - 1;
        }
        Some(LONGEST_SPREAD_OF_FEW)
    }

    fn announced(&mut self, position: &Position, within: Duration, effects: &mut Vec<Effect>) -> Option<Duration> {
        if position.is_of_another(&self.followed) {
            return Some(LONGEST_SPREAD);
        }
        self.announced = position.sequence;
        if self.lag() > 0 {
            effects.push(Effect::Later(within, Input::Due(self.announced)));
        }
        None
    }

    fn due(&mut self, sequence: u64) -> Option<Duration> {
        if self.read_at.is_none() || sequence <= self.followed.sequence {
            return None;
        }
        self.counts.gaps += 1;
        self.missing = self.missing.max(sequence);
        Some(LONGEST_SPREAD_OF_FEW)
    }

    /// A snapshot that was begun before may hang, so another one is read.
    fn bus_is_back(&mut self, effects: &mut Vec<Effect>) -> Duration {
        self.reading = None;
        if self.disconnected {
            return LONGEST_SPREAD_OF_FEW;
        }
        effects.push(Effect::BusBack);
        LONGEST_SPREAD
    }

    fn read(
        &mut self,
        now: Duration,
        reading: &Reading,
        position: Position,
        newest: Option<u64>,
        effects: &mut Vec<Effect>,
    ) -> Option<Duration> {
        if reading.began < self.read_from {
            // It may be of the earlier bucket.
            return None;
        }
        if position.is_of_another(&self.read) && reading.since.created == position.created {
            // Changes that it leaves out are no longer in the replica: after its beginning, a snapshot of another bucket was read.
            self.reading = None;
            return Some(LONGEST_SPREAD_OF_FEW);
        }
        (self.reading, self.read_at, self.read_from) = (None, Some(now), reading.began);
        self.counts.snapshots += 1;
        let made_again = position.is_of_another(&self.followed);
        if made_again || position.sequence < reading.known {
            // The messages reported more than there is: they were of another bucket or forged, or the asked server lags behind.
            (self.followed.sequence, self.missing) = (position.sequence, 0);
        }
        // Not the snapshot's position, because the asked server may lag behind; it has everything older than its newest change.
        let before = if position.is_of_another(&self.read) { 0 } else { self.read.sequence };
        self.read = Position { created: position.created.clone(), sequence: newest.unwrap_or_default().max(before) };
        self.followed = Position { sequence: self.followed.sequence.max(position.sequence), created: position.created };
        if made_again {
            effects.push(Effect::MadeAgain);
        }
        if std::mem::take(&mut self.disconnected) {
            effects.push(Effect::BusBack);
        }
        effects.push(Effect::CaughtUp);
        // What was missed during the reading may not be in the snapshot.
        (self.missing > position.sequence).then_some(LONGEST_SPREAD_OF_FEW)
    }

    /// Plans a snapshot within this spread, unless one is planned or running.
    fn read_soon(&mut self, now: Duration, chance: &mut Random, longest: Duration, effects: &mut Vec<Effect>) {
        let Some(read_at) = self.read_at.filter(|_| self.reading.is_none()) else { return };
        self.reading = Some(longest);
        let all = SPREAD_OF_ONE.saturating_mul(u32::try_from(self.followers).unwrap_or(u32::MAX)).min(longest);
        let apart = (read_at + READS_APART).saturating_sub(now);
        effects.push(Effect::Later(all.mul_f64(chance.fraction()).max(apart), Input::ReadNow));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
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
    fn what_is_missed_while_a_snapshot_is_read_is_read_again() {
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
}
