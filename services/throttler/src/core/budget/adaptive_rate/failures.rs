//! Which failures count: the share of the last answers that failed, and nodes that fail alone.

use std::collections::BTreeSet;
use std::time::Duration;

use contract::NodeName;

use super::{AdaptiveRate, Failing};

/// How many of the last answers are looked at. At a higher rate it is those of [`RECENT_S`], so that a few chance failures are not many.
pub(super) const RECENT: usize = 10;
const RECENT_S: f64 = 0.25;
/// No answer that is looked at is older than this, or than the time of [`RECENT`] answers at the rate in force if that is longer. A load
/// shows within seconds, and a few probes of a registry that is down do not show one.
const RECENT_FOR: Duration = Duration::from_secs(3);
/// A cut needs this share of the recent answers to have failed.
pub(super) const FAILING_SHARE: f64 = 0.35;
/// A cut needs this many failing nodes, or that all nodes that ask fail.
const FAILING_NODES: usize = 3;
/// If fewer nodes ask, a cut needs at least this many answers.
const RECENT_LEAST: usize = 4;
/// Further failures of a node cause no cut after this many in a row, if others were served meanwhile.
const FAILURES_IN_A_ROW: u32 = 3;
/// The most nodes whose failures in a row are counted: a large fleet. Failures of further nodes always count.
const FAILING_MAX: usize = 10_000;

impl AdaptiveRate {
    /// Counts a failure. Returns whether the node has failed often in a row while others were served.
    pub(super) fn fails_alone(&mut self, now: Duration, node: &NodeName) -> bool {
        if self.failing.len() >= FAILING_MAX && !self.failing.contains_key(node) {
            return false;
        }
        let failing = self.failing.entry(node.clone()).or_insert(Failing { since: now, failures: 0 });
        failing.failures = failing.failures.saturating_add(1);
        failing.failures > FAILURES_IN_A_ROW && self.served_last.is_some_and(|served| served >= failing.since)
    }

    /// The failing share of the last answers, if it is large and several nodes fail, or all that ask.
    pub(super) fn failing_share(&self) -> Option<f64> {
        let nodes = |failed: bool| {
            let of = self.recent.iter().filter(|recent| recent.failed || !failed);
            of.map(|recent| &recent.node).collect::<BTreeSet<_>>().len()
        };
        let (asking, failing) = (nodes(false), nodes(true));
        let all_fail = asking > 1 && failing == asking;
        // A few answers may by chance be those of sick nodes.
        let least = if asking < FAILING_NODES { RECENT_LEAST } else { RECENT };
        let share = self.recent.iter().filter(|recent| recent.failed).count() as f64 / self.recent.len().max(least) as f64;
        (share >= FAILING_SHARE && (failing >= FAILING_NODES || (all_fail && self.recent.len() >= RECENT_LEAST))).then_some(share)
    }

    pub(super) fn forget_old(&mut self, now: Duration) {
        let most = RECENT.max((self.rate * RECENT_S) as usize);
        let oldest = now.saturating_sub(RECENT_FOR.max(Duration::from_secs_f64(RECENT as f64 / self.rate)));
        while self.recent.len() > most || self.recent.front().is_some_and(|recent| recent.at < oldest) {
            self.recent.pop_front();
        }
    }
}
