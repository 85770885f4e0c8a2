//! What a run comes to.

use serde::Serialize;

/// One side of a storm, as the registry saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// All requests.
    pub requests: u64,
    /// Answered with 400 and above, refused, or left hanging.
    pub failing_requests: u64,
    /// The most requests in any sliding second.
    pub peak_per_second: u64,
    /// Nodes that got the image.
    pub served: u64,
    /// From the end of the trouble to the last node served.
    pub last_served_after_recovery_s: Option<f64>,
    /// Nodes that are well and had to wait for a registry that would have served them, for more than 10 s beyond what the
    /// budget takes for all.
    pub refused_on_healthy_nodes: u64,
}
