//! A registry that lets so many pulls go in a window and tells how many are left, as Docker Hub does.

use std::time::Duration;

use contract::messages::throttler::RegistryLimit;

use crate::registry::Mood;

/// The image that all nodes of some fleets want of it.
pub const HUB: &str = "hub.example/library/base:1";
/// How long a window lasts; it begins with its first pull.
const WINDOW: Duration = Duration::from_secs(60);
/// Nodes want it one after the other, from so long after the outage of the other registry began.
const WANTED_AFTER: Duration = Duration::from_secs(30);
const WANTED_EVERY: Duration = Duration::from_millis(200);

/// When all nodes of a fleet want it.
pub fn wants(fails_at: Duration, nodes: usize) -> impl Iterator<Item = (Duration, usize)> {
    (0..nodes).map(move |node| (fails_at + WANTED_AFTER + WANTED_EVERY * node as u32, node))
}

/// How it stands.
#[derive(Debug)]
pub struct Quota {
    limit: u64,
    began: Option<Duration>,
    used: u64,
    /// Which window it is.
    pub window: u64,
}

impl Quota {
    pub fn new(limit: u64) -> Self {
        Self { limit, began: None, used: 0, window: 0 }
    }

    /// One asks.
    pub fn ask(&mut self, now: Duration) -> (Mood, RegistryLimit) {
        let began = match self.began.filter(|began| now < *began + WINDOW) {
            Some(began) => began,
            None => {
                (self.used, self.window) = (0, self.window + 1);
                *self.began.insert(now)
            }
        };
        self.used += 1;
        if self.used > self.limit {
            let reset_ms = Some((began + WINDOW - now).as_millis() as u64);
            return (Mood::Limited, RegistryLimit { reset_ms, ..RegistryLimit::default() });
        }
        let (limit, remaining) = (self.limit, self.limit - self.used);
        (Mood::Well, RegistryLimit { limit, remaining, window_ms: WINDOW.as_millis() as u64, ..RegistryLimit::default() })
    }
}
