//! The settings that a simulated fleet goes by: the real ones.

use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use contract::policy::Caps;
use settings::{ConfigFile, Origin, Settings, SettingsError, Share, Sources};
use throttler::core::budget::{Alone, BudgetPolicy};
use throttler::core::{OnExhausted, ThrottlePolicy};

use crate::kubelet::RUNTIME_TIME_OUT;

/// Of this key only what is set counts, so that both sides wait equally long for a registry that does not answer.
const TIME_OUT: &str = "registry.first_byte_timeout";
/// The keys that make a difference here.
const SIMULATED: [&str; 13] = [
    "fleet.share",
    TIME_OUT,
    "pull.parallel",
    "pull.serial",
    "pull.queue",
    "throttle.qps",
    "throttle.burst",
    "throttle.on_exhausted",
    "backoff.initial",
    "backoff.max",
    "budget.pulls_per_second",
    "budget.pulls_at_once",
    "budget.alone",
];

/// How each node behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Whether nodes learn from each other. `observe` refuses nothing, so here it is as `off`.
    pub shares: bool,
    /// The local rule.
    pub backoff: BackoffPolicy,
    /// The node's own bucket and slots.
    pub throttle: ThrottlePolicy,
    /// The fleet's budget.
    pub budget: BudgetPolicy,
    /// How long a node waits for an answer that does not come: as long as kubelet's side, unless it is set.
    pub answer_time_out: Duration,
}

impl Policy {
    /// The defaults, with these keys set.
    ///
    /// # Errors
    /// Everything that is wrong with them, in the words of the command line.
    pub fn with(set: Vec<(String, String)>) -> Result<Self, SettingsError> {
        let loaded = Settings::load(Sources { file: ConfigFile::None, environment: Vec::new(), flags: set })?;
        let mut policy = Self::of(&loaded.settings);
        if loaded.origins.get(TIME_OUT).is_some_and(|origin| *origin != Origin::Default) {
            policy.answer_time_out = loaded.settings.registry.first_byte_timeout;
        }
        Ok(policy)
    }

    fn of(settings: &Settings) -> Self {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            shares: settings.fleet.share == Share::Enforce,
            backoff: BackoffPolicy { initial: settings.backoff.initial, max: settings.backoff.max },
            throttle: ThrottlePolicy {
                per_second: settings.throttle.qps,
                burst: settings.throttle.burst,
                slots: count(settings.pull.slots()),
                on_exhausted: match settings.throttle.on_exhausted {
                    settings::OnExhausted::Wait => OnExhausted::Wait,
                    settings::OnExhausted::Fail => OnExhausted::Fail,
                },
                queue: count(settings.pull.queue),
            },
            budget: BudgetPolicy {
                per_second: settings.budget.pulls_per_second,
                at_once: count(settings.budget.pulls_at_once),
                alone: match settings.budget.alone {
                    settings::Alone::Open => Alone::Open,
                    settings::Alone::Share => Alone::Share,
                },
                own: Caps::NONE,
            },
            answer_time_out: RUNTIME_TIME_OUT,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::of(&Settings::default())
    }
}

/// Whether a key makes a difference in a simulated storm.
#[must_use]
pub fn is_simulated(key: &str) -> bool {
    SIMULATED.contains(&key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_simulated_are_settings_that_exist() {
        assert!(SIMULATED.iter().all(|simulated| settings::keys().iter().any(|key| key.name == *simulated)));
    }

    #[test]
    fn settings_are_read_and_refused_as_everywhere() {
        let set = |key: &str, value: &str| Policy::with(vec![(key.to_owned(), value.to_owned())]);
        assert!(!set("fleet.share", "off").unwrap().shares && set("fleet.share", "enforce").unwrap().shares);
        assert_eq!(set("backoff.max", "9m").unwrap().answer_time_out, RUNTIME_TIME_OUT);
        assert_eq!(set(TIME_OUT, "10s").unwrap().answer_time_out, Duration::from_secs(10));
        assert_eq!(set("backoff.initial", "3s").unwrap().backoff.initial, Duration::from_secs(3));
        assert_eq!(set("budget.pulls_per_second", "50").unwrap().budget.per_second, 50.0);
        let wrong = set("budget.pulls_per_secnd", "50").unwrap_err().to_string();
        assert!(wrong.contains("is not a known key; did you mean budget.pulls_per_second?"), "{wrong}");
        let wrong = set("fleet.share", "perhaps").unwrap_err().to_string();
        assert!(wrong.contains("fleet.share = \"perhaps\": must be one of enforce, observe, off"), "{wrong}");
    }
}
