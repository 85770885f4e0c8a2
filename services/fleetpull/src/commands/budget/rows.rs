//! Budgets as a table.

use contract::messages::throttler::{BudgetList, BudgetState, RegistryLimit};
use contract::{BudgetOwner, NodeName, registry_of_budget};

use super::Budget;
use crate::commands::holds::tightest;
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::units;

/// The columns of a list of budgets.
pub(super) static COLUMNS: [Column; 18] = [
    Column::name("REGISTRY", 12),
    Column::new("LOGIN"),
    Column::new("RATE"),
    Column::new("CAP"),
    Column::new("QUOTA"),
    Column::new("LEFT"),
    Column::new("RESETS"),
    Column::name("LEADER", 6),
    Column::new("WAITING"),
    Column::wide("NEXT"),
    Column::wide("OUT"),
    Column::wide("AT ONCE"),
    Column::wide("CAPS BY"),
    Column::wide("WHY"),
    Column::wide("EGRESS"),
    Column::wide("ROUTE"),
    Column::wide("HOST"),
    Column::wide("NODES"),
];

/// Says how many budgets the list of a node leaves out. None if it has all.
pub(in crate::commands) fn left_out(node: &NodeName, list: &BudgetList) -> Option<String> {
    (list.left_out > 0).then(|| format!("{node}: {} more budgets, which one answer does not take", list.left_out))
}

/// Budgets in rows.
pub(in crate::commands) fn table(budgets: &[&Budget]) -> Table {
    let mut table = Table::new(&COLUMNS);
    budgets.iter().for_each(|budget| table.add(&budget.state.owner, cells(budget)));
    table
}

fn cells(budget: &Budget) -> Vec<Cell> {
    let state = &budget.state;
    let owner = BudgetOwner::read(&state.owner);
    let of_owner = |part: fn(&BudgetOwner) -> String| Cell::from(owner.as_ref().map(part).unwrap_or_default());
    let limit = tightest(&state.known.limits);
    let leader = state.leader.as_ref().map(|leader| if state.learns { format!("{leader} (new)") } else { leader.to_string() });
    let next = state.waiting.first().map(|first| format!("{} {}", first.node, units::due(Some(first.wait_ms))));
    vec![
        Cell::from(registry_of_budget(&state.owner)),
        of_owner(BudgetOwner::login_in_words),
        rate(state),
        if state.per_second <= 0.0 { Cell::from("none") } else { per_second(Some(state.per_second)) },
        limit.map_or_else(Cell::nothing, quota),
        limit.map_or_else(Cell::nothing, |limit| {
            Cell::count(limit.remaining).toned(if limit.remaining == 0 { Tone::Bad } else { Tone::Plain })
        }),
        Cell::age_if(limit.and_then(|limit| limit.reset_ms)),
        Cell::from(leader.unwrap_or_default()),
        Cell::count(state.waiting_count),
        Cell::from(next.unwrap_or_default()),
        Cell::count(state.in_flight),
        if state.at_once == 0 { Cell::nothing() } else { Cell::count(state.at_once) },
        Cell::from(if state.per_second_by_policy || state.at_once_by_policy { "policy" } else { "settings" }),
        Cell::from(why_slow(state).unwrap_or_default()),
        of_owner(|owner| owner.egress.clone()),
        of_owner(|owner| owner.view.route.clone()),
        of_owner(|owner| owner.view.boot.clone()),
        Cell::count(budget.nodes as u64),
    ]
}

/// The rate in force, if the leader reports it.
fn rate(state: &BudgetState) -> Cell {
    let rate = per_second(state.leads.then_some(state.per_second_in_force).filter(|_| state.per_second > 0.0));
    if why_slow(state).is_some() { rate.toned(Tone::Warning) } else { rate }
}

/// Pulls per second. 0 means no limit.
fn per_second(rate: Option<f64>) -> Cell {
    match rate {
        None => Cell::nothing(),
        Some(rate) if rate <= 0.0 => Cell::from("0/s").sorted_by(0),
        Some(rate) => Cell::from(format!("{}/s", short(rate))).sorted_by((rate * 1_000.0) as u64),
    }
}

/// The rate with about three digits.
fn short(rate: f64) -> String {
    if rate < 10.0 && rate.fract() > 0.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// `100/6h`: the limit and its window, as far as the registry reports them.
fn quota(limit: &RegistryLimit) -> Cell {
    let text = match (limit.limit, limit.window_ms) {
        (0, _) => String::new(),
        (all, 0) => all.to_string(),
        (all, window_ms) => format!("{all}/{}", units::age(window_ms)),
    };
    Cell::from(text).sorted_by(limit.limit)
}

/// Why the rate in force is below the cap. None if it is not.
pub(super) fn why_slow(state: &BudgetState) -> Option<String> {
    let why = match state.rate_cause.as_str() {
        _ if state.per_second <= 0.0 => return None,
        "" | "policy" => return None,
        // A rate starts low, and without served pulls it stays so. Only failures of several nodes lower it, not a 429 of one.
        "starting" => "rising as pulls are served",
        "overload" => "failed pulls lowered it",
        "quota" => "its quota is used up",
        "silent_nodes" => "nodes are silent",
        other => other,
    };
    let observed = if state.observes { "; no pull waits, because nodes only observe" } else { "" };
    Some(format!("{} of {} pulls a second, {why}{observed}", short(state.per_second_in_force), short(state.per_second)))
}

#[cfg(test)]
mod tests {
    use contract::NodeName;
    use contract::messages::throttler::{BudgetWaiter, KnownLimits};

    use super::*;
    use crate::output::table::Look;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    fn budget(state: BudgetState) -> Budget {
        Budget { state, reported_by: node("n2"), nodes: 3, alone: Vec::new(), caps: Vec::new() }
    }

    fn led() -> BudgetState {
        let limits = vec![
            RegistryLimit { limit: 5_000, remaining: 4_999, window_ms: 60_000, ..RegistryLimit::default() },
            RegistryLimit { limit: 100, remaining: 31, window_ms: 21_600_000, reset_ms: Some(8_040_000), source: None },
        ];
        BudgetState {
            owner: "default|registry.example|0123456789ab||00112233445566|eu-1".to_owned(),
            leader: Some(node("n2.rack-7.example")),
            leads: true,
            per_second: 200.0,
            per_second_in_force: 37.4,
            rate_cause: "overload".to_owned(),
            at_once: 20,
            at_once_by_policy: true,
            in_flight: 3,
            waiting: vec![BudgetWaiter { node: node("n3"), wait_ms: 1_500 }],
            waiting_count: 4,
            known: KnownLimits { limits, ..KnownLimits::default() },
            ..BudgetState::default()
        }
    }

    #[test]
    fn budgets_have_a_row_each_that_fits_80_columns() {
        let other = BudgetState { owner: "hub".to_owned(), learns: true, leader: Some(node("n1")), ..BudgetState::default() };
        let (led, other) = (budget(led()), budget(other));
        let table = table(&[&led, &other]);
        assert_eq!(
            table.lines(&Look::of_width(Some(79))),
            [
                "REGISTRY      LOGIN     RATE  CAP    QUOTA   LEFT  RESETS  LEADER       WAITING",
                "regi...ample  00112233  37/s  200/s  100/6h  31    134m    n2.r...mple  4",
                "hub           -         -     none   -       -     -       n1 (new)     0",
            ]
        );
        let wide = table.lines(&Look { is_wide: true, ..Look::of_width(None) });
        let why = "n3 in 1s  3    20       policy    37 of 200 pulls a second, failed pulls lowered it  eu-1    0123456789ab  -     3";
        assert!(wide[1].starts_with("registry.example  00112233  37/s  ") && wide[1].ends_with(why), "{wide:#?}");
    }

    #[test]
    fn rate_below_the_cap_has_a_reason() {
        let state = |cause: &str, in_force| BudgetState { per_second_in_force: in_force, rate_cause: cause.to_owned(), ..led() };
        for (cause, in_force, text) in [
            ("policy", 200.0, None),
            ("", 200.0, None),
            ("starting", 10.0, Some("10 of 200 pulls a second, rising as pulls are served")),
            ("overload", 5.127, Some("5.1 of 200 pulls a second, failed pulls lowered it")),
            ("quota", 0.0, Some("0 of 200 pulls a second, its quota is used up")),
            ("silent_nodes", 100.0, Some("100 of 200 pulls a second, nodes are silent")),
            ("of a later version", 1.0, Some("1 of 200 pulls a second, of a later version")),
        ] {
            assert_eq!(why_slow(&state(cause, in_force)).as_deref(), text);
        }
        let observed = BudgetState { observes: true, ..state("quota", 0.0) };
        let expected = "0 of 200 pulls a second, its quota is used up; no pull waits, because nodes only observe";
        assert_eq!(why_slow(&observed).as_deref(), Some(expected));
        assert_eq!(why_slow(&BudgetState::default()), None);
    }

    #[test]
    fn extreme_figures_of_a_node_fit_one_row() {
        for figure in [f64::NAN, f64::INFINITY, f64::MIN, -0.0, 1e300] {
            let state = BudgetState { per_second: figure, per_second_in_force: figure, owner: "\u{1b}[2J|".repeat(900), ..led() };
            let lines = table(&[&budget(state)]).lines(&Look::of_width(Some(79)));
            assert!(lines.iter().all(|line| console::measure_text_width(line) <= 79 && !line.contains('\u{1b}')), "{lines:#?}");
        }
    }
}
