//! The failures of the registry, the most failing requests in each, and how soon every node must have the image afterwards.

use std::time::Duration;

use memory_registry::{Fault, FaultAction};

/// How long the registry fails.
pub(crate) const OUTAGE: Duration = Duration::from_secs(60);
/// The registry's `Retry-After`.
const RETRY_AFTER: Duration = Duration::from_secs(20);

/// One kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Case {
    /// The tag is not there yet.
    NotFound,
    /// 503 of a proxy, without a body of the registry.
    Unavailable,
    /// 429 with `Retry-After: 20`.
    RateLimited,
    /// The connection ends without an answer.
    Reset,
    /// No answer.
    Hang,
}

impl Case {
    pub(crate) const ALL: [Self; 5] = [Self::NotFound, Self::Unavailable, Self::RateLimited, Self::Reset, Self::Hang];

    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::NotFound => {
                let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
                Fault::answer("/manifests/", 404, &[("content-type", "application/json")], body)
            }
            Self::Unavailable => Fault::answer("/v2/", 503, &[("content-type", "text/plain")], "upstream connect error"),
            Self::RateLimited => {
                let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#;
                let seconds = RETRY_AFTER.as_secs().to_string();
                Fault::answer("/v2/", 429, &[("content-type", "application/json"), ("retry-after", &seconds)], body)
            }
            Self::Reset => Fault::new("/v2/", FaultAction::Close),
            Self::Hang => Fault::new("/v2/", FaultAction::Hang),
        }
    }

    /// The most failing requests within [`OUTAGE`], whatever the size of the fleet.
    pub(crate) fn failing_at_most(self) -> u64 {
        match self {
            Self::NotFound | Self::RateLimited => 8,
            Self::Unavailable | Self::Reset => 18,
            Self::Hang => 14,
        }
    }

    /// The longest time until every node has the image: after the registry has healed, and for 429 after its last `Retry-After`.
    pub(crate) fn served_within(self) -> Duration {
        match self {
            Self::NotFound => Duration::from_secs(65),
            Self::RateLimited => Duration::from_secs(5),
            Self::Unavailable | Self::Reset | Self::Hang => Duration::from_secs(15),
        }
    }

    /// The longest such time that was measured on a quick bus (`tests/bench/README.md`). If the longest step between two attempts is longer,
    /// that step, because an outage may end just after an attempt.
    pub(crate) fn measured_on_a_quick_bus(self) -> Duration {
        match self {
            Self::NotFound => Duration::from_secs(60),
            Self::RateLimited => Duration::from_millis(5_800),
            Self::Unavailable | Self::Reset | Self::Hang => Duration::from_secs(8),
        }
    }

    /// The registry's `Retry-After`; zero if it sends none.
    pub(crate) fn retry_after(self) -> Duration {
        if self == Self::RateLimited { RETRY_AFTER } else { Duration::ZERO }
    }
}
