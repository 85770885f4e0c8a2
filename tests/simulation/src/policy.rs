//! The policies of a simulated fleet, from the real settings.

use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use contract::policy::Caps;
use settings::{ConfigFile, Origin, Settings, SettingsError, Share, Sources};
use throttler::core::budget::{Alone, BudgetPolicy};
use throttler::core::{OnExhausted, ThrottlePolicy};

use crate::kubelet::RUNTIME_TIME_OUT;

/// The default of this key is not used, so that both sides wait equally long for a registry that does not answer.
const TIME_OUT: &str = "registry.first_byte_timeout";
/// The keys that have an effect in the simulation.
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

/// The policies of every node.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Whether nodes use the findings of others. `observe` refuses nothing, so in the simulation it equals `off`.
    pub shares: bool,
    /// The back-off of a single node.
    pub backoff: BackoffPolicy,
    /// The token bucket and slots of the node.
    pub throttle: ThrottlePolicy,
    /// The budget of the fleet.
    pub budget: BudgetPolicy,
    /// How long a node waits for an answer of the registry: as long as kubelet's side, unless set.
    pub answer_time_out: Duration,
}

impl Policy {
    /// The policies of the default settings with `set` applied.
    ///
    /// # Errors
    /// All problems of the settings, as on the command line.
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

/// Whether a key has an effect in a simulated storm.
#[must_use]
pub fn is_simulated(key: &str) -> bool {
    SIMULATED.contains(&key)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn simulated_keys_exist_as_settings() {
        assert!(SIMULATED.iter().all(|simulated| settings::keys().iter().any(|key| key.name == *simulated)));
    }

    #[test]
    fn settings_are_read_and_refused_as_on_the_command_line() {
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
