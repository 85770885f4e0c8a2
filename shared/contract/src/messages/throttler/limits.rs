//! The limits that a registry states.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{Command, PermitId, Service};

/// The longest [`RegistryLimit::source`], in bytes: it is an address or a UUID. A longer one is shortened when it is read, because a budget
/// leader sends the sources that nodes report to all nodes.
pub const SOURCE_MAX_BYTES: usize = 128;

/// A window of requests or pulls that a registry counts, as stated in the headers of its answer (`ratelimit-limit: 100;w=21600`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryLimit {
    /// What the registry counts as one client (`docker-ratelimit-source`), if it states that; at most [`SOURCE_MAX_BYTES`].
    #[serde(deserialize_with = "shortened")]
    pub source: Option<String>,
    /// How many are allowed in a window; 0: not stated.
    pub limit: u64,
    /// How many are left.
    pub remaining: u64,
    /// The length of the window in milliseconds; 0: not stated.
    pub window_ms: u64,
    /// Milliseconds until the window begins anew, if stated.
    pub reset_ms: Option<u64>,
}

fn shortened<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let mut source = Option::<String>::deserialize(deserializer)?;
    if let Some(source) = &mut source {
        source.truncate(source.floor_char_boundary(SOURCE_MAX_BYTES));
    }
    Ok(source)
}

/// Whether used-up limits stop all pulls; if so, when they allow one again. A limit without a source concerns all pulls, any other one the
/// pulls of its source. `limits`: the source of each, and when it resets if it is used up.
///
/// A used-up limit without a source stops all pulls. So do limits of all sources, until the source that resets first allows a pull. Of the
/// two, the one that resets later is returned.
#[must_use]
pub fn all_used_up<'a, T: Ord>(limits: impl IntoIterator<Item = (Option<&'a str>, Option<T>)>) -> Option<T> {
    let mut by_source: BTreeMap<Option<&str>, Option<T>> = BTreeMap::new();
    for (source, resets) in limits {
        let last = by_source.entry(source).or_default();
        *last = last.take().max(resets);
    }
    let common = by_source.remove(&None).flatten();
    common.max(by_source.into_values().min().flatten())
}

/// A node's knowledge of an owner's limits, from its own pulls and from the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownLimits {
    /// The registry has answered, and stated no limit.
    pub none_stated: bool,
    /// The stated limits, less all permits that are granted and not returned.
    pub limits: Vec<RegistryLimit>,
}

/// The limits that the registry stated during one permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitLimits {
    /// The permit.
    pub permit: PermitId,
    /// Empty: the registry answered, and stated none.
    #[serde(default)]
    pub limits: Vec<RegistryLimit>,
}

/// The limits that the registry stated in its answer, while the pull goes on, so that others can start sooner. To the node's own throttler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportLimits {
    /// The permit.
    pub permit: PermitId,
    /// Empty: the registry answered, and stated none.
    #[serde(default)]
    pub limits: Vec<RegistryLimit>,
}

impl Command for ReportLimits {
    type Reply = LimitsReported;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "limits";
}

/// The answer to [`ReportLimits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsReported {}

#[cfg(test)]
mod tests {
    use super::{RegistryLimit, SOURCE_MAX_BYTES, all_used_up};

    /// The source of a limit, and when it resets if it is used up.
    type Limit = (Option<&'static str>, Option<u64>);

    #[test]
    fn long_source_is_shortened_when_it_is_read() {
        let long = RegistryLimit { source: Some(format!("x{}", "é".repeat(500_000))), limit: 5, ..RegistryLimit::default() };
        let read: RegistryLimit = rmp_serde::from_slice(&rmp_serde::to_vec_named(&long).unwrap_or_default()).unwrap_or_default();
        // A character of two bytes is not split.
        assert_eq!((read.source.map(|source| source.len()), read.limit), (Some(SOURCE_MAX_BYTES - 1), 5));
    }

    #[test]
    fn all_pulls_stop_if_a_common_limit_or_one_of_each_source_is_used_up() {
        let table: [(&[Limit], Option<u64>); 10] = [
            (&[], None),
            (&[(None, None)], None),
            (&[(None, Some(5)), (None, Some(9)), (None, None)], Some(9)),
            (&[(Some("a"), Some(5)), (Some("b"), None)], None),
            (&[(Some("a"), Some(5)), (Some("a"), None), (Some("a"), Some(9)), (Some("b"), Some(7))], Some(7)),
            (&[(Some("a"), Some(5)), (None, None)], Some(5)),
            (&[(Some("a"), Some(9)), (None, Some(3))], Some(9)),
            (&[(Some("a"), Some(3)), (None, Some(9))], Some(9)),
            (&[(Some("a"), Some(9)), (Some("b"), Some(7)), (None, Some(3))], Some(7)),
            (&[(Some("a"), Some(9)), (Some("b"), None), (None, Some(3))], Some(3)),
        ];
        for (limits, expected) in table {
            assert_eq!(all_used_up(limits.iter().copied()), expected, "{limits:?}");
        }
    }
}
