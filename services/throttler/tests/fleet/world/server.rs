//! The bucket of leases as a server keeps it.

use contract::DEADLINES;
use std::time::Duration;

use throttler::core::budget::Term;

use super::{Letter, World, name};

/// The bucket's revision at first, because many leases were written before.
const OLD_BUCKET: u64 = 1_000;
/// How long the bucket remembers that there was a leader.
const LED_REMEMBERED: Duration = Duration::from_secs(600);

/// The lease of the one budget.
#[derive(Default)]
pub(super) struct Lease {
    /// The node, its epoch, and until when the lease lasts.
    pub(super) holder: Option<(usize, u64, Duration)>,
    revision: u64,
    past_until: Duration,
    /// When the earlier bucket was lost.
    lost: Option<Duration>,
}

impl Lease {
    /// A lease in a bucket that has existed for long.
    pub(super) fn of_old() -> Self {
        Self { revision: OLD_BUCKET, ..Self::default() }
    }

    /// A lease in a bucket that was just lost and recreated. Its revisions start over, and so do its epochs, as if its server gave no time.
    pub(super) fn lost(now: Duration) -> Self {
        Self { lost: Some(now), ..Self::default() }
    }

    /// Releases the lease in good order.
    pub(super) fn drop_of(&mut self, node: usize, epoch: u64) {
        if self.holder.is_some_and(|(holder, of, _)| holder == node && of == epoch) {
            (self.holder, self.revision, self.past_until) = (None, self.revision + 1, Duration::ZERO);
        }
    }

    fn lost_within(&self, now: Duration, time: Duration) -> bool {
        self.lost.is_some_and(|lost| now < lost + time)
    }

    /// Takes the lease for a node, if it is free. Returns the epoch, and whether there is nothing to learn.
    fn take(&mut self, now: Duration, node: usize) -> Option<(u64, bool)> {
        if self.lost_within(now, DEADLINES.leader_lease) {
            return None;
        }
        let first = self.past_until <= now && !self.lost_within(now, DEADLINES.leader_lease + DEADLINES.budget_permit_lease);
        self.revision += 1;
        self.holder = Some((node, self.revision, now + DEADLINES.leader_lease));
        self.past_until = now + LED_REMEMBERED;
        Some((self.revision, first))
    }
}

impl World {
    pub(super) fn campaign(&mut self, at: usize) {
        if self.nodes[at].cut {
            return;
        }
        let (now, ahead) = (self.now, self.nodes[at].ahead);
        let letter = match self.lease.holder.filter(|(_, _, until)| now < *until) {
            // A node's own lease names no other node to ask.
            Some((holder, epoch, _)) => Letter::Lead((holder != at).then(|| (name(holder), epoch))),
            None => {
                let Some((epoch, first)) = self.lease.take(now, at) else { return };
                self.seen.leaders += 1;
                for other in (0..self.nodes.len()).filter(|other| *other != at) {
                    self.send(usize::MAX, other, Letter::Lead(Some((name(at), epoch))));
                }
                Letter::Elected(Term { epoch, first, until: now + ahead + DEADLINES.leader_lease })
            }
        };
        self.send(usize::MAX, at, letter);
    }

    pub(super) fn keep(&mut self, at: usize, epoch: u64) {
        if self.nodes[at].cut {
            return;
        }
        let (now, ahead) = (self.now, self.nodes[at].ahead);
        let letter = match &mut self.lease.holder {
            Some((holder, of, until)) if *holder == at && *of == epoch && now < *until => {
                *until = now + DEADLINES.leader_lease;
                Letter::Kept(epoch, *until + ahead)
            }
            _ => Letter::Lost(epoch),
        };
        self.send(usize::MAX, at, letter);
    }
}
