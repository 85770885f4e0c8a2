//! The simulated registry: it answers by the scenario and records all requests.

use std::time::Duration;

use clock::Random;
use contract::Stage;
use contract::messages::throttler::RegistryLimit;

use crate::figures::{Figures, peak_per_second, round};
use crate::scenario::{Answer, Quota, Scenario};

/// Makes the seed of the registry's random generator differ from the seeds of other parts.
const SEED_OFFSET: u64 = 0x5bd1_e995;
/// The longest that a node may wait for a registry that would serve it, without the time that the budget needs.
const HELD_TOO_LONG: Duration = Duration::from_secs(10);
/// The additional time until the budget's rate is at its cap, because the rate starts low after an outage. Equal to the one in the bar of
/// `roll-out`.
const RATE_COMES_BACK_WITHIN: Duration = Duration::from_secs(2);
/// The pulls per second that the registry's budget allows.
pub const BUDGET_PER_SECOND: u32 = 200;

/// The registry of one run.
#[derive(Debug)]
pub struct Registry {
    scenario: Scenario,
    /// How long a client waits for an answer.
    time_out: Duration,
    /// When the trouble begins.
    breaks_at: Duration,
    requests: Vec<Request>,
    counted: Option<Window>,
    /// The present second, and the number of answers in it.
    second: (u64, u32),
    random: Random,
    served: Vec<Option<Duration>>,
    asked: Vec<Option<Duration>>,
}

/// A recorded request, for figures and plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When the request arrived.
    pub at: Duration,
    /// The number of the node that made it.
    pub node: usize,
    /// Whether it is the first request of a pull.
    pub begins: bool,
    /// Whether it was answered with a status of 400 or above, refused, or not answered.
    pub failing: bool,
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The answer.
    pub answer: Answer,
    /// How long the answer takes.
    pub takes: Duration,
    /// The limits in the headers.
    pub limits: Vec<RegistryLimit>,
}

/// The present window of a quota.
#[derive(Clone, Copy, Debug)]
struct Window {
    begun: Duration,
    used: u64,
}

impl Registry {
    /// A registry without requests so far.
    #[must_use]
    pub fn new(scenario: Scenario, nodes: usize, time_out: Duration, seed: u64) -> Self {
        Self {
            scenario,
            time_out,
            breaks_at: scenario.breaks_at(),
            requests: Vec::new(),
            counted: None,
            second: (0, 0),
            random: Random::seeded(seed.wrapping_add(SEED_OFFSET)),
            served: vec![None; nodes],
            asked: vec![None; nodes],
        }
    }

    /// Makes the trouble begin at this time.
    #[must_use]
    pub fn that_breaks_at(self, breaks_at: Duration) -> Self {
        Self { breaks_at, ..self }
    }

    /// Records that a node wants its image from now on.
    pub fn wanted(&mut self, now: Duration, node: usize) {
        self.asked[node].get_or_insert(now);
    }

    /// Replies to a node's request to a stage. A node that the last stage has served has its image.
    pub fn request(&mut self, now: Duration, node: usize, stage: Stage) -> Reply {
        let (answer, limits) = match self.scenario.quota() {
            Some(quota) => self.count(now, quota),
            None => (self.answer(now, node, stage), Vec::new()),
        };
        let stages = self.scenario.stages();
        self.requests.push(Request { at: now, node, begins: stages.first() == Some(&stage), failing: answer != Answer::Served });
        if answer == Answer::Served && stages.last() == Some(&stage) {
            self.served[node].get_or_insert(now);
        }
        Reply { takes: if answer == Answer::Nothing { self.time_out } else { self.scenario.answer_takes() }, answer, limits }
    }

    /// The scenario's answer, limited by the capacity of the registry.
    fn answer(&mut self, now: Duration, node: usize, stage: Stage) -> Answer {
        let answer = if now < self.breaks_at { Answer::Served } else { self.scenario.answer(now, node, stage) };
        if answer != Answer::Served {
            return answer;
        }
        if let Some((most, beyond)) = self.scenario.capacity() {
            if self.second.0 != now.as_secs() {
                self.second = (now.as_secs(), 0);
            }
            if self.second.1 >= most {
                return beyond;
            }
            self.second.1 += 1;
        }
        let fails = self.random.fraction() < self.scenario.fails_by_chance(now);
        if fails { Answer::Overloaded } else { Answer::Served }
    }

    /// Counts a pull on the quota. A refused pull is not counted; both answers report how many pulls are left, but not until when.
    fn count(&mut self, now: Duration, quota: Quota) -> (Answer, Vec<RegistryLimit>) {
        let window = self.counted.filter(|window| now < window.begun + quota.window).unwrap_or(Window { begun: now, used: 0 });
        let answer = if window.used < quota.pulls { Answer::Served } else { Answer::RateLimited { retry_after: None } };
        let used = (window.used + 1).min(quota.pulls);
        self.counted = Some(Window { used, ..window });
        let window_ms = u64::try_from(quota.window.as_millis()).unwrap_or(u64::MAX);
        let limit = RegistryLimit { limit: quota.pulls, remaining: quota.pulls - used, window_ms, ..RegistryLimit::default() };
        (answer, vec![limit])
    }

    /// All requests, in order of time.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The number of failed requests so far.
    #[must_use]
    pub fn failing(&self) -> u64 {
        self.requests.iter().filter(|request| request.failing).count() as u64
    }

    /// When the last node was served.
    #[must_use]
    pub fn last_served(&self) -> Option<Duration> {
        self.served.iter().flatten().max().copied()
    }

    fn last_well_served(&self) -> Option<Duration> {
        let well = self.served.iter().enumerate().filter(|(node, _)| !self.scenario.is_sick(*node) && !self.scenario.is_limited(*node));
        well.filter_map(|(_, served)| *served).max()
    }

    /// The longest wait of a healthy node for its image; none if one of them never got it.
    #[must_use]
    pub fn longest_wait(&self) -> Option<Duration> {
        let well = (0..self.served.len()).filter(|node| !self.scenario.is_sick(*node) && self.asked[*node].is_some());
        well.map(|node| Some(self.served[node]?.saturating_sub(self.asked[node]?))).max_by_key(|wait| wait.unwrap_or(Duration::MAX))?
    }

    /// The longest time in which a node that wanted its image and did not have it made no request: from when it wanted it or from its last
    /// request until its next request, or until the end of the run. A wait for clearance or for the budget counts.
    #[must_use]
    pub fn longest_pause(&self, end: Duration) -> Duration {
        let mut since = self.asked.clone();
        let mut longest = Duration::ZERO;
        for request in &self.requests {
            let before = since[request.node].replace(request.at).unwrap_or(request.at);
            if self.served[request.node].is_none_or(|served| request.at <= served) {
                longest = longest.max(request.at.saturating_sub(before));
            }
        }
        let waiting = since.iter().zip(&self.served).filter(|(_, served)| served.is_none());
        waiting.filter_map(|(since, _)| *since).map(|since| end.saturating_sub(since)).fold(longest, Duration::max)
    }

    /// The figures of the run that ended at `end`.
    #[must_use]
    pub fn figures(&self, end: Duration) -> Figures {
        let recovered = self.scenario.recovers_at();
        Figures {
            requests: self.requests.len() as u64,
            failing_requests: self.failing(),
            peak_per_second: peak_per_second(&self.requests),
            served: self.served.iter().flatten().count() as u64,
            last_served_s: self.last_well_served().map(round),
            last_served_after_recovery_s: recovered.zip(self.last_served()).map(|(recovered, last)| round(last.saturating_sub(recovered))),
            longest_pause_s: round(self.longest_pause(end)),
            refused_on_healthy_nodes: (0..self.served.len()).filter(|node| self.held_too_long(*node, end)).count() as u64,
        }
    }

    /// Whether a healthy node waited longer for a registry that would have served it than the bars allow.
    fn held_too_long(&self, node: usize, end: Duration) -> bool {
        let servable_from = match self.scenario {
            Scenario::BadTag | Scenario::HubQuota | Scenario::Overload | Scenario::OverloadProxy | Scenario::Brownout => return false,
            Scenario::PartialLimit if self.scenario.is_limited(node) => return false,
            Scenario::PartialLimit => Duration::ZERO,
            scenario => scenario.recovers_at().unwrap_or_default(),
        };
        let Some(asked) = self.asked[node].filter(|_| !self.scenario.is_sick(node)) else { return false };
        let at_the_cap = Duration::from_secs_f64(self.served.len() as f64 / f64::from(BUDGET_PER_SECOND));
        // A registry that was healthy all the time has not lowered the rate.
        let budget = if servable_from > Duration::ZERO { at_the_cap + RATE_COMES_BACK_WITHIN } else { at_the_cap };
        self.served[node].unwrap_or(end).saturating_sub(asked.max(servable_from)) > HELD_TOO_LONG + budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME_OUT: Duration = Duration::from_secs(30);

    #[test]
    fn wait_of_a_sick_node_does_not_count() {
        let mut registry = Registry::new(Scenario::SickNode, 6, TIME_OUT, 1);
        for node in [0, 5] {
            registry.wanted(Duration::ZERO, node);
        }
        assert_eq!(registry.request(Duration::ZERO, 0, Stage::Manifest).answer, Answer::Refused);
        assert_eq!(registry.figures(Duration::from_secs(60)).refused_on_healthy_nodes, 1);
        assert_eq!(registry.request(Duration::from_secs(9), 5, Stage::Manifest).answer, Answer::Served);
        let figures = registry.figures(Duration::from_secs(60));
        assert_eq!((figures.refused_on_healthy_nodes, figures.served, figures.failing_requests), (0, 1, 1));
    }

    #[test]
    fn pause_lasts_until_the_next_request_and_that_of_a_node_without_its_image_until_the_end() {
        let mut registry = Registry::new(Scenario::SickNode, 6, TIME_OUT, 1);
        let [s2, s5, s9, s11, s30, s40] = [2, 5, 9, 11, 30, 40].map(Duration::from_secs);
        assert_eq!(registry.longest_pause(s40), Duration::ZERO, "no node wants anything");
        registry.wanted(s2, 0);
        registry.wanted(s2, 5);
        registry.request(s5, 5, Stage::Manifest);
        assert_eq!((registry.longest_pause(s2), registry.longest_pause(s9)), (s5 - s2, s9 - s2), "node 5 is served, node 0 still waits");
        registry.request(s9, 0, Stage::Manifest);
        registry.request(s11, 0, Stage::Manifest);
        assert_eq!(registry.longest_pause(s11), s9 - s2);
        assert_eq!((registry.longest_pause(s30), registry.longest_pause(s40)), (s30 - s11, s40 - s11), "it is never served");
    }

    #[test]
    fn each_stage_answers_by_itself_and_the_last_stage_serves_the_image() {
        let heals = Scenario::BlobsDown.recovers_at().unwrap_or_default();
        let all = |registry: &mut Registry, now| {
            Scenario::BlobsDown.stages().iter().map(|stage| registry.request(now, 0, *stage).answer).collect()
        };
        let mut registry = Registry::new(Scenario::BlobsDown, 1, TIME_OUT, 1);
        registry.wanted(Duration::ZERO, 0);
        let answers: Vec<Answer> = all(&mut registry, Duration::ZERO);
        assert_eq!((answers, registry.last_served()), (vec![Answer::Served, Answer::Served, Answer::Overloaded], None));
        let answers: Vec<Answer> = all(&mut registry, heals);
        assert_eq!((answers, registry.last_served()), (vec![Answer::Served; 3], Some(heals)));
        let figures = registry.figures(heals + TIME_OUT);
        assert_eq!((figures.requests, figures.failing_requests, figures.peak_per_second), (6, 1, 1), "two pulls, a second each");
    }

    #[test]
    fn quota_counts_served_pulls_and_starts_again_after_its_window() {
        let mut registry = Registry::new(Scenario::HubQuota, 300, TIME_OUT, 1);
        let left = |reply: &Reply| reply.limits.first().map(|limit| (limit.limit, limit.remaining, limit.window_ms));
        for node in 0..100 {
            let reply = registry.request(Duration::from_secs(1), node, Stage::Manifest);
            assert_eq!((reply.answer, left(&reply)), (Answer::Served, Some((100, 99 - node as u64, 21_600_000))));
        }
        let over = registry.request(Duration::from_secs(21_600), 100, Stage::Manifest);
        assert_eq!((over.answer, left(&over)), (Answer::RateLimited { retry_after: None }, Some((100, 0, 21_600_000))));
        assert_eq!(registry.request(Duration::from_secs(21_601), 100, Stage::Manifest).answer, Answer::Served);
        assert_eq!(registry.failing(), 1);
    }
}
