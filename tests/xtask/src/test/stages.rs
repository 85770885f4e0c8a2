//! Decides which executable runs when.
//!
//! Outages run first: agents wait there for minutes, several outages run at once, and their results are measured in seconds. The longest
//! have a lane of their own, so that they begin at once. Then follow the few that most other agents would disturb. Then the other tests of
//! the program run together with those of single crates.
//!
//! Simulations need only processor time and wait for nothing, so they run during all of that and get what the others leave.

use super::executables::{Executable, Priority};
use super::lanes::{Job, Phase, Plan};

/// The target of simulated fleets of real actors; the others simulate storms.
const FLEETS: &str = "fleet";
/// The target of simulated storms from seeds.
const STORMS: &str = "storm";
/// The modules of the crate `e2e` that mostly wait: fleets of agents with a registry that fails for a minute.
const WAITING: [&str; 4] = ["outage::", "cluster::", "behind_cri::", "transcripts::"];
/// The module of these whose tests take longest.
const LONGEST: &str = "outage::stages";
/// A module whose agents have a bus that is slow: it is at its limits, so that other agents decide whether an answer comes in time.
const SLOW: &str = "outage::slow";
/// Modules whose tests measure seconds. They run one after the other; only tests with a slow bus, which mostly wait, run with them.
const MEASURING: [&str; 2] = ["outage::observe", "outage::overload::an_overloaded"];
/// A module that runs alone: it writes a million keys as fast as agents and server can take them.
const FLOOD: &str = "nonsense::flood";
/// A module that kills and starts agents for about a minute.
const CHAOS: &str = "chaos::";
/// How many tests of the waiting modules run at once, and two of the longest with them: each runs up to 20 fleets of its own at the same time.
const WAITING_AT_ONCE: &str = "5";
/// How many tests of single crates run at once: they wait for servers and for time as often as for a core.
const AT_ONCE: &str = "4";
/// How many tests of the program run at once: they mostly wait for agents.
const OF_PROGRAM_AT_ONCE: &str = "8";

/// The outages, the tests that others would disturb, and all other tests; in the background simulated fleets, then storms. Every executable
/// is in exactly one phase, except that the modules of `e2e` run separately. Some simulated fleets come from the hash `tree`.
pub(super) fn plan(executables: &[Executable], tree: &str, examples: Job) -> Plan {
    let (mut outages, mut sensitive, mut flood, mut program) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut storms, mut fleets) = (Vec::new(), Vec::new());
    let (mut unit, mut crates) = (Vec::new(), Vec::new());
    for executable in executables {
        match (executable.package.as_str(), executable.kind.as_str()) {
            ("simulation", "test") if executable.target == FLEETS => fleets.push(background(executable, tree)),
            ("simulation", "test") => storms.push(background(executable, tree)),
            ("e2e", "test") => {
                let job = |stage: &str, modules: &[&str], skipped: &[&str], at_once: &str| {
                    let mut job = executable.command(Priority::Usual);
                    job.args(modules).args(skipped.iter().flat_map(|module| ["--skip", module])).args(["--test-threads", at_once]);
                    Job::new(stage, job)
                };
                let apart = [&[SLOW, FLOOD], &MEASURING[..]].concat();
                outages.push(vec![job("outages", &WAITING, &[&apart[..], &[LONGEST]].concat(), WAITING_AT_ONCE)]);
                outages.push(vec![job("longest outages", &[LONGEST], &[], "2")]);
                sensitive.push(vec![job("slow bus", &[SLOW], &[], "2")]);
                sensitive.push(vec![job("seconds", &MEASURING, &[], "1")]);
                flood.push(vec![job("flood", &[FLOOD], &[], "1")]);
                program.push(vec![job("chaos", &[CHAOS], &[], "1")]);
                program.push(vec![job("program", &[], &[&WAITING[..], &apart, &[CHAOS]].concat(), OF_PROGRAM_AT_ONCE)]);
            }
            (_, "test") => {
                let mut all = executable.command(Priority::Low);
                all.args(["--test-threads", AT_ONCE]);
                crates.push(Job::new("crates", all));
            }
            _ => unit.push(Job::new("unit", executable.command(Priority::Low))),
        }
    }
    // This lane runs the shared jobs from the beginning.
    program.push(Vec::new());
    let mut phases: Vec<Phase> = [outages, sensitive, flood].map(|lanes| Phase { lanes, ..Phase::default() }).into();
    phases.push(Phase { lanes: program, shared: crates.into_iter().chain(unit).chain([examples]).collect() });
    Plan { phases, background: fleets.into_iter().chain(storms).collect() }
}

/// The job of simulated fleets and storms, which print how often each kind of fault acted. It runs a part of the fleets: some fixed seeds,
/// in which each planted bug must be found, more seeds that come from the sources, and one large fleet. `cargo xtask e2e fleets` runs all.
fn background(executable: &Executable, tree: &str) -> Job {
    let mut command = executable.command(Priority::Idle);
    command.arg("--nocapture");
    if executable.target == FLEETS {
        command.env("FLEET_SEEDS", "80").env("FLEET_OF_TREE", "20").env("FLEET_LARGE", "1").env("FLEET_TREE", tree);
    } else if executable.target == STORMS {
        command.env("FLEET_SEEDS", "500");
    }
    // Keep the memory of one fleet for the next: returning it to the system in between costs a tenth of the time.
    command.env("MIMALLOC_PURGE_DELAY", "-1");
    let stage = if executable.target == "all" { "storm figures" } else { executable.target.as_str() };
    Job::new(stage, command)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

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
        let Plan { phases, background } = plan(&executables, "0123456789abcdef", Job::new("examples", Command::new("cargo")));
        let lanes = phases.into_iter().flat_map(|phase| phase.lanes.into_iter().chain([phase.shared.into()])).chain([background]);
        let planned = lanes.map(|jobs| {
            jobs.into_iter().map(|job| format!("{}: {}", job.stage, shown(&job.command).replace("/w/target/debug/deps/", ""))).collect()
        });
        let planned: Vec<Vec<String>> = planned.collect();
        let apart = "--skip outage::slow --skip nonsense::flood --skip outage::observe --skip outage::overload::an_overloaded";
        assert_eq!(
            planned,
            [
                vec![format!(
                    "outages: all-0 outage:: cluster:: behind_cri:: transcripts:: {apart} --skip outage::stages --test-threads 5"
                )],
                vec!["longest outages: all-0 outage::stages --test-threads 2".to_owned()],
                vec![],
                vec!["slow bus: all-0 outage::slow --test-threads 2".to_owned()],
                vec!["seconds: all-0 outage::observe outage::overload::an_overloaded --test-threads 1".to_owned()],
                vec![],
                vec!["flood: all-0 nonsense::flood --test-threads 1".to_owned()],
                vec![],
                vec!["chaos: all-0 chaos:: --test-threads 1".to_owned()],
                vec![format!(
                    "program: all-0 --skip outage:: --skip cluster:: --skip behind_cri:: --skip transcripts:: {apart} --skip chaos:: --test-threads 8"
                )],
                vec![],
                vec![
                    "crates: nice -n 5 all-0 --test-threads 4".to_owned(),
                    "crates: nice -n 5 new-target-0 --test-threads 4".to_owned(),
                    "unit: nice -n 5 bus-0".to_owned(),
                    "unit: nice -n 5 simulation-0".to_owned(),
                    "examples: cargo".to_owned(),
                ],
                vec!["fleet: chrt --idle 0 fleet-0 --nocapture".to_owned(), "storm: chrt --idle 0 storm-0 --nocapture".to_owned()],
            ]
        );
    }
}
