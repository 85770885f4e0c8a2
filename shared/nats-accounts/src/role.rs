//! Roles.

use std::fmt;
use std::str::FromStr;

/// The role of a login. Each role has its own permissions; none includes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// An agent: publishes and writes only in its own name.
    Node,
    /// Reads everything except the fleet's key; changes nothing, asks no registry.
    Viewer,
    /// A viewer that may also make nodes pull, and cancel standing pulls.
    Puller,
    /// May send every command to every node (pulls, clears, pauses), and writes the fleet policy.
    Operator,
    /// Makes the fleet's buckets and stream, and neither reads nor deletes their contents.
    Setup,
}

/// The name of a role is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a role: use node, viewer, puller, operator or setup")]
pub struct UnknownRole(String);

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Node, Self::Viewer, Self::Puller, Self::Operator, Self::Setup];

    /// The role's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Viewer => "viewer",
            Self::Puller => "puller",
            Self::Operator => "operator",
            Self::Setup => "setup",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| UnknownRole(text.chars().take(64).collect()))
    }
}
