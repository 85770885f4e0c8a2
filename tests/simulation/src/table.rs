//! A storm as text: both sides, and the bar where there is one.

use std::fmt::Write as _;

use simulation::figures::Figures;
use simulation::registry::BUDGET_PER_SECOND;
use simulation::scenario::Scenario;
use simulation::storm::Storm;

/// What a figure must not exceed.
struct Bar {
    figure: Figure,
    at_most: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Figure {
    Failing,
    Peak,
    LastServed,
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
    let bars = bars(storm.scenario, storm.nodes);
    let mut row = |name: &str, of: &dyn Fn(&Figures) -> Option<f64>, figure: Option<Figure>| {
        let value = of(&storm.fleetpull);
        let bar = bars.iter().find(|bar| Some(bar.figure) == figure).map(|bar| judge(value, bar.at_most)).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name:<30} {:>10} {:>10}  {bar}", shown(of(&storm.kubelet)), shown(value));
    };
    row("requests", &|side| Some(side.requests as f64), None);
    row("failing requests", &|side| Some(side.failing_requests as f64), Some(Figure::Failing));
    row("most requests in a second", &|side| Some(side.peak_per_second as f64), Some(Figure::Peak));
    row("nodes served", &|side| Some(side.served as f64), None);
    row("last served after recovery, s", &|side| side.last_served_after_recovery_s, Some(Figure::LastServed));
    row("healthy nodes held over 10 s", &|side| Some(side.refused_on_healthy_nodes as f64), Some(Figure::Refused));
    text
}

/// The bars of 1,000 nodes; what a release inside the budget takes grows with the fleet.
fn bars(scenario: Scenario, nodes: usize) -> Vec<Bar> {
    let bar = |figure, at_most| Bar { figure, at_most };
    let release = nodes as f64 / f64::from(BUDGET_PER_SECOND);
    let budget = bar(Figure::Peak, f64::from(BUDGET_PER_SECOND));
    match scenario {
        Scenario::BadTag => vec![bar(Figure::Failing, 40.0), budget],
        Scenario::LateTag => vec![bar(Figure::LastServed, 70.0 + release), budget],
        Scenario::Down | Scenario::BlackHole => vec![bar(Figure::Failing, 100.0), bar(Figure::LastServed, 10.0 + release), budget],
        Scenario::RateLimit => vec![budget],
        Scenario::HubQuota => vec![bar(Figure::Failing, 0.0), budget],
        Scenario::RollOut => vec![bar(Figure::Failing, 0.0), bar(Figure::Refused, 0.0), budget],
        Scenario::SickNode => vec![bar(Figure::Refused, 0.0), budget],
    }
}

fn judge(value: Option<f64>, at_most: f64) -> String {
    let met = value.is_some_and(|value| value <= at_most);
    format!("at most {at_most}: {}", if met { "met" } else { "NOT MET" })
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| ((value * 10.0).round() / 10.0).to_string())
}
