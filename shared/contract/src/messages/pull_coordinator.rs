//! The messages of the pull coordinator.

mod ensure;
mod explain;
mod images;
mod list;
mod standing;
mod verdict;

pub use ensure::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
pub use explain::{BLOBS_MOST, BlobSize, BudgetHold, EndpointLogins, ExplainImage, Explanation, ImageSizeEstimate};
pub use images::{IMAGES_MOST, ImageList, ListImages, ListedImage};
pub use list::{AnswerCounts, LayerStatus, ListPulls, PODS_MOST, PullList, PullState, PullStatus};
pub use standing::{
    CancelStandingPull, ListStandingPulls, StandingPullList, StandingPullState, StandingPullStatus, StandingPullsCancelled,
};
