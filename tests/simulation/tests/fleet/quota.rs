//! A registry that allows a number of pulls in a window and reports how many are left, as Docker Hub does.

use std::time::Duration;

use contract::messages::throttler::RegistryLimit;

use crate::registry::Behaviour;

/// The image of that registry; all nodes of some fleets want it.
pub const HUB: &str = "hub.example/library/base:1";
/// The length of a window, which begins with its first pull.
const WINDOW: Duration = Duration::from_secs(60);
/// When the first node wants the image, counted from the beginning of the other registry's outage.
const WANTED_AFTER: Duration = Duration::from_secs(30);
const WANTED_EVERY: Duration = Duration::from_millis(200);

/// When each node of a fleet wants the image.
pub fn wants(fails_at: Duration, nodes: usize) -> impl Iterator<Item = (Duration, usize)> {
    (0..nodes).map(move |node| (fails_at + WANTED_AFTER + WANTED_EVERY * node as u32, node))
}

/// The state of the quota.
#[derive(Debug)]
pub struct Quota {
    limit: u64,
    began: Option<Duration>,
    used: u64,
    /// The number of the present window.
    pub window: u64,
}

impl Quota {
    pub fn new(limit: u64) -> Self {
        Self { limit, began: None, used: 0, window: 0 }
    }

    /// Answers a pull and counts it.
    pub fn ask(&mut self, now: Duration) -> (Behaviour, RegistryLimit) {
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
            return (Behaviour::Limited, RegistryLimit { reset_ms, ..RegistryLimit::default() });
        }
        let (limit, remaining) = (self.limit, self.limit - self.used);
        (Behaviour::Serves, RegistryLimit { limit, remaining, window_ms: WINDOW.as_millis() as u64, ..RegistryLimit::default() })
    }
}
