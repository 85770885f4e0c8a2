//! The registry fails, and nothing else. With four times the agents it is asked no more often.

use e2e::Workplace;
use support::nats::current_program;
use support::requirement::met;

use crate::case::Case;
use crate::fleet::Outage;

fn undisturbed(case: Case, nodes: usize) {
    if met(current_program()).is_none() {
        return;
    }
    let place = Workplace::new();
    let outage = Outage::begin(&place, case, nodes);
    let command = outage.wish();
    let healed = outage.heals_after(case.failing_at_most());
    outage.all_rows(command, healed);
}

macro_rules! cases {
    ($($name:ident: $case:ident, $nodes:literal;)*) => {
        $(#[test]
        fn $name() {
            undisturbed(Case::$case, $nodes);
        })*
    };
}

cases! {
    not_found_with_5_agents: NotFound, 5;
    not_found_with_20_agents: NotFound, 20;
    unavailable_with_5_agents: Unavailable, 5;
    unavailable_with_20_agents: Unavailable, 20;
    rate_limited_with_5_agents: RateLimited, 5;
    rate_limited_with_20_agents: RateLimited, 20;
    reset_with_5_agents: Reset, 5;
    reset_with_20_agents: Reset, 20;
    hang_with_5_agents: Hang, 5;
    hang_with_20_agents: Hang, 20;
}
