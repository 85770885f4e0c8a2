//! What happens to the registry.

use std::time::Duration;

use clap::ValueEnum;
use contract::Stage;
use serde::Serialize;

/// When the trouble of most scenarios ends.
const HEALS_AT: Duration = Duration::from_secs(11 * 60);
/// When the registry of `roll-out-down` and its like stops serving: the rate has reached its cap, and two nodes of three still wait.
const BREAKS_AT: Duration = Duration::from_secs(3);
/// When it serves again: long enough for probes to have come to their slowest cadence.
const SERVES_AGAIN_AT: Duration = Duration::from_secs(3 * 60);
/// How long the registry limits its rate.
const LIMITED_FOR: Duration = Duration::from_secs(5 * 60);
/// What it asks for meanwhile.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Nodes that cannot reach the registry in `sick-node`.
const SICK_NODES: usize = 5;
/// What the registry of `overload` answers in a second.
const CAPACITY: u32 = 50;
/// How long `brownout` lasts, and the share of requests that fails.
const BROWNOUT_FOR: Duration = Duration::from_secs(10 * 60);
const BROWNOUT_SHARE: f64 = 0.5;
/// Each so many-th node of `partial-limit` is limited.
const LIMITED_EACH: usize = 5;
/// How long an attempt takes that is answered, or refused, and of `slow`.
const ANSWER_TAKES: Duration = Duration::from_millis(50);
const SLOW_ANSWER: Duration = Duration::from_secs(3);
/// What the budget lets go in a second: nine tenths of 200, see the throttler's pace.
const LET_GO_PER_SECOND: f64 = 180.0;
/// How long a failure takes to be with all nodes: the bus's two ways, with what delays them.
const TOLD_WITHIN: Duration = Duration::from_millis(10);
/// Silence of a registry that answered this quickly is noticed within this.
const SILENCE_TAKES: Duration = Duration::from_millis(250);
/// So many failures in a row say that a registry which has just served is down: fewer may be chance, or too many requests.
const FAILURES_TO_KNOW: u64 = 30;
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
    /// An image of its own for each node, of a registry that serves for 3 s; then a proxy answers 503 in its place, until 3 minutes are over.
    RollOutDown,
    /// The same, with the registry's own 503 and error body.
    RollOutErrors,
    /// The same, without an answer.
    RollOutHang,
    /// 5 nodes cannot reach a registry that is well. They do reach the bus, so that what they say is heard.
    SickNode,
    /// An image of its own for each node, of a registry that answers 50 a second, and 429 with Retry-After 1 beyond.
    Overload,
    /// The same, with a proxy's 503 beyond.
    OverloadProxy,
    /// An image of its own for each node, of a registry that fails every second request by chance for 10 minutes.
    Brownout,
    /// Each fifth node is behind an address that the registry limits: 429 with Retry-After 60 for 5 minutes. The others are served.
    PartialLimit,
    /// An image of its own for each node, of a registry whose answers take 3 s.
    Slow,
    /// Tokens and manifests are served; blobs get 503 for 11 minutes.
    BlobsDown,
    /// The same, with blobs that are asked for and do not come.
    BlobsHang,
    /// The token server answers 503 for 11 minutes. Without a token nothing is served.
    TokensDown,
    /// The same, without an answer.
    TokensHang,
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
    /// 503 without a word of the registry's own.
    Overloaded,
    /// 503 with the registry's own error body.
    Unavailable,
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

    /// The stages of a registry that a pull asks one after the other. Where none fails by itself, the manifest stands for all.
    #[must_use]
    pub fn stages(self) -> &'static [Stage] {
        match self {
            Self::BlobsDown | Self::BlobsHang | Self::TokensDown | Self::TokensHang => &[Stage::Token, Stage::Manifest, Stage::Blob],
            _ => &[Stage::Manifest],
        }
    }

    /// When the trouble begins, of which [`Self::answer`] tells.
    #[must_use]
    pub fn breaks_at(self) -> Duration {
        if matches!(self, Self::RollOutDown | Self::RollOutErrors | Self::RollOutHang) { BREAKS_AT } else { Duration::ZERO }
    }

    /// What a stage of the registry does with a request of a node once the trouble has begun, its quota aside.
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

    /// How many requests fail before anybody can know that a registry has stopped serving in the middle of a roll-out: what the budget lets
    /// go until the first failure is told, or until silence is, and as many as it takes to know.
    #[must_use]
    pub fn fail_unknown(self) -> u64 {
        let let_go = |within: Duration| (LET_GO_PER_SECOND * within.as_secs_f64()).ceil() as u64;
        match self {
            Self::RollOutDown | Self::RollOutErrors => let_go(ANSWER_TAKES + TOLD_WITHIN) + FAILURES_TO_KNOW,
            Self::RollOutHang => let_go(ANSWER_TAKES + TOLD_WITHIN + SILENCE_TAKES),
            _ => 0,
        }
    }

    /// When the trouble ends, if it does and is everybody's.
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

    /// Whether a node itself is the trouble.
    #[must_use]
    pub fn is_sick(self, node: usize) -> bool {
        self == Self::SickNode && node < SICK_NODES
    }

    /// Whether a node is behind the address that the registry limits.
    #[must_use]
    pub fn is_limited(self, node: usize) -> bool {
        self == Self::PartialLimit && node.is_multiple_of(LIMITED_EACH)
    }

    /// How many requests the registry answers in each second, if it cannot do as many as come; and what it says beyond.
    #[must_use]
    pub fn capacity(self) -> Option<(u32, Answer)> {
        match self {
            Self::Overload => Some((CAPACITY, Answer::RateLimited { retry_after: Some(Duration::from_secs(1)) })),
            Self::OverloadProxy => Some((CAPACITY, Answer::Overloaded)),
            _ => None,
        }
    }

    /// The share of requests that fail by chance.
    #[must_use]
    pub fn fails_by_chance(self, now: Duration) -> f64 {
        if self == Self::Brownout && now < BROWNOUT_FOR { BROWNOUT_SHARE } else { 0.0 }
    }

    /// How long an answer takes.
    #[must_use]
    pub fn answer_takes(self) -> Duration {
        if self == Self::Slow { SLOW_ANSWER } else { ANSWER_TAKES }
    }

    /// How many nodes a run has when nobody says.
    #[must_use]
    pub fn usual_nodes(self) -> usize {
        if self == Self::HubQuota { 300 } else { 1_000 }
    }

    /// Which of its images a node wants.
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

    /// What the registry serves to all nodes together, if it counts.
    #[must_use]
    pub fn quota(self) -> Option<Quota> {
        (self == Self::HubQuota).then_some(Quota { pulls: 100, window: Duration::from_secs(6 * 3_600) })
    }
}
