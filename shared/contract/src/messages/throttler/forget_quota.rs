//! Forgetting a registry's quota.

use serde::{Deserialize, Serialize};

use crate::{Command, Service};

/// Makes this node forget what it knows of the quota of a budget. An operator sends it to every node if what they know is wrong. The next
/// pull asks the registry, and shows what it counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgetQuota {
    /// The owner of the budget.
    pub owner: String,
    /// Who sends it: `user@host`.
    pub by: String,
    /// Whether this node records the event of it, for all nodes.
    #[serde(default)]
    pub is_recorded: bool,
}

impl Command for ForgetQuota {
    type Reply = QuotaForgotten;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "forget-quota";
}

/// The answer to [`ForgetQuota`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaForgotten {
    /// Whether the node knew a quota.
    #[serde(default)]
    pub was_known: bool,
}
