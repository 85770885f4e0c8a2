//! The limits that a registry states.

use serde::{Deserialize, Serialize};

use crate::{Command, PermitId, Service};

/// A window of requests or pulls that a registry counts, as stated in the headers of its answer (`ratelimit-limit: 100;w=21600`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryLimit {
    /// What the registry counts as one client (`docker-ratelimit-source`), if it states that.
    pub source: Option<String>,
    /// How many are allowed in a window; 0: not stated.
    pub limit: u64,
    /// How many are left.
    pub remaining: u64,
    /// The length of the window in milliseconds; 0: not stated.
    pub window_ms: u64,
    /// Milliseconds until the window begins anew or the registry may be asked again, if stated.
    pub reset_ms: Option<u64>,
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
