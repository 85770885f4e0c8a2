//! The fleet policy: one revisioned document that operators write and every node reads.
//!
//! It caps the fleet's requests to registries, and limits sharing. For a cap that it leaves out, the median of the nodes' settings applies,
//! for sharing each node's own. A node's own settings may only be stricter, and only for that node: a lower cap, and less sharing.

use std::collections::BTreeMap;

use image::Reference;
use serde::{Deserialize, Serialize};

/// The key of the policy in its bucket ([`crate::know::POLICY`]).
pub const POLICY_KEY: &str = "fleet";
/// The most registries with caps of their own. An entry of usual length takes about 80 of the [`crate::know::MAX_STORED_BYTES`] bytes.
pub const MAX_REGISTRIES: usize = 100;
/// The longest name of a registry, in bytes: a host name of 253 and a port.
pub const MAX_REGISTRY_BYTES: usize = 259;
/// The lowest cap in pulls a second: one pull in 100 s.
pub const LEAST_PER_SECOND: f64 = 0.01;
/// The highest cap in pulls a second, as in the settings.
pub const MOST_PER_SECOND: f64 = 100_000.0;
/// The highest cap of pulls at once, as in the settings.
pub const MOST_AT_ONCE: u64 = 1_000_000;
/// The most characters of an invalid name that are shown.
const SHOWN: usize = 60;
/// What applies to a cap that is left out.
const LEFT_OUT: &str = "if the policy sets no value, the median of the nodes' settings applies";

/// Caps of one registry, for each login and address that the registry counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Caps {
    /// Pulls per second that the fleet may begin; none: not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pulls_per_second: Option<f64>,
    /// Pulls of the fleet at a time; none: not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pulls_at_once: Option<u64>,
}

/// The most that nodes may share. There is no `off`, because a node that neither publishes nor receives anything does not receive the
/// policy either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShareAtMost {
    /// Nodes apply what is shared.
    Enforce,
    /// Nodes publish and count, and shared entries neither refuse nor delay a pull.
    Observe,
}

impl ShareAtMost {
    /// The word as written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

/// The fleet policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetPolicy {
    /// The most sharing; none: as in each node's own settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareAtMost>,
    /// The caps of every registry.
    #[serde(skip_serializing_if = "Caps::is_empty")]
    pub budget: Caps,
    /// The caps of single registries, by the name of [`registry_name`]; each value overrides that of [`FleetPolicy::budget`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub registry: BTreeMap<String, Caps>,
}

/// The policy as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredPolicy {
    /// The policy.
    pub policy: FleetPolicy,
    /// Who wrote it, according to the writer: the server knows the login.
    pub by: String,
}

/// Why a document is not a policy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// More than [`MAX_REGISTRIES`].
    #[error("it names {0} registries, and {MAX_REGISTRIES} are the most: cap the others together in [budget]")]
    TooMany(usize),
    /// Not a registry as images name it.
    #[error("{0:?} is no registry: name it as images do, like registry.example or localhost:5000")]
    NotARegistry(String),
    /// A registry has another name, and that one would apply.
    #[error("the registry {found:?} is {name:?} in images: write {name:?}")]
    AnotherName {
        /// As written.
        found: String,
        /// As images name it.
        name: String,
    },
    /// Out of range.
    #[error("{place}.pulls_per_second is {value}: set {LEAST_PER_SECOND} to {MOST_PER_SECOND}, or leave it out ({LEFT_OUT})")]
    PerSecond {
        /// The table.
        place: String,
        /// As written.
        value: f64,
    },
    /// Out of range.
    #[error("{place}.pulls_at_once is {value}: set 1 to {MOST_AT_ONCE}, or leave it out ({LEFT_OUT})")]
    AtOnce {
        /// The table.
        place: String,
        /// As written.
        value: u64,
    },
}

impl Caps {
    /// No caps.
    pub const NONE: Self = Self { pulls_per_second: None, pulls_at_once: None };

    /// Whether there are no caps.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn check(&self, place: impl Fn() -> String) -> Result<(), PolicyError> {
        if let Some(value) = self.pulls_per_second.filter(|value| !(LEAST_PER_SECOND..=MOST_PER_SECOND).contains(value)) {
            return Err(PolicyError::PerSecond { place: place(), value });
        }
        match self.pulls_at_once.filter(|value| !(1..=MOST_AT_ONCE).contains(value)) {
            Some(value) => Err(PolicyError::AtOnce { place: place(), value }),
            None => Ok(()),
        }
    }
}

impl FleetPolicy {
    /// Checks that the policy can be followed. Readers check it like its writer.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.registry.len() > MAX_REGISTRIES {
            return Err(PolicyError::TooMany(self.registry.len()));
        }
        self.budget.check(|| "budget".to_owned())?;
        for (registry, caps) in &self.registry {
            match registry_name(registry) {
                None => return Err(PolicyError::NotARegistry(registry.chars().take(SHOWN).collect())),
                Some(name) if name != *registry => return Err(PolicyError::AnotherName { found: registry.clone(), name }),
                Some(_) => caps.check(|| format!("registry.{registry:?}"))?,
            }
        }
        Ok(())
    }

    /// Whether it makes nodes only observe.
    #[must_use]
    pub fn observes(&self) -> bool {
        self.share == Some(ShareAtMost::Observe)
    }

    /// The caps of a registry.
    #[must_use]
    pub fn caps_of(&self, registry: &str) -> Caps {
        let own = self.registry.get(registry).copied().unwrap_or_default();
        Caps {
            pulls_per_second: own.pulls_per_second.or(self.budget.pulls_per_second),
            pulls_at_once: own.pulls_at_once.or(self.budget.pulls_at_once),
        }
    }
}

/// A registry as views and budgets name it; none if the text names none.
#[must_use]
pub fn registry_name(text: &str) -> Option<String> {
    if text.len() > MAX_REGISTRY_BYTES {
        return None;
    }
    let name = Reference::parse(&format!("{text}/any")).ok()?.registry().to_owned();
    (name == text || (name == "docker.io" && text.ends_with("docker.io"))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::know::{decode, encode};

    fn caps(pulls_per_second: f64, pulls_at_once: u64) -> Caps {
        Caps { pulls_per_second: Some(pulls_per_second), pulls_at_once: Some(pulls_at_once) }
    }

    fn of(registry: &str, caps: Caps) -> FleetPolicy {
        FleetPolicy { registry: BTreeMap::from([(registry.to_owned(), caps)]), ..FleetPolicy::default() }
    }

    #[test]
    fn a_registry_is_named_as_images_name_it() {
        for (text, named) in [
            ("registry.example", "registry.example"),
            ("localhost:5000", "localhost:5000"),
            ("docker.io", "docker.io"),
            ("index.docker.io", "docker.io"),
        ] {
            assert_eq!(registry_name(text).as_deref(), Some(named), "{text}");
        }
        let long = format!("{}.example", "a".repeat(4_000));
        for text in ["", "busybox", "https://registry.example", "registry.example/team", "a b", &long] {
            assert_eq!(registry_name(text), None, "{text}");
        }
    }

    #[test]
    fn cap_missing_in_a_registrys_table_is_the_cap_for_all() {
        let policy = FleetPolicy {
            share: None,
            budget: caps(200.0, 50),
            registry: BTreeMap::from([
                ("a.example".to_owned(), Caps { pulls_per_second: Some(2.0), pulls_at_once: None }),
                ("b.example".to_owned(), Caps::default()),
            ]),
        };
        assert_eq!(policy.check(), Ok(()));
        assert_eq!(policy.caps_of("a.example"), caps(2.0, 50));
        assert_eq!(policy.caps_of("b.example"), caps(200.0, 50));
        assert_eq!(policy.caps_of("c.example"), caps(200.0, 50));
        assert_eq!(FleetPolicy::default().caps_of("c.example"), Caps::default());
    }

    #[test]
    fn caps_out_of_range_are_named_with_what_to_write() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9, 0.001] {
            for policy in [
                of("a.example", Caps { pulls_per_second: Some(value), ..Caps::default() }),
                FleetPolicy { budget: Caps { pulls_per_second: Some(value), ..Caps::default() }, ..FleetPolicy::default() },
            ] {
                let error = policy.check().unwrap_err().to_string();
                assert!(error.contains("0.01 to 100000"), "{value}: {error}");
            }
        }
        for value in [0, 1_000_001, u64::MAX] {
            let error = of("a.example", Caps { pulls_at_once: Some(value), ..Caps::default() }).check().unwrap_err().to_string();
            assert!(error.starts_with("registry.\"a.example\".pulls_at_once is ") && error.contains("1 to 1000000"), "{error}");
        }
        for (per_second, at_once) in [(LEAST_PER_SECOND, 1), (MOST_PER_SECOND, MOST_AT_ONCE)] {
            assert_eq!(of("a.example", caps(per_second, at_once)).check(), Ok(()));
        }
    }

    #[test]
    fn names_and_their_number_are_bounded_and_so_are_errors_about_them() {
        let many = (0..10_000).map(|number| (format!("r{number}.example"), caps(1.0, 1))).collect();
        assert_eq!(FleetPolicy { registry: many, ..FleetPolicy::default() }.check(), Err(PolicyError::TooMany(10_000)));
        let error = of(&"a".repeat(4_000), caps(1.0, 1)).check().unwrap_err().to_string();
        assert!(error.len() < 200 && error.contains("name it as images do"), "{error}");
        let error = of("index.docker.io", caps(1.0, 1)).check().unwrap_err().to_string();
        assert!(error.contains("\"docker.io\""), "{error}");
    }

    #[test]
    fn the_fullest_policy_of_usual_names_is_stored() {
        let registry = (0..MAX_REGISTRIES).map(|number| (format!("r{number:03}.eu-1.example"), caps(1.0, 1))).collect();
        let stored = StoredPolicy {
            policy: FleetPolicy { share: Some(ShareAtMost::Observe), budget: caps(1.0, 1), registry },
            by: "ann@desk".to_owned(),
        };
        assert_eq!(decode::<StoredPolicy>(&encode(&stored).unwrap()), Ok(stored));
    }
}
