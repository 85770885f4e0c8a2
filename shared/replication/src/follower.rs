//! The state of a node that follows one bucket.

use std::time::Duration;

use clock::Random;

use crate::server_time::ServerTime;
use crate::step::{Effect, Input, Position, Reading};

/// The least time between two snapshots.
const READS_APART: Duration = Duration::from_secs(2);
/// The spread of snapshots for each follower: a server then gives 200 a second. The replica is used meanwhile.
const SPREAD_OF_ONE: Duration = Duration::from_millis(5);
/// The longest spread if all followers read: when a bus answers again without a lost connection, or when the bucket was made again.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);
/// The longest spread if few followers read: few miss the same message, and lost connections come back one after the other.
const LONGEST_SPREAD_OF_FEW: Duration = Duration::from_secs(2);

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

    /// How far the server's clock is ahead of this node's, less the least transit time of a message, in nanoseconds; none: no message was
    /// received yet.
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
            // An announced change that is newer is still missing.
            self.missing = self.missing.max(sequence - 1);
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
            self.announced = 0;
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
mod tests;
