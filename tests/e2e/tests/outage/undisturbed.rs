//! The registry fails, and nothing else. Four times the agents do not make more failing requests.

use e2e::Workplace;

use super::case::Case;
use super::fleet::{Outage, all_at_once};

#[test]
fn five_agents_recover_from_each_outage() {
    all_at_once(&[("5 agents", undisturbed::<5>)], &Case::ALL);
}

#[test]
fn twenty_agents_recover_from_each_outage() {
    all_at_once(&[("20 agents", undisturbed::<20>)], &Case::ALL);
}

fn undisturbed<const NODES: usize>(case: Case) {
    let place = Workplace::new();
    let outage = Outage::begin(&place, case, NODES);
    let command = outage.standing_pull();
    let healed = outage.end_outage_with_at_most(case.failing_at_most());
    outage.all_rows(command, healed);
}
