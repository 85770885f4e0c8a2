//! Converts a runtime's results to the core's types.

use std::time::Duration;

use contract::FailureClass;
use runtimes::{ImageStatus, InspectFailure, PullFailure, PulledImage};

use crate::core::{Failure, ImageFacts, PulledFacts};

pub(crate) fn image_facts(status: ImageStatus) -> ImageFacts {
    ImageFacts { image_ref: status.image_ref, size_bytes: status.size_bytes, digest: status.digest, platform: status.platform }
}

pub(crate) fn pulled_facts(pulled: PulledImage) -> PulledFacts {
    let PulledImage { image_ref, digest, platform, auth, limits } = pulled;
    PulledFacts { image_ref, digest, platform, auth, limits }
}

pub(crate) fn inspect_failure(failure: InspectFailure) -> Failure {
    Failure { text: failure.text, class: failure.class, ..Failure::default() }
}

pub(crate) fn pull_failure(failure: PullFailure) -> Failure {
    let PullFailure { text, class, retry_after, endpoint, auth, authoritative, stage, no_such_platform, limits } = failure;
    Failure { text, class, auth, authoritative, endpoint, stage, no_such_platform, retry_after, limits }
}

pub(crate) fn too_long(limit: Duration) -> Failure {
    let text =
        format!("the pull took longer than pull.timeout = {}: raise it, or find out why the registry is slow", image::go::duration(limit));
    Failure { text, class: FailureClass::Unknown, ..Failure::default() }
}
