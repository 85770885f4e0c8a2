//! The failures: the registry's answer, containerd's error text, and the limits of the fleet.

use std::time::Duration;

use memory_registry::Fault;
use support::scripted_cri::{Failure, PullAnswer};

/// How long the registry fails.
pub(crate) const OUTAGE: Duration = Duration::from_secs(60);

/// One kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// The tag is not there yet.
    NotFound,
    /// 503 of a proxy, without a body of the registry.
    Unavailable,
    /// 429; CRI does not show the `Retry-After`.
    RateLimited,
}

impl Case {
    /// The registry's answer to all requests.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::NotFound => {
                let body = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
                Fault::answer("/manifests/", 404, &[("content-type", "application/json")], body)
            }
            Self::Unavailable => Fault::answer("/v2/", 503, &[("content-type", "text/plain")], "upstream connect error"),
            Self::RateLimited => {
                let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#;
                Fault::answer("/v2/", 429, &[("content-type", "application/json"), ("retry-after", "20")], body)
            }
        }
    }

    /// The answer of containerd 1.6 to a pull during this failure.
    pub(crate) fn words(self, image: &str) -> PullAnswer {
        let resolving = format!("failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": ");
        let (registry, tag) = (image.split('/').next().unwrap_or_default(), image.rsplit(':').next().unwrap_or_default());
        let status = |status: &str| format!("{resolving}pulling from host {registry} failed with status code [manifests {tag}]: {status}");
        PullAnswer::Failed(match self {
            Self::NotFound => Failure::new("NotFound", &format!("{resolving}{image}: not found")),
            Self::Unavailable => Failure::new("Unknown", &status("503 Service Unavailable")),
            Self::RateLimited => Failure::new("Unknown", &status("429 Too Many Requests")),
        })
    }

    /// The most pulls that may fail within [`OUTAGE`], whatever the size of the fleet: the same as with embedded agents.
    pub(crate) fn failing_at_most(self) -> usize {
        match self {
            Self::NotFound | Self::RateLimited => 8,
            Self::Unavailable => 18,
        }
    }

    /// The longest back-off after this many failing pulls. Each failure advances a back-off by at most one step, and jitter only shortens a
    /// step. Two failures at the same time are one step, so the back-off may be shorter.
    pub(crate) fn rests_at_most(self, failed: usize) -> Duration {
        let steps: &[u64] = match self {
            Self::NotFound | Self::RateLimited => &[10, 20, 40, 60],
            Self::Unavailable => &[2, 4, 8],
        };
        Duration::from_secs(steps[failed.clamp(1, steps.len()) - 1])
    }
}
