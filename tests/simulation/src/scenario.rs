//! The scenarios: how the registry fails and recovers.

use std::time::Duration;

use clap::ValueEnum;
use contract::Stage;
use serde::Serialize;

/// When the trouble ends in most scenarios.
const HEALS_AT: Duration = Duration::from_secs(11 * 60);
/// When the registry of the scenarios `roll-out-*` stops serving: the rate has reached its cap, and two thirds of the nodes still wait.
const BREAKS_AT: Duration = Duration::from_secs(3);
/// When it serves again: late enough for the probes to have reached their longest interval.
const SERVES_AGAIN_AT: Duration = Duration::from_secs(3 * 60);
/// How long the registry of `rate-limit` answers 429.
const LIMITED_FOR: Duration = Duration::from_secs(5 * 60);
/// Its Retry-After.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Nodes that cannot reach the registry in `sick-node`.
const SICK_NODES: usize = 5;
/// How many requests the registry of `overload` answers in a second.
const CAPACITY: u32 = 50;
/// How long `brownout` lasts, and the probability of failure of each request.
const BROWNOUT_FOR: Duration = Duration::from_secs(10 * 60);
const BROWNOUT_SHARE: f64 = 0.5;
/// In `partial-limit` one of this many nodes is limited.
const LIMITED_EACH: usize = 5;
/// How long an answer or a refusal takes; in `slow`, [`SLOW_ANSWER`].
const ANSWER_TAKES: Duration = Duration::from_millis(50);
const SLOW_ANSWER: Duration = Duration::from_secs(3);
/// The pulls per second that the budget permits: 0.9 of 200, see the throttler's rate limiter.
const PERMITTED_PER_SECOND: f64 = 180.0;
/// How long a failure takes to reach all nodes: two ways of the bus, with delays.
const KNOWN_TO_ALL_WITHIN: Duration = Duration::from_millis(10);
/// How long the fleet takes to notice that a registry with answers of [`ANSWER_TAKES`] has become silent.
const SILENCE_TAKES: Duration = Duration::from_millis(250);
/// The failures in a row that show that a registry which has just served is down: fewer may be chance, or overload.
const FAILURES_TO_KNOW: u64 = 30;
/// The number of new images in `roll-out`.
const ROLLED_OUT: usize = 20;

/// A scenario: trouble of a registry, and what the nodes want.
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
    /// The registry serves 100 pulls in 6 hours to one address, as Docker Hub does, and all nodes use that address.
    HubQuota,
    /// 20 new images on a healthy registry, each wanted by a twentieth of the nodes.
    RollOut,
    /// Each node wants its own image of a registry that serves for 3 s; then a proxy answers 503 until 3 minutes are over.
    RollOutDown,
    /// The same as roll-out-down, with the registry's own 503 and error body.
    RollOutErrors,
    /// The same as roll-out-down, without an answer.
    RollOutHang,
    /// 5 nodes cannot reach a healthy registry. They do reach the bus, so other nodes receive their reports.
    SickNode,
    /// Each node wants its own image of a registry that answers 50 requests a second, and further ones with 429 and Retry-After 1.
    Overload,
    /// The same as overload, with a proxy's 503 instead of 429.
    OverloadProxy,
    /// Each node wants its own image of a registry that fails each request with a probability of 0.5 for 10 minutes.
    Brownout,
    /// Every fifth node uses an address that the registry limits: 429 with Retry-After 60 for 5 minutes. The others are served.
    PartialLimit,
    /// Each node wants its own image of a registry whose answers take 3 s.
    Slow,
    /// Tokens and manifests are served; blobs get 503 for 11 minutes.
    BlobsDown,
    /// The same as blobs-down, but requests for blobs get no answer.
    BlobsHang,
    /// The token server answers 503 for 11 minutes. Without a token the registry serves nothing.
    TokensDown,
    /// The same as tokens-down, without an answer.
    TokensHang,
}

/// A registry's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 200.
    Served,
    /// 404 with `MANIFEST_UNKNOWN`.
    NotFound,
    /// 429.
    RateLimited {
        /// The value of Retry-After, if there is one.
        retry_after: Option<Duration>,
    },
    /// 503 without an error body of the registry.
    Overloaded,
    /// 503 with the registry's own error body.
    Unavailable,
    /// The connection is refused.
    Refused,
    /// The request is accepted and never answered.
    Nothing,
}

/// The quota of a registry for one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The number of pulls.
    pub pulls: u64,
    /// The length of the window, which begins with the first pull.
    pub window: Duration,
}

impl Scenario {
    /// The name of the scenario on the command line.
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
            Self::RollOutDown => "roll-out-down",
            Self::RollOutErrors => "roll-out-errors",
            Self::RollOutHang => "roll-out-hang",
            Self::SickNode => "sick-node",
            Self::Overload => "overload",
            Self::OverloadProxy => "overload-proxy",
            Self::Brownout => "brownout",
            Self::PartialLimit => "partial-limit",
            Self::Slow => "slow",
            Self::BlobsDown => "blobs-down",
            Self::BlobsHang => "blobs-hang",
            Self::TokensDown => "tokens-down",
            Self::TokensHang => "tokens-hang",
        }
    }

    /// The stages of a registry that a pull requests one after the other. If no stage fails by itself, the manifest represents all.
    #[must_use]
    pub fn stages(self) -> &'static [Stage] {
        match self {
            Self::BlobsDown | Self::BlobsHang | Self::TokensDown | Self::TokensHang => &[Stage::Token, Stage::Manifest, Stage::Blob],
            _ => &[Stage::Manifest],
        }
    }

    /// When the trouble of [`Self::answer`] begins.
    #[must_use]
    pub fn breaks_at(self) -> Duration {
        if matches!(self, Self::RollOutDown | Self::RollOutErrors | Self::RollOutHang) { BREAKS_AT } else { Duration::ZERO }
    }

    /// The answer of a stage to a node's request after the trouble has begun, without regard to quotas.
    #[must_use]
    pub fn answer(self, now: Duration, node: usize, stage: Stage) -> Answer {
        let troubled = self.recovers_at().is_none_or(|healed| now < healed);
        match self {
            Self::BadTag | Self::LateTag if troubled => Answer::NotFound,
            Self::Down if troubled => Answer::Refused,
            Self::BlackHole | Self::RollOutHang if troubled => Answer::Nothing,
            Self::RollOutDown if troubled => Answer::Overloaded,
            Self::RollOutErrors if troubled => Answer::Unavailable,
            Self::RateLimit if troubled => Answer::RateLimited { retry_after: Some(RETRY_AFTER) },
            Self::SickNode if self.is_sick(node) => Answer::Refused,
            Self::BlobsDown if troubled && stage == Stage::Blob => Answer::Overloaded,
            Self::BlobsHang if troubled && stage == Stage::Blob => Answer::Nothing,
            Self::TokensDown if troubled && stage == Stage::Token => Answer::Overloaded,
            Self::TokensHang if troubled && stage == Stage::Token => Answer::Nothing,
            Self::PartialLimit if troubled && self.is_limited(node) => Answer::RateLimited { retry_after: Some(RETRY_AFTER) },
            _ => Answer::Served,
        }
    }

    /// How many requests fail before any node can know that a registry has stopped serving in the middle of a roll-out: those that the
    /// budget permits until all nodes know of the first failure or the silence, and the failures in a row that show it.
    #[must_use]
    pub fn fail_before_known(self) -> u64 {
        let permitted = |within: Duration| (PERMITTED_PER_SECOND * within.as_secs_f64()).ceil() as u64;
        match self {
            Self::RollOutDown | Self::RollOutErrors => permitted(ANSWER_TAKES + KNOWN_TO_ALL_WITHIN) + FAILURES_TO_KNOW,
            Self::RollOutHang => permitted(ANSWER_TAKES + KNOWN_TO_ALL_WITHIN + SILENCE_TAKES),
            _ => 0,
        }
    }

    /// When the trouble ends, if it ends and affects all nodes.
    #[must_use]
    pub fn recovers_at(self) -> Option<Duration> {
        match self {
            Self::BadTag | Self::HubQuota | Self::RollOut | Self::SickNode | Self::Overload | Self::OverloadProxy | Self::Slow => None,
            Self::LateTag | Self::Down | Self::BlackHole | Self::BlobsDown | Self::BlobsHang | Self::TokensDown | Self::TokensHang => {
                Some(HEALS_AT)
            }
            Self::RollOutDown | Self::RollOutErrors | Self::RollOutHang => Some(SERVES_AGAIN_AT),
            Self::RateLimit | Self::PartialLimit => Some(LIMITED_FOR),
            Self::Brownout => Some(BROWNOUT_FOR),
        }
    }

    /// Whether the node is sick: it cannot reach the registry.
    #[must_use]
    pub fn is_sick(self, node: usize) -> bool {
        self == Self::SickNode && node < SICK_NODES
    }

    /// Whether a node uses the address that the registry limits.
    #[must_use]
    pub fn is_limited(self, node: usize) -> bool {
        self == Self::PartialLimit && node.is_multiple_of(LIMITED_EACH)
    }

    /// How many requests the registry answers in each second, and its answer to further ones; none if there is no such limit.
    #[must_use]
    pub fn capacity(self) -> Option<(u32, Answer)> {
        match self {
            Self::Overload => Some((CAPACITY, Answer::RateLimited { retry_after: Some(Duration::from_secs(1)) })),
            Self::OverloadProxy => Some((CAPACITY, Answer::Overloaded)),
            _ => None,
        }
    }

    /// The probability of failure of each request.
    #[must_use]
    pub fn fails_by_chance(self, now: Duration) -> f64 {
        if self == Self::Brownout && now < BROWNOUT_FOR { BROWNOUT_SHARE } else { 0.0 }
    }

    /// How long an answer takes.
    #[must_use]
    pub fn answer_takes(self) -> Duration {
        if self == Self::Slow { SLOW_ANSWER } else { ANSWER_TAKES }
    }

    /// The default number of nodes.
    #[must_use]
    pub fn usual_nodes(self) -> usize {
        if self == Self::HubQuota { 300 } else { 1_000 }
    }

    /// The number of the image that a node wants.
    #[must_use]
    pub fn image_of(self, node: usize) -> usize {
        match self {
            Self::RollOut => node % ROLLED_OUT,
            Self::RollOutDown
            | Self::RollOutErrors
            | Self::RollOutHang
            | Self::Overload
            | Self::OverloadProxy
            | Self::Brownout
            | Self::PartialLimit
            | Self::Slow => node,
            _ => 0,
        }
    }

    /// The quota of the registry for all nodes together, if it has one.
    #[must_use]
    pub fn quota(self) -> Option<Quota> {
        (self == Self::HubQuota).then_some(Quota { pulls: 100, window: Duration::from_secs(6 * 3_600) })
    }
}
