//! A storm as a text table: both sides, and the bars.

use std::fmt::Write as _;

use simulation::figures::Figures;
use simulation::registry::BUDGET_PER_SECOND;
use simulation::scenario::Scenario;
use simulation::storm::Storm;

/// Added to bars that depend on the budget: the budget starts at a twentieth of its cap, so even a few short pulls take this long.
const BEGINS_WITHIN: f64 = 5.0;

/// The upper bound of a figure.
struct Bar {
    figure: Figure,
    at_most: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Figure {
    Failing,
    Peak,
    LastServed,
    LastServedAtAll,
    Refused,
}

/// One scenario as a table.
pub(crate) fn of(storm: &Storm) -> String {
    let mut text = format!(
        "{} (simulated): {} nodes, {} min, seed {}\n  {:<30} {:>10} {:>10}  bar\n",
        storm.scenario.name(),
        storm.nodes,
        storm.minutes,
        storm.seed,
        "",
        "kubelet",
        "fleetpull"
    );
    let bars = bars(storm);
    let mut row = |name: &str, of: &dyn Fn(&Figures) -> Option<f64>, figure: Option<Figure>| {
        let value = of(&storm.fleetpull);
        let bar = bars.iter().find(|bar| Some(bar.figure) == figure).map(|bar| judge(value, bar.at_most)).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<30} {:>10} {:>10}  {bar}", shown(of(&storm.kubelet)), shown(value));
    };
    row("requests", &|side| Some(side.requests as f64), None);
    row("failing requests", &|side| Some(side.failing_requests as f64), Some(Figure::Failing));
    row("most pulls begun in a second", &|side| Some(side.peak_per_second as f64), Some(Figure::Peak));
    row("nodes served", &|side| Some(side.served as f64), None);
    row("last served, s", &|side| side.last_served_s, Some(Figure::LastServedAtAll));
    row("last served after recovery, s", &|side| side.last_served_after_recovery_s, Some(Figure::LastServed));
    if storm.scenario == Scenario::Brownout {
        row("longest without an attempt, s", &|side| Some(side.longest_pause_s), None);
    }
    row("healthy nodes held over 10 s", &|side| Some(side.refused_on_healthy_nodes as f64), Some(Figure::Refused));
    text
}

/// Whether a figure of Fleetpull is above its bar.
pub(crate) fn misses_a_bar(storm: &Storm) -> bool {
    bars(storm).iter().any(|bar| !is_met(bar.figure.of(&storm.fleetpull), bar.at_most))
}

impl Figure {
    fn of(self, side: &Figures) -> Option<f64> {
        match self {
            Self::Failing => Some(side.failing_requests as f64),
            Self::Peak => Some(side.peak_per_second as f64),
            Self::LastServed => side.last_served_after_recovery_s,
            Self::LastServedAtAll => side.last_served_s,
            Self::Refused => Some(side.refused_on_healthy_nodes as f64),
        }
    }
}

/// The bars of 1,000 nodes. The time of a release within the budget grows with the fleet; it has a bar only if the storm lasts long enough.
fn bars(storm: &Storm) -> Vec<Bar> {
    let release = storm.nodes as f64 / f64::from(BUDGET_PER_SECOND);
    let mut bars = bars_of(storm.scenario, storm.nodes as f64, release);
    let recovers = storm.scenario.recovers_at().map(|at| at.as_secs_f64()).unwrap_or_default();
    let ends = (storm.minutes * 60) as f64;
    bars.retain(|bar| bar.figure != Figure::LastServed || recovers + bar.at_most <= ends);
    bars.push(Bar { figure: Figure::Peak, at_most: f64::from(BUDGET_PER_SECOND) });
    bars
}

fn bars_of(scenario: Scenario, nodes: f64, release: f64) -> Vec<Bar> {
    let bar = |figure, at_most| Bar { figure, at_most };
    match scenario {
        Scenario::BadTag => vec![bar(Figure::Failing, 40.0)],
        Scenario::LateTag => vec![bar(Figure::LastServed, 70.0 + release)],
        Scenario::Down | Scenario::BlackHole | Scenario::BlobsDown | Scenario::BlobsHang | Scenario::TokensDown | Scenario::TokensHang => {
            vec![bar(Figure::Failing, 100.0), bar(Figure::LastServed, after_an_outage(release))]
        }
        Scenario::RollOutDown | Scenario::RollOutErrors | Scenario::RollOutHang => {
            vec![bar(Figure::Failing, 100.0 + scenario.fail_before_known() as f64), bar(Figure::LastServed, after_an_outage(release))]
        }
        // A probe for each Retry-After, and the requests of the first second.
        Scenario::RateLimit => vec![bar(Figure::Failing, 15.0), bar(Figure::LastServed, after_a_rate_limit(release))],
        Scenario::HubQuota => vec![bar(Figure::Failing, 0.0)],
        Scenario::RollOut => {
            // The budget uses 0.9 of its cap, and begins below it.
            let last_served = (1.5 + 1.2 * release).max(BEGINS_WITHIN);
            vec![bar(Figure::LastServedAtAll, last_served), bar(Figure::Failing, 0.0), bar(Figure::Refused, 0.0)]
        }
        Scenario::SickNode | Scenario::PartialLimit => vec![bar(Figure::Refused, 0.0)],
        // The time that the registry's capacity needs, and a third more; at most a quarter as many requests fail as are served.
        Scenario::Overload | Scenario::OverloadProxy => {
            let own = nodes / scenario.capacity().map_or(1.0, |(most, _)| f64::from(most));
            vec![bar(Figure::LastServedAtAll, (own * 1.3).max(BEGINS_WITHIN)), bar(Figure::Failing, nodes * 0.25)]
        }
        Scenario::Brownout => {
            // Every second request fails, so one for each pull on average: with four standard deviations, 1.18 for each of 1,000.
            let by_chance = nodes + 4.0 * (2.0 * nodes).sqrt();
            vec![bar(Figure::LastServedAtAll, 85.0 + release), bar(Figure::Failing, by_chance)]
        }
        Scenario::Slow => vec![bar(Figure::LastServedAtAll, 2.5 * 3.0 + release), bar(Figure::Failing, 0.0)],
    }
}

/// The longest step between two probes and its probe, and the time of the release and a fifth more: the budget uses 0.9 of its cap, and
/// begins below it.
fn after_an_outage(release: f64) -> f64 {
    8.8 + 1.2 * release
}

/// The Retry-After of 60 s and the 2 s over which budgets are spread, and the time of the release and a tenth more.
fn after_a_rate_limit(release: f64) -> f64 {
    62.0 + (1.1 * release).max(BEGINS_WITHIN)
}

fn judge(value: Option<f64>, at_most: f64) -> String {
    format!("at most {at_most}: {}", if is_met(value, at_most) { "met" } else { "NOT MET" })
}

fn is_met(value: Option<f64>, at_most: f64) -> bool {
    value.is_some_and(|value| value <= at_most)
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| ((value * 10.0).round() / 10.0).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storm(scenario: Scenario, minutes: u64) -> Storm {
        let side = Figures {
            requests: 1_100,
            failing_requests: 100,
            peak_per_second: 200,
            served: 1_000,
            last_served_s: Some(675.0),
            last_served_after_recovery_s: Some(14.7),
            longest_pause_s: 90.0,
            refused_on_healthy_nodes: 0,
        };
        Storm { scenario, nodes: 1_000, minutes, seed: 1, kubelet: side.clone(), fleetpull: side }
    }

    #[test]
    fn figure_above_its_bar_is_reported_as_missed() {
        let met = storm(Scenario::Down, 30);
        let above = |change: fn(&mut Figures)| {
            let mut storm = met.clone();
            change(&mut storm.fleetpull);
            storm
        };
        assert!(!misses_a_bar(&met) && !of(&met).contains("NOT MET"), "{}", of(&met));
        for missed in [
            above(|figures| figures.failing_requests = 101),
            above(|figures| figures.peak_per_second = 201),
            above(|figures| figures.last_served_after_recovery_s = Some(14.9)),
            above(|figures| figures.last_served_after_recovery_s = None),
        ] {
            assert!(misses_a_bar(&missed) && of(&missed).contains("NOT MET"), "{}", of(&missed));
        }
        let mut by_kubelet = met;
        by_kubelet.kubelet.failing_requests = 7_000;
        assert!(!misses_a_bar(&by_kubelet), "kubelet's side has no bar");
    }

    #[test]
    fn bars_of_1000_nodes_are_those_of_the_tests() {
        let at_most = |scenario, figure| {
            let bars = bars(&storm(scenario, 30));
            bars.into_iter().find(|bar| bar.figure == figure).map(|bar| bar.at_most)
        };
        assert_eq!(at_most(Scenario::RollOut, Figure::LastServedAtAll), Some(7.5));
        assert_eq!(at_most(Scenario::RateLimit, Figure::LastServed), Some(67.5));
        assert_eq!(at_most(Scenario::Brownout, Figure::LastServedAtAll), Some(90.0));
        assert_eq!(at_most(Scenario::Overload, Figure::LastServedAtAll), Some(26.0));
    }

    #[test]
    fn pause_of_a_standing_pull_is_printed_in_a_brownout_alone() {
        let brownout = storm(Scenario::Brownout, 30);
        assert!(of(&brownout).contains("longest without an attempt, s"), "{}", of(&brownout));
        assert!(!of(&storm(Scenario::Down, 30)).contains("longest without an attempt"));
    }

    #[test]
    fn figure_of_a_time_after_the_end_is_not_judged() {
        let mut short = storm(Scenario::Down, 11);
        short.fleetpull.last_served_after_recovery_s = None;
        assert!(!misses_a_bar(&short) && !of(&short).contains("NOT MET"), "{}", of(&short));
    }
}
