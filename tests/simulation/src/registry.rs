//! The simulated registry: answers by the scenario, and counts.

use std::time::Duration;

use crate::figures::Figures;
use crate::scenario::{Answer, Scenario};

/// How long an attempt takes that is answered, or refused.
const ANSWER_TAKES: Duration = Duration::from_millis(50);
/// How long a runtime waits for an answer.
pub const RUNTIME_TIME_OUT: Duration = Duration::from_secs(30);
/// Nobody shall be held longer than this on a registry that would serve it, the budget aside.
const HELD_TOO_LONG: Duration = Duration::from_secs(10);
/// Pulls a second that the registry's budget allows.
pub const BUDGET_PER_SECOND: u32 = 200;

/// The registry of one run.
#[derive(Debug)]
pub struct Registry {
    scenario: Scenario,
    requests: Vec<Duration>,
    failing: u64,
    served: Vec<Option<Duration>>,
    asked: Vec<Option<Duration>>,
}

impl Registry {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new(scenario: Scenario, nodes: usize) -> Self {
        Self { scenario, requests: Vec::new(), failing: 0, served: vec![None; nodes], asked: vec![None; nodes] }
    }

    /// A node wants the image from now on.
    pub fn wanted(&mut self, now: Duration, node: usize) {
        self.asked[node].get_or_insert(now);
    }

    /// A request: what it gets and how long that takes.
    pub fn request(&mut self, now: Duration, node: usize) -> (Answer, Duration) {
        self.requests.push(now);
        let answer = self.scenario.answer(now, node);
        if answer == Answer::Served {
            self.served[node].get_or_insert(now);
        } else {
            self.failing += 1;
        }
        (answer, if answer == Answer::Nothing { RUNTIME_TIME_OUT } else { ANSWER_TAKES })
    }

    /// Requests so far that failed.
    #[must_use]
    pub fn failing(&self) -> u64 {
        self.failing
    }

    /// The figures of the run that ended at `end`.
    #[must_use]
    pub fn figures(&self, end: Duration) -> Figures {
        let recovered = self.scenario.recovers_at();
        let last = self.served.iter().flatten().max();
        Figures {
            requests: self.requests.len() as u64,
            failing_requests: self.failing,
            peak_per_second: peak_per_second(&self.requests),
            served: self.served.iter().flatten().count() as u64,
            last_served_after_recovery_s: recovered.zip(last).map(|(recovered, last)| round(last.saturating_sub(recovered))),
            refused_on_healthy_nodes: (0..self.served.len()).filter(|node| self.held_too_long(*node, end)).count() as u64,
        }
    }

    /// Whether a node that is well had to wait longer for a registry that would have served it than can be explained.
    fn held_too_long(&self, node: usize, end: Duration) -> bool {
        let servable_from = match self.scenario {
            Scenario::BadTag => return false,
            scenario => scenario.recovers_at().unwrap_or_default(),
        };
        let Some(asked) = self.asked[node].filter(|_| !self.scenario.is_sick(node)) else { return false };
        let budget = Duration::from_secs_f64(self.served.len() as f64 / f64::from(BUDGET_PER_SECOND));
        self.served[node].unwrap_or(end).saturating_sub(asked.max(servable_from)) > HELD_TOO_LONG + budget
    }
}

/// The most requests in any sliding second. They come in the order of time.
fn peak_per_second(requests: &[Duration]) -> u64 {
    let mut first = 0;
    let mut peak = 0;
    for (index, at) in requests.iter().enumerate() {
        while requests[first] + Duration::from_secs(1) <= *at {
            first += 1;
        }
        peak = peak.max(index - first + 1);
    }
    peak as u64
}

/// Seconds to a thousandth.
fn round(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_of_any_second_not_of_the_clock_s() {
        let at: Vec<Duration> = [0, 900, 950, 1_050, 1_899, 3_000].map(Duration::from_millis).to_vec();
        assert_eq!(peak_per_second(&at), 4);
        assert_eq!(peak_per_second(&[]), 0);
        let edge: Vec<Duration> = [0, 1_000].map(Duration::from_millis).to_vec();
        assert_eq!(peak_per_second(&edge), 1, "a second later is another second");
    }

    #[test]
    fn a_sick_node_s_own_wait_is_its_own() {
        let mut registry = Registry::new(Scenario::SickNode, 6);
        for node in [0, 5] {
            registry.wanted(Duration::ZERO, node);
        }
        assert_eq!(registry.request(Duration::ZERO, 0).0, Answer::Refused);
        assert_eq!(registry.figures(Duration::from_secs(60)).refused_on_healthy_nodes, 1);
        assert_eq!(registry.request(Duration::from_secs(9), 5).0, Answer::Served);
        let figures = registry.figures(Duration::from_secs(60));
        assert_eq!((figures.refused_on_healthy_nodes, figures.served, figures.failing_requests), (0, 1, 1));
    }
}
