//! What happens to the registry.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

/// When the trouble of most scenarios ends.
const HEALS_AT: Duration = Duration::from_secs(11 * 60);
/// How long the registry limits its rate.
const LIMITED_FOR: Duration = Duration::from_secs(5 * 60);
/// What it asks for meanwhile.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Nodes that cannot reach the registry in `sick-node`.
const SICK_NODES: usize = 5;
/// New images of `roll-out`.
const ROLLED_OUT: usize = 20;

/// A storm that a fleet lives through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The tag does not exist.
    BadTag,
    /// The tag is pushed after 11 minutes.
    LateTag,
    /// The registry refuses connections for 11 minutes.
    Down,
    /// The registry takes requests and does not answer for 11 minutes.
    BlackHole,
    /// The registry answers 429 with Retry-After 60 for 5 minutes.
    RateLimit,
    /// The registry serves 100 pulls in 6 hours to one address, as Docker Hub does, and all nodes stand behind that.
    HubQuota,
    /// 20 new images on a registry that is well, each wanted by a twentieth of the nodes.
    RollOut,
    /// 5 nodes cannot reach a registry that is well. They do reach the bus, so that what they say is heard.
    SickNode,
}

/// What a registry does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 200.
    Served,
    /// 404 with `MANIFEST_UNKNOWN`.
    NotFound,
    /// 429.
    RateLimited {
        /// What stands in Retry-After, if anything does.
        retry_after: Option<Duration>,
    },
    /// The connection is refused.
    Refused,
    /// Taken, and never answered.
    Nothing,
}

/// What a registry serves to one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// So many.
    pub pulls: u64,
    /// Within this time, which begins with the first.
    pub window: Duration,
}

impl Scenario {
    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadTag => "bad-tag",
            Self::LateTag => "late-tag",
            Self::Down => "down",
            Self::BlackHole => "black-hole",
            Self::RateLimit => "rate-limit",
            Self::HubQuota => "hub-quota",
            Self::RollOut => "roll-out",
            Self::SickNode => "sick-node",
        }
    }

    /// What the registry does with a request of a node at an instant, its quota aside.
    #[must_use]
    pub fn answer(self, now: Duration, node: usize) -> Answer {
        let troubled = self.recovers_at().is_none_or(|healed| now < healed);
        match self {
            Self::BadTag | Self::LateTag if troubled => Answer::NotFound,
            Self::Down if troubled => Answer::Refused,
            Self::BlackHole if troubled => Answer::Nothing,
            Self::RateLimit if troubled => Answer::RateLimited { retry_after: Some(RETRY_AFTER) },
            Self::SickNode if self.is_sick(node) => Answer::Refused,
            _ => Answer::Served,
        }
    }

    /// When the trouble ends, if it does and is everybody's.
    #[must_use]
    pub fn recovers_at(self) -> Option<Duration> {
        match self {
            Self::BadTag | Self::HubQuota | Self::RollOut | Self::SickNode => None,
            Self::LateTag | Self::Down | Self::BlackHole => Some(HEALS_AT),
            Self::RateLimit => Some(LIMITED_FOR),
        }
    }

    /// Whether a node itself is the trouble.
    #[must_use]
    pub fn is_sick(self, node: usize) -> bool {
        self == Self::SickNode && node < SICK_NODES
    }

    /// How many nodes a run has when nobody says.
    #[must_use]
    pub fn usual_nodes(self) -> usize {
        if self == Self::HubQuota { 300 } else { 1_000 }
    }

    /// Which of its images a node wants.
    #[must_use]
    pub fn image_of(self, node: usize) -> usize {
        if self == Self::RollOut { node % ROLLED_OUT } else { 0 }
    }

    /// What the registry serves to all nodes together, if it counts.
    #[must_use]
    pub fn quota(self) -> Option<Quota> {
        (self == Self::HubQuota).then_some(Quota { pulls: 100, window: Duration::from_secs(6 * 3_600) })
    }
}
