//! What a run comes to.

use std::time::Duration;

use serde::Serialize;

use crate::registry::Request;

/// One side of a storm, as the registry saw it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// All requests.
    pub requests: u64,
    /// Answered with 400 and above, refused, or left hanging.
    pub failing_requests: u64,
    /// The most pulls begun in any sliding second: what the budget limits.
    pub peak_per_second: u64,
    /// Nodes that got the image.
    pub served: u64,
    /// From the start to the last of the nodes that are well and were served.
    pub last_served_s: Option<f64>,
    /// From the end of the trouble to the last node served.
    pub last_served_after_recovery_s: Option<f64>,
    /// Nodes that are well and had to wait for a registry that would have served them, for more than 10 s beyond what the
    /// budget takes for all.
    pub refused_on_healthy_nodes: u64,
}

/// The most pulls begun in any sliding second. Requests come in the order of time.
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

/// Seconds to a thousandth.
pub(crate) fn round(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peak(at_ms: &[u64]) -> u64 {
        let begun = |at: &u64| Request { at: Duration::from_millis(*at), begins: true, failing: false };
        let requests: Vec<Request> = at_ms.iter().map(begun).collect();
        peak_per_second(&requests)
    }

    #[test]
    fn the_peak_is_of_any_second_not_of_the_clock_s() {
        assert_eq!(peak(&[0, 900, 950, 1_050, 1_899, 3_000]), 4);
        assert_eq!(peak(&[]), 0);
        assert_eq!(peak(&[0, 1_000]), 1, "a second later is another second");
    }
}
