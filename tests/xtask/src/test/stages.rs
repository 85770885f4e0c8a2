//! Decides which executable runs when.
//!
//! Outages run first and alone: agents wait there for minutes, several outages run at once, and their results are measured in seconds.
//! During simulations, also at the scheduler's idle priority, a machine with two slow cores answered so late that bars were missed: its
//! two processors are one core, and each is slower while the other works.
//!
//! Then two lanes run at the same time: the other tests of the program, of which many wait, and the simulations, which need only processor
//! time, and get what the agents leave. The lane that is ready first begins with the tests of single crates, and then both run these.

use super::executables::{Executable, Priority};
use super::lanes::{Job, Phase};

/// The target of simulated fleets of real actors. It takes longest, so it runs first among the simulations.
const FLEETS: &str = "fleet";
/// The modules of the crate `e2e` that mostly wait: fleets of agents with a registry that fails for a minute.
const WAITING: [&str; 4] = ["outage::", "cluster::", "behind_cri::", "transcripts::"];
/// Tests of these modules run alone, so many at once: those of a slow bus, which is at its limits, so that a busy machine
/// decides whether an answer comes in time; those that are quick and measure seconds; and one that writes a million keys and needs both
/// cores for its agents.
const ALONE: [(&str, &str); 4] =
    [("outage::slow", "2"), ("outage::observe", "1"), ("outage::overload::an_overloaded", "1"), ("nonsense::flood", "1")];
/// A module that kills and starts agents for more than a minute, one test after the other.
const LONG: &str = "chaos::";
/// How many tests of the waiting modules run at once: each runs up to 20 fleets of its own at the same time. With six, a machine with two
/// slow cores had thirty threads that waited for a core, and nodes were served seconds after the bars.
const WAITING_AT_ONCE: &str = "4";
/// How many tests of single crates run at once: they wait for servers and for time as often as for a core.
const AT_ONCE: &str = "4";
/// How many tests of the program run at once: they mostly wait for agents.
const OF_PROGRAM_AT_ONCE: &str = "8";

/// The outages that run alone, and then all others. Every executable is in exactly one of them, except that the modules of `e2e` run
/// separately. Some simulated fleets come from the hash `tree`.
pub(super) fn phases(executables: &[Executable], tree: &str) -> [Phase; 2] {
    let (mut outages, mut program, mut simulated) = (Vec::new(), Vec::new(), Vec::new());
    let (mut unit, mut crates) = (Vec::new(), Vec::new());
    for executable in executables {
        match (executable.package.as_str(), executable.kind.as_str()) {
            ("simulation", "test") => simulated.push(background(executable, tree)),
            ("e2e", "test") => {
                let mut waiting = executable.command(Priority::Usual);
                waiting
                    .args(WAITING)
                    .args(ALONE.iter().flat_map(|(module, _)| ["--skip", module]))
                    .args(["--test-threads", WAITING_AT_ONCE]);
                outages.push(Job::new("outages", waiting));
                let mut rest = executable.command(Priority::Usual);
                let elsewhere = WAITING.into_iter().chain(ALONE.map(|(module, _)| module)).chain([LONG]);
                rest.args(elsewhere.flat_map(|module| ["--skip", module])).args(["--test-threads", OF_PROGRAM_AT_ONCE]);
                let module = |stage: &str, module: &str, at_once: &str| {
                    let mut job = executable.command(Priority::Usual);
                    job.args([module, "--test-threads", at_once]);
                    Job::new(stage, job)
                };
                outages.extend(ALONE.map(|(name, at_once)| module("outages", name, at_once)));
                program.extend([module("program", LONG, "1"), Job::new("program", rest)]);
            }
            (_, "test") => {
                let mut all = executable.command(Priority::Low);
                all.args(["--test-threads", AT_ONCE]);
                crates.push(Job::new("crates", all));
            }
            _ => unit.push(Job::new("unit", executable.command(Priority::Low))),
        }
    }
    simulated.sort_by_key(|job: &Job| job.stage != FLEETS);
    let alone = Phase { lanes: vec![outages], ..Phase::default() };
    [alone, Phase { lanes: vec![program, simulated], shared: unit.into_iter().chain(crates).collect() }]
}

/// The job of simulated fleets and storms, which print how often each kind of fault acted. It runs a part of the fleets: some fixed seeds,
/// in which each planted bug must be found, more seeds that come from the sources, and one large fleet. `cargo xtask e2e fleets` runs all.
fn background(executable: &Executable, tree: &str) -> Job {
    let mut command = executable.command(Priority::Idle);
    command.arg("--nocapture");
    if executable.target == FLEETS {
        command.env("FLEET_SEEDS", "100").env("FLEET_OF_TREE", "25").env("FLEET_LARGE", "1").env("FLEET_TREE", tree);
    } else {
        command.env("FLEET_SEEDS", "500");
    }
    // Keep the memory of one fleet for the next: returning it to the system in between costs a tenth of the time.
    command.env("MIMALLOC_PURGE_DELAY", "-1");
    let stage = if executable.target == "all" { "storm figures" } else { executable.target.as_str() };
    Job::new(stage, command)
}

#[cfg(test)]
mod tests {
    use super::super::executables::made_up;
    use super::*;
    use crate::command::shown;

    #[test]
    fn every_executable_and_skipped_module_runs_exactly_once() {
        let executables = [
            made_up("bus", "lib", "bus"),
            made_up("bus", "test", "all"),
            made_up("e2e", "test", "all"),
            made_up("simulation", "lib", "simulation"),
            made_up("simulation", "test", "storm"),
            made_up("simulation", "test", "fleet"),
            made_up("new-crate", "test", "new-target"),
        ];
        let phases = phases(&executables, "0123456789abcdef").into_iter();
        let planned = phases.flat_map(|phase| phase.lanes.into_iter().chain([phase.shared.into()])).map(|jobs| {
            jobs.into_iter().map(|job| format!("{}: {}", job.stage, shown(&job.command).replace("/w/target/debug/deps/", ""))).collect()
        });
        let planned: Vec<Vec<String>> = planned.collect();
        let skips = "--skip outage:: --skip cluster:: --skip behind_cri:: --skip transcripts:: --skip outage::slow --skip outage::observe --skip outage::overload::an_overloaded --skip nonsense::flood --skip chaos:: --test-threads 8";
        assert_eq!(
            planned,
            [
                vec![
                    "outages: all-0 outage:: cluster:: behind_cri:: transcripts:: --skip outage::slow --skip outage::observe --skip outage::overload::an_overloaded --skip nonsense::flood --test-threads 4".to_owned(),
                    "outages: all-0 outage::slow --test-threads 2".to_owned(),
                    "outages: all-0 outage::observe --test-threads 1".to_owned(),
                    "outages: all-0 outage::overload::an_overloaded --test-threads 1".to_owned(),
                    "outages: all-0 nonsense::flood --test-threads 1".to_owned(),
                ],
                vec![],
                vec![
                    "program: all-0 chaos:: --test-threads 1".to_owned(),
                    format!("program: all-0 {skips}"),
                ],
                vec!["fleet: chrt --idle 0 fleet-0 --nocapture".to_owned(), "storm: chrt --idle 0 storm-0 --nocapture".to_owned()],
                vec![
                    "unit: nice -n 19 bus-0".to_owned(),
                    "unit: nice -n 19 simulation-0".to_owned(),
                    "crates: nice -n 19 all-0 --test-threads 4".to_owned(),
                    "crates: nice -n 19 new-target-0 --test-threads 4".to_owned(),
                ],
            ]
        );
    }
}
