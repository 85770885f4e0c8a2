//! The registry fails, and in the middle of it something else goes too.

use std::time::Duration;

use e2e::{Agent, Signal, Watch, Workplace};
use support::nats::current_program;
use support::requirement::met;

use crate::case::Case;
use crate::fleet::Outage;

/// When something else goes.
const MIDDLE: Duration = Duration::from_secs(20);
const NODES: usize = 5;
/// Without the bus each node goes by kubelet's rule from its own first failure on, at 20 s: it tries at 20, 30, 50 and 90 s. The
/// registry heals at 60 s, and an attempt may have begun late.
const ALONE_WITHIN: Duration = Duration::from_secs(45);

#[test]
fn wishes_outlive_the_command_that_made_them() {
    in_all_cases(|case| {
        let place = Workplace::new();
        let outage = Outage::begin(&place, case, NODES);
        let command = outage.wish();
        outage.began.until(MIDDLE);
        command.signal(Signal::Kill);
        command.wait();
        let healed = outage.heals_after(case.failing_at_most());
        outage.all_stored(healed);
    });
}

#[test]
fn wishes_and_knowledge_outlive_all_agents_and_the_server() {
    in_all_cases(|case| {
        let place = Workplace::new();
        let mut outage = Outage::begin(&place, case, NODES);
        let command = outage.wish();
        outage.began.until(MIDDLE);
        command.signal(Signal::Kill);
        command.wait();
        outage.agents.iter().for_each(|agent| agent.signal(Signal::Kill));
        outage.server.restart();
        outage.agents = outage.agents.into_iter().map(Agent::kill_and_start_again).map(Agent::ready).collect();
        let healed = outage.heals_after(case.failing_at_most());
        outage.all_stored(healed);
    });
}

#[test]
fn without_the_bus_each_node_does_at_least_as_well_as_kubelet() {
    in_all_cases(|case| {
        let place = Workplace::new();
        let mut outage = Outage::begin(&place, case, NODES);
        let command = outage.wish();
        outage.began.until(MIDDLE);
        outage.server.kill();
        // Kubelet tries at 0, 10 and 30 s; what the fleet had asked before comes on top.
        let healed = outage.heals_after(3 * NODES as u64 + case.failing_at_most());
        outage.server.restart();
        outage.all_stored_within(ALONE_WITHIN, healed);
        drop(command);
    });
}

/// All kinds at the same time: each mostly waits.
fn in_all_cases(play: impl Fn(Case) + Sync) {
    if met(current_program()).is_none() {
        return;
    }
    let all = Watch::start();
    std::thread::scope(|scope| {
        for case in Case::ALL {
            let play = &play;
            scope.spawn(move || play(case));
        }
    });
    eprintln!("all kinds: {:?}", all.elapsed());
}
