//! The figures of a run.

use std::time::Duration;

use serde::Serialize;

use crate::registry::Request;

/// The figures of one side of a storm, as the registry saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// All requests.
    pub requests: u64,
    /// Requests that were answered with a status of 400 or above, refused, or not answered.
    pub failing_requests: u64,
    /// The most pulls that began in any sliding second, which the budget limits.
    pub peak_per_second: u64,
    /// The number of nodes that got the image.
    pub served: u64,
    /// Seconds from the start until the last healthy node was served, of those that were served.
    pub last_served_s: Option<f64>,
    /// Seconds from the end of the trouble until the last node was served.
    pub last_served_after_recovery_s: Option<f64>,
    /// The longest time in seconds in which a node that waited for its image made no request.
    pub longest_pause_s: f64,
    /// Healthy nodes that waited, while the registry would have served them, more than 10 s longer than the budget needs for all
    /// nodes.
    pub refused_on_healthy_nodes: u64,
}

/// The most pulls that began in any sliding second. The requests must be in order of time.
pub(crate) fn peak_per_second(requests: &[Request]) -> u64 {
    let begun: Vec<Duration> = requests.iter().filter(|request| request.begins).map(|request| request.at).collect();
    let mut first = 0;
    let mut peak = 0;
    for (index, at) in begun.iter().enumerate() {
        while begun[first] + Duration::from_secs(1) <= *at {
            first += 1;
        }
        peak = peak.max(index - first + 1);
    }
    peak as u64
}

/// Seconds, rounded to milliseconds.
pub(crate) fn round(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(at_ms: &[u64]) -> u64 {
        let begun = |at: &u64| Request { at: Duration::from_millis(*at), node: 0, begins: true, failing: false };
        let requests: Vec<Request> = at_ms.iter().map(begun).collect();
        peak_per_second(&requests)
    }

    #[test]
    fn peak_is_of_any_sliding_second() {
        assert_eq!(peak(&[0, 900, 950, 1_050, 1_899, 3_000]), 4);
        assert_eq!(peak(&[]), 0);
        assert_eq!(peak(&[0, 1_000]), 1, "a second later is another second");
    }
}
