//! What the pull coordinator answers.

mod ensure;
mod explain;
mod list;
mod standing;
mod verdict;

pub use ensure::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
pub use explain::{BLOBS_MOST, BlobSize, BudgetHold, EndpointLogins, ExplainImage, Explanation, ImageWeight};
pub use list::{AnswerCounts, LayerStatus, ListPulls, PullList, PullState, PullStatus};
pub use standing::{
    CancelStandingPull, ListStandingPulls, StandingPullList, StandingPullState, StandingPullStatus, StandingPullsCancelled,
};
