//! The result of a run, which the checks read.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::messages::backoff_tracker::BackoffEntry;
use throttler::core::budget::BudgetPolicy;

use crate::leases::Leases;
use crate::plan::Plan;
use crate::refusals::Refusal;
use crate::registry::{Behaviour, PullRecord};
use crate::republished::PublishedReport;

/// The result of a run.
#[derive(Debug)]
pub struct Story {
    pub plan: Plan,
    pub budget: BudgetPolicy,
    /// The pulls in a window that the registry with a quota allows; some fleets have it.
    pub quota: Option<u64>,
    pub asked: Vec<PullRecord>,
    pub present_since: BTreeMap<(usize, String), Duration>,
    pub wanted: BTreeMap<(usize, &'static str), Duration>,
    /// The restarted nodes, and when.
    pub restarts: Vec<(usize, Duration)>,
    pub leases: Leases,
    /// The refusals, in order of time.
    pub refusals: Vec<Refusal>,
    /// The times and nodes of lost and late messages, in order of time.
    pub disturbed: Vec<(Duration, usize)>,
    /// All reports, in the order in which the server stored them.
    pub reports: Vec<PublishedReport>,
    /// The back-off entries of each node when they were recorded, indexed by node.
    pub listed: Vec<Vec<BackoffEntry>>,
    /// How often each kind of fault occurred.
    pub counts: BTreeMap<&'static str, u64>,
    /// A hash of all of these, in order.
    pub hash: u64,
}

impl Story {
    pub fn longest_pull(&self) -> Duration {
        self.asked.iter().filter_map(|one| Some(one.over?.saturating_sub(one.at))).max().unwrap_or_default()
    }

    /// When the last node began the attempt that delivered the last of these images to it; none if a node lacks one of them.
    pub fn all_served_at(&self, images: &[&str]) -> Option<Duration> {
        let nodes = 0..self.plan.nodes;
        let mut served = nodes.flat_map(|node| images.iter().map(move |image| self.served_at(node, image)));
        served.try_fold(Duration::ZERO, |last, at| Some(last.max(at?)))
    }

    /// When a node began the attempt that delivered an image; the time of the layers, which depends on the registry, does not count.
    pub fn served_at(&self, node: usize, image: &str) -> Option<Duration> {
        self.present_since.get(&(node, image.to_owned()))?;
        let served = |one: &&PullRecord| one.node == node && one.image == image && one.got == Behaviour::Serves;
        self.asked.iter().rev().find(served).map(|one| one.at)
    }
}

/// FNV-1a.
pub struct Hash(pub u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    pub fn add(&mut self, text: &str) {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
