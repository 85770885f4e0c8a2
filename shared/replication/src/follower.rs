//! One bucket, as the node sees it that follows it.

use std::time::Duration;

use clock::Random;

use crate::server_time::ServerTime;

/// Snapshots are this far apart at least, whatever arrives.
const READS_APART: Duration = Duration::from_secs(2);
/// Snapshots of all followers are spread so that a server gives 200 a second. What was known serves meanwhile.
const SPREAD_OF_ONE: Duration = Duration::from_millis(5);
/// All followers read when a bus works again to which they have a connection, or if the bucket was made again: over this at most.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);
/// Few miss the same message, and connections that were lost come back one after the other: over this at most.
const LONGEST_SPREAD_OF_FEW: Duration = Duration::from_secs(2);

/// How far a bucket has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// When the bucket was made, as its server says it. Another value is another bucket; empty: not known.
    pub created: String,
    /// The number of its newest change.
    pub sequence: u64,
}

impl Position {
    fn is_of_another(&self, other: &Self) -> bool {
        !self.created.is_empty() && !other.created.is_empty() && self.created != other.created
    }
}

/// A snapshot that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Only what was stored since is needed, if the bucket is still that one.
    pub since: Position,
    /// The newest change that was known of when the reading began.
    known: u64,
    /// When it began.
    began: Duration,
}

/// What has come to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A change of the bucket has arrived.
    Changed {
        /// Its number.
        sequence: u64,
    },
    /// Another node says how far the bucket has come.
    Told {
        /// How far.
        position: Position,
        /// Changes may be on their way for so long.
        within: Duration,
    },
    /// The changes up to this one should have arrived by now. From [`Effect::Later`].
    Due(u64),
    /// How many nodes follow the bucket.
    Followers(u64),
    /// The connection to the bus was lost.
    Disconnected,
    /// The bus can be reached again, or answers again.
    BusBack,
    /// The time to read has come. From [`Effect::Later`].
    ReadNow,
    /// A snapshot was read. Without [`Effect::CaughtUp`] it is to be ignored: a later one was there first.
    Read {
        /// By which effect; the first one by none.
        reading: Reading,
        /// How far the snapshot goes.
        position: Position,
        /// The number of the newest change in it, if there is any.
        newest: Option<u64>,
    },
    /// A snapshot could not be read.
    NotRead,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Give this input after so long.
    Later(Duration, Input),
    /// Read a snapshot; [`Input::Read`] or [`Input::NotRead`] follows.
    Read(Reading),
    /// The bucket is another one than before. It has forgotten what was stored.
    MadeAgain,
    /// The bus may be used: at the start and after a lost connection not before a snapshot was read.
    BusBack,
    /// All that was stored before the snapshot was taken has arrived.
    CaughtUp,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that something was missing.
    pub gaps: u64,
    /// Snapshots that were read.
    pub snapshots: u64,
}

/// The state of a node that follows one bucket. It begins with the first snapshot.
#[derive(Debug)]
pub struct Follower {
    /// The bucket, and its newest change that has arrived or was read.
    followed: Position,
    /// The newest change that is missing: a snapshot has to go as far. 0: none.
    missing: u64,
    /// What was stored up to here needs not be read again.
    read: Position,
    read_at: Option<Duration>,
    /// When the reading began that was answered last.
    read_from: Duration,
    /// The longest spread of the snapshot that is planned or being read; none: there is none.
    reading: Option<Duration>,
    /// Whether the connection was lost since the last snapshot; also before the first one.
    disconnected: bool,
    /// The newest change that another node has told of.
    told: u64,
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
            told: 0,
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
            Input::Told { position, within } => self.told(&position, within, &mut effects),
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

    /// How much later than the fastest a message came that the server stamped so, in nanoseconds of its clock.
    pub fn late(&mut self, now: Duration, stamp: i128) -> Duration {
        self.server_time.late(now, stamp)
    }

    /// As [`ServerTime::ahead`].
    #[must_use]
    pub fn server_ahead(&self) -> Option<i128> {
        self.server_time.ahead()
    }

    /// How many changes another node has told of that have not arrived.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.told.saturating_sub(self.followed.sequence)
    }

    /// Whether the bus must not be used before the snapshot that is planned or being read, because the connection was lost.
    #[must_use]
    pub fn reads_after_loss(&self) -> bool {
        self.disconnected && self.reading.is_some()
    }

    /// Counts since the start.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Twice the same is nothing. An earlier one came late, or the bucket begins anew.
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

    fn told(&mut self, position: &Position, within: Duration, effects: &mut Vec<Effect>) -> Option<Duration> {
        if position.is_of_another(&self.followed) {
            return Some(LONGEST_SPREAD);
        }
        self.told = position.sequence;
        if self.lag() > 0 {
            effects.push(Effect::Later(within, Input::Due(self.told)));
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

    /// A snapshot that was begun before may hang for as long as it may: another is read.
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
            // It may be of the bucket before.
            return None;
        }
        if position.is_of_another(&self.read) && reading.since.created == position.created {
            // What it leaves out was forgotten meanwhile: a snapshot of another bucket was read after it had begun.
            self.reading = None;
            return Some(LONGEST_SPREAD_OF_FEW);
        }
        (self.reading, self.read_at, self.read_from) = (None, Some(now), reading.began);
        self.counts.snapshots += 1;
        let made_again = position.is_of_another(&self.followed);
        if made_again || position.sequence < reading.known {
            // The messages told of more than there is: of another bucket, of a server that the one that was asked lags behind, or forged ones.
            (self.followed.sequence, self.missing) = (position.sequence, 0);
        }
        // Not as far as the snapshot goes: the server that was asked may lag behind, but has all that is older than its newest.
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
        // What was missed while the snapshot was read may not be in it.
        (self.missing > position.sequence).then_some(LONGEST_SPREAD_OF_FEW)
    }

    /// Plans a snapshot within this time, unless one is planned or being read.
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

    fn told(created: &str, sequence: u64) -> Input {
        Input::Told { position: at(created, sequence), within: s(1) }
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

    /// What comes when, in seconds, and what follows. Without any other follower the snapshots are not spread.
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
            // It is planned already.
            (1, changed(9), vec![]),
            (2, Input::ReadNow, vec![Effect::Read(reading(2, at("a", 5), 9))]),
            (3, read(reading(2, at("a", 5), 9), at("a", 9)), vec![Effect::CaughtUp]),
            (9, changed(10), vec![]),
            // One that comes late may be the first of another bucket.
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
            // 8 is lost after the server took the snapshot.
            (10, changed(9), vec![]),
            (10, read(first, at("a", 7)), vec![Effect::CaughtUp, read_in(2)]),
            (12, Input::ReadNow, vec![Effect::Read(reading(12, at("a", 7), 9))]),
            (12, read(reading(12, at("a", 7), 9), at("a", 9)), vec![Effect::CaughtUp]),
            (19, changed(10), vec![]),
        ]);
    }

    #[test]
    fn another_node_tells_of_the_last_change_that_was_lost() {
        let follower = play(vec![
            (9, told("a", 5), vec![]),
            (9, told("a", 6), vec![Effect::Later(s(1), Input::Due(6))]),
            // It was on its way.
            (9, changed(6), vec![]),
            (10, Input::Due(6), vec![]),
            (19, told("a", 8), vec![Effect::Later(s(1), Input::Due(8))]),
            (20, Input::Due(8), vec![read_in(0)]),
        ]);
        assert_eq!((follower.lag(), follower.counts().gaps), (2, 1));
    }

    #[test]
    fn a_bucket_that_was_made_again_is_noticed_and_followed_from_its_beginning() {
        play(vec![
            (9, told("", 5), vec![]),
            (9, told("b", 1), vec![read_in(0)]),
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
            // It hangs, and the connection is lost once more.
            (13, Input::Disconnected, vec![]),
            (14, Input::BusBack, vec![read_in(0)]),
            (14, Input::ReadNow, vec![Effect::Read(of(14))]),
            (15, Input::NotRead, vec![read_in(2)]),
            (17, Input::ReadNow, vec![Effect::Read(of(17))]),
            (17, read(of(17), at("a", 5)), vec![Effect::BusBack, Effect::CaughtUp]),
            // What hung comes after all.
            (18, read(of(12), at("z", 1)), vec![]),
            // Of a bus that did not answer while there was a connection nothing need be missing.
            (29, Input::BusBack, vec![Effect::BusBack, read_in(0)]),
        ]);
        assert!(!follower.reads_after_loss());
    }

    #[test]
    fn nothing_is_read_before_the_first_snapshot() {
        let (mut follower, mut chance) = (Follower::default(), Random::seeded(1));
        for input in [changed(4), told("a", 9), Input::Due(9), Input::BusBack] {
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
