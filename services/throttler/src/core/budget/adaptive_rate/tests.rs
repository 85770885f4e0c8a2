//! The rate that is found with models of registries.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use clock::Random;

use super::cuts::floor;
use super::*;
use crate::core::budget::rate_limiter::RateLimiter;

const CAP: f64 = 200.0;
const LATENCY: Duration = Duration::from_millis(50);

/// Pulls that all begin at once, one per node in turn, and that are repeated after 1 s, then every 2 s.
struct Model {
    pulls: usize,
    nodes: usize,
    /// Answers in a second; none for no limit.
    does: Option<u32>,
    /// The share of its answers that fail by chance.
    fails: f64,
    takes: Duration,
}

impl Model {
    fn new(pulls: usize, nodes: usize) -> Self {
        Self { pulls, nodes, does: None, fails: 0.0, takes: LATENCY }
    }

    /// How long all pulls take, in seconds, and how many requests fail.
    fn run(&self, seed: u64) -> (f64, usize) {
        let mut random = Random::seeded(seed);
        let (mut rate, mut rate_limiter) = (AdaptiveRate::new(Duration::ZERO, CAP), RateLimiter::new(CAP));
        let mut queue: VecDeque<usize> = (0..self.pulls).collect();
        let mut due = BinaryHeap::new();
        let mut answers: VecDeque<(Duration, Duration, usize, bool)> = VecDeque::new();
        let mut attempts = vec![0_u64; self.pulls];
        let (mut failing, mut left, mut second) = (0, self.pulls, (0, 0));
        let mut now = Duration::ZERO;
        while left > 0 && now < Duration::from_secs(1_000) {
            while due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
                queue.extend(due.pop().map(|Reverse((_, pull))| pull));
            }
            while let Some((_, granted, pull, served)) = answers.pop_front_if(|(at, ..)| *at <= now) {
                let name = format!("n{}", pull % self.nodes).parse().expect("a name");
                rate.answered(now, &name, Some(granted), served);
                if served {
                    left -= 1;
                } else {
                    failing += 1;
                    attempts[pull] += 1;
                    due.push(Reverse((now + Duration::from_secs(attempts[pull].min(2)), pull)));
                }
            }
            rate.pass(now);
            rate_limiter.set(rate.in_force());
            while !queue.is_empty() && rate_limiter.take(now) {
                let Some(pull) = queue.pop_front() else { break };
                rate.granted(now);
                if second.0 != now.as_secs() {
                    second = (now.as_secs(), 0);
                }
                let room = self.does.is_none_or(|does| second.1 < does);
                second.1 += u32::from(room);
                answers.push_back((now + self.takes, now, pull, room && random.fraction() >= self.fails));
            }
            now += Duration::from_millis(5);
        }
        (now.as_secs_f64(), failing)
    }
}

#[test]
fn a_healthy_registry_is_asked_at_the_cap_within_seconds() {
    let (took, failing) = Model::new(1_000, 1_000).run(1);
    assert!(took <= 7.0 && failing == 0, "{took} s");
    let (took, _) = Model { takes: Duration::from_secs(3), ..Model::new(2_000, 2_000) }.run(1);
    assert!(took <= 3.0 + 3.0 + 3.0 + 2_000.0 / 180.0, "{took} s of answers that take 3 s");
}

#[test]
fn overloaded_registry_is_asked_at_about_the_rate_that_it_serves() {
    // Pulls, nodes, what the registry does in a second, and the most requests that may fail.
    for (pulls, nodes, does, most) in [(120, 20, 5, 30), (1_000, 1_000, 50, 250), (10_000, 10_000, 50, 2_500), (200, 3, 10, 60)] {
        let (took, failing) = Model { does: Some(does), ..Model::new(pulls, nodes) }.run(1);
        let own = pulls as f64 / f64::from(does);
        assert!(took <= own * 1.3 && failing <= most, "{does}/s, {pulls} pulls: {took:.1} s of {own} s, {failing} failing");
    }
}

#[test]
fn chance_does_not_slow_pulls_down_for_long() {
    // Pulls, nodes, the share that fails; the seconds within which half and three quarters of the runs end.
    for (pulls, nodes, fails, half, most) in
        [(120, 20, 0.8, 130.0, 180.0), (1_000, 1_000, 0.5, 65.0, 90.0), (1_000, 1_000, 0.1, 20.0, 60.0)]
    {
        let model = Model { fails, ..Model::new(pulls, nodes) };
        let mut runs: Vec<f64> = Vec::new();
        for seed in 0..20 {
            let (took, failing) = model.run(seed);
            let expected = pulls as f64 * fails / (1.0 - fails);
            assert!((failing as f64) < expected * 1.25 + 10.0, "{fails} fail, seed {seed}: {failing} failing, {expected} by chance");
            runs.push(took);
        }
        runs.sort_by(f64::total_cmp);
        assert!(runs[runs.len() / 2] <= half && runs[runs.len() * 3 / 4] <= most, "{fails} fail: {runs:?}");
    }
}

fn node(number: usize) -> NodeName {
    format!("n{number}").parse().expect("a name")
}

fn at_cap() -> AdaptiveRate {
    AdaptiveRate { rate: CAP, phase: Phase::Doubling { served: true }, ..AdaptiveRate::new(Duration::ZERO, CAP) }
}

#[test]
fn only_failures_of_several_nodes_cut_rate() {
    let now = Duration::from_secs(1);
    let mut rate = at_cap();
    for _ in 0..100 {
        rate.answered(now, &node(1), None, false);
    }
    assert_eq!(rate.in_force(), CAP, "no other node asks: the failures count for that node alone");
    rate.answered(now, &node(2), None, true);
    rate.answered(now, &node(1), None, false);
    assert_eq!(rate.in_force(), CAP);
    let mut rate = at_cap();
    let mut rates = BTreeSet::new();
    for number in 0..4 {
        rate.answered(now, &node(number), None, false);
        rates.insert(rate.in_force() as u64);
    }
    assert_eq!(rates, [50, 200].into(), "nothing was served");
    assert!(rate.is_found());
}

#[test]
fn repeated_failures_of_few_nodes_keep_the_rate_while_others_are_served() {
    let mut rate = at_cap();
    for second in 1..300 {
        let now = Duration::from_secs(second);
        for sick in 0..5 {
            rate.granted(now);
            rate.answered(now, &node(sick), Some(now), false);
        }
        rate.granted(now);
        rate.answered(now, &node(10 + second as usize), Some(now), true);
    }
    // The first failures caused cuts. The other nodes are served one pull a second, which shows no more than that rate.
    assert!(rate.in_force() >= 10.0, "{}", rate.in_force());
    assert_eq!(rate.recent.iter().filter(|recent| recent.failed).count(), 0);
}

#[test]
fn few_failing_probes_change_nothing_while_others_are_served() {
    let mut rate = at_cap();
    for number in 1..50_usize {
        let now = Duration::from_secs(4 * number as u64);
        rate.granted(now);
        let served = number % 3 == 0;
        rate.answered(now, &node(number), Some(now), served);
        assert_eq!(rate.in_force(), CAP, "after {number}");
    }
}

#[test]
fn cut_without_later_answers_is_undone() {
    let mut rate = at_cap();
    let cut_at = Duration::from_secs(1);
    for number in 0..4 {
        rate.answered(cut_at, &node(number), Some(cut_at), false);
    }
    assert!(rate.is_found());
    for second in 2..11 {
        rate.pass(Duration::from_secs(second));
        assert!(rate.is_found(), "after {second} s");
    }
    rate.pass(Duration::from_secs(12));
    assert_eq!((rate.in_force(), rate.is_found()), (start(CAP), false));
}

#[test]
fn pulls_granted_before_a_cut_do_not_count_after_it() {
    let mut rate = at_cap();
    let cut_at = Duration::from_secs(1);
    for number in 0..4 {
        rate.answered(cut_at, &node(number), Some(cut_at), false);
    }
    let before = rate.in_force();
    for number in 0..50 {
        let granted = Some(cut_at - Duration::from_millis(1));
        rate.answered(cut_at + Duration::from_secs(2), &node(number), granted, false);
    }
    assert_eq!(rate.in_force(), before);
}

#[test]
fn rate_starts_over_after_an_outage_or_idle_time() {
    let mut rate = at_cap();
    for number in 0..100 {
        rate.answered(Duration::from_millis(number * 200), &node(number as usize % 7), None, false);
    }
    assert_eq!(rate.in_force(), floor(CAP), "nothing is served: it stays at the lowest");
    rate.answered(Duration::from_secs(21), &node(1), None, true);
    assert_eq!((rate.in_force(), rate.is_found()), (start(CAP), false));
    let mut rate = at_cap();
    rate.granted(Duration::from_secs(1));
    rate.granted(Duration::from_secs(30));
    assert_eq!(rate.in_force(), CAP);
    rate.granted(Duration::from_secs(61));
    assert_eq!(rate.in_force(), start(CAP));
}

#[test]
fn small_caps_bound_everything() {
    for cap in [0.1, 0.5, 1.0, 3.0] {
        assert!(start(cap) <= cap && floor(cap) <= start(cap), "{cap}");
        let mut rate = AdaptiveRate::new(Duration::ZERO, cap);
        for number in 0..1_000 {
            let now = Duration::from_millis(number * 100);
            rate.granted(now);
            let served = number % 3 == 0;
            rate.answered(now, &node(number as usize % 5), Some(now), served);
            assert!(rate.in_force() <= cap && rate.in_force() >= floor(cap), "{cap}: {}", rate.in_force());
        }
    }
}
