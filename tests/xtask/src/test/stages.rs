//! Decides which executable runs when.
//!
//! Outages run first: agents wait there for minutes, several outages run at once, and their results are measured in seconds. Then the other
//! tests of the program and the tests of single crates run at the same time. Simulations take throughout what processor time the others
//! leave, and never a core that an agent needs: not even at the lowest priority of ordinary programs do they run beside outages, because
//! agents without a core send more requests than the bars allow.

use super::executables::{Executable, Priority};
use super::lanes::Job;

/// The target of simulated fleets of real actors. It takes longest, so it runs first among the simulations.
const FLEETS: &str = "fleet";
/// The modules of the crate `e2e` that mostly wait: fleets of agents with a registry that fails for a minute.
const WAITING: [&str; 4] = ["outage::", "cluster::", "behind_cri::", "transcripts::"];
/// Tests of these modules that are quick, and measure seconds. They run alone.
const QUICK: [&str; 2] = ["outage::observe", "outage::overload::an_overloaded"];
/// Modules that keep both cores busy: one writes a million keys, one kills and starts agents. They run last, one after the other.
const BUSY: [&str; 2] = ["nonsense::flood", "chaos::"];
/// How many tests of the waiting modules run at once: each runs up to 20 fleets of its own at the same time.
const WAITING_AT_ONCE: &str = "6";
/// How many tests of single crates run at once: they wait for servers and for time as often as for a core.
const AT_ONCE: &str = "4";
/// How many tests of the program run at once: they mostly wait for agents.
const OF_PROGRAM_AT_ONCE: &str = "8";

/// When the jobs run.
pub(super) struct Stages {
    /// Jobs that run one after the other, beside nothing but `throughout`.
    pub(super) first: Vec<Job>,
    /// Lanes that run at the same time after that. The last has the tests of single crates.
    pub(super) then: Vec<Vec<Job>>,
    /// Jobs that run from the beginning to the end.
    pub(super) throughout: Vec<Job>,
}

/// Every executable is in exactly one stage, except that the waiting modules of `e2e` run separately. Some simulated fleets come from the
/// hash `tree`.
pub(super) fn stages(executables: &[Executable], tree: &str) -> Stages {
    let (mut unit, mut crates, mut program) = (Vec::new(), Vec::new(), Vec::new());
    let (mut waiting, mut simulated) = (Vec::new(), Vec::new());
    for executable in executables {
        match (executable.package.as_str(), executable.kind.as_str()) {
            ("simulation", "test") => simulated.push(simulation(executable, tree)),
            ("e2e", "test") => {
                let mut outages = executable.command(Priority::Usual);
                outages.args(WAITING).args(QUICK.iter().flat_map(|quick| ["--skip", quick])).args(["--test-threads", WAITING_AT_ONCE]);
                waiting.push(Job::new("outages", outages));
                let mut rest = executable.command(Priority::Usual);
                rest.args(WAITING.iter().chain(&BUSY).flat_map(|module| ["--skip", module])).args(["--test-threads", OF_PROGRAM_AT_ONCE]);
                program.push(Job::new("program", rest));
                let alone = |stage: &str, module: &str| {
                    let mut job = executable.command(Priority::Usual);
                    job.args([module, "--test-threads", "1"]);
                    Job::new(stage, job)
                };
                waiting.extend(QUICK.map(|module| alone("outages", module)));
                program.extend(BUSY.map(|module| alone("program", module)));
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
    Stages { first: waiting, then: vec![program, unit.into_iter().chain(crates).collect()], throughout: simulated }
}

/// The job of simulated fleets and storms, which print how often each kind of fault acted. It runs a part of the fleets: some fixed seeds,
/// in which each planted bug must be found, more seeds that come from the sources, and one large fleet. `cargo xtask e2e fleets` runs all.
fn simulation(executable: &Executable, tree: &str) -> Job {
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
    fn every_executable_runs_once_and_what_one_stage_leaves_out_another_runs() {
        let executables = [
            made_up("bus", "lib", "bus"),
            made_up("bus", "test", "all"),
            made_up("e2e", "test", "all"),
            made_up("simulation", "lib", "simulation"),
            made_up("simulation", "test", "storm"),
            made_up("simulation", "test", "fleet"),
            made_up("new-crate", "test", "new-target"),
        ];
        let Stages { first, then, throughout } = stages(&executables, "0123456789abcdef");
        let planned = [first].into_iter().chain(then).chain([throughout]).map(|lane| {
            lane.into_iter().map(|job| format!("{}: {}", job.stage, shown(&job.command).replace("/w/target/debug/deps/", ""))).collect()
        });
        let planned: Vec<Vec<String>> = planned.collect();
        let skips = "--skip outage:: --skip cluster:: --skip behind_cri:: --skip transcripts:: --skip nonsense::flood --skip chaos:: --test-threads 8";
        assert_eq!(
            planned,
            [
                vec![
                    "outages: all-0 outage:: cluster:: behind_cri:: transcripts:: --skip outage::observe --skip outage::overload::an_overloaded --test-threads 6".to_owned(),
                    "outages: all-0 outage::observe --test-threads 1".to_owned(),
                    "outages: all-0 outage::overload::an_overloaded --test-threads 1".to_owned(),
                ],
                vec![
                    format!("program: all-0 {skips}"),
                    "program: all-0 nonsense::flood --test-threads 1".to_owned(),
                    "program: all-0 chaos:: --test-threads 1".to_owned(),
                ],
                vec![
                    "unit: nice -n 19 bus-0".to_owned(),
                    "unit: nice -n 19 simulation-0".to_owned(),
                    "crates: nice -n 19 all-0 --test-threads 4".to_owned(),
                    "crates: nice -n 19 new-target-0 --test-threads 4".to_owned(),
                ],
                vec!["fleet: chrt --idle 0 fleet-0 --nocapture".to_owned(), "storm: chrt --idle 0 storm-0 --nocapture".to_owned()],
            ]
        );
    }
}
