//! `pull.*`, `throttle.*`, `budget.*` and `backoff.*`: how many pulls run, how often they start, how long a failed image waits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::text::{bytes, duration, zero_as_none};

/// `pull.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pull {
    /// The most connections of one pull, which is the most layers it downloads at a time.
    pub connections: u32,
    /// The most pulls of the node at a time. [`Pull::slots`] takes `serial` into account.
    pub parallel: u32,
    /// Whether pulls run one after the other.
    pub serial: bool,
    /// The longest one attempt may take. None: no limit while it makes progress.
    #[serde(with = "zero_as_none")]
    pub timeout: Option<Duration>,
    /// The most pulls that wait for a slot.
    pub queue: u32,
    /// The bytes of disk space that a pull must leave free when no pod requested it.
    #[serde(with = "bytes")]
    pub keep_free: u64,
}

impl Pull {
    /// How many pulls may run at a time: 1 when serial.
    #[must_use]
    pub fn slots(&self) -> u32 {
        if self.serial { 1 } else { self.parallel }
    }
}

impl Default for Pull {
    fn default() -> Self {
        Self { connections: 4, parallel: 3, serial: false, timeout: None, queue: 1000, keep_free: 2 << 30 }
    }
}

/// `throttle.*`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// Starts of pulls per second; 0: no limit.
    pub qps: f64,
    /// The most starts at once after a time without pulls.
    pub burst: u32,
    /// What happens to a pull that finds the token bucket empty.
    pub on_exhausted: OnExhausted,
    /// The longest that a pull without a standing pull waits for the fleet.
    #[serde(with = "duration")]
    pub max_wait: Duration,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { qps: 5.0, burst: 10, on_exhausted: OnExhausted::Wait, max_wait: Duration::from_secs(10) }
    }
}

/// What happens to a pull that finds the token bucket empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExhausted {
    /// It waits for the next token.
    #[default]
    Wait,
    /// It fails with `pull QPS exceeded`, as in kubelet.
    Fail,
}

/// `budget.*`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The most pulls per second that the whole fleet starts at one registry; 0: no limit.
    pub pulls_per_second: f64,
    /// The most pulls of the whole fleet that run at one registry at a time; 0: no limit.
    pub pulls_at_once: u32,
    /// What a node does when it does not reach the budget's leader.
    pub alone: Alone,
}

impl Default for Budget {
    fn default() -> Self {
        Self { pulls_per_second: 200.0, pulls_at_once: 0, alone: Alone::Open }
    }
}

/// What a node does when it does not reach the budget's leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alone {
    /// It takes its share of the budget, but never less than one pull at a time, and ignores quotas.
    #[default]
    Open,
    /// It takes no more than its share of the budget.
    Share,
}

/// `backoff.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// The back-off after the first failure; it doubles with each further failure.
    #[serde(with = "duration")]
    pub initial: Duration,
    /// The longest back-off.
    #[serde(with = "duration")]
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(10), max: Duration::from_secs(300) }
    }
}
