//! Runs lanes of jobs at the same time: the jobs of a lane one after the other, their output passed on line by line with the stage's name.
//! Phases of lanes run one after the other.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::account::Account;
use crate::command;

/// A program that runs tests.
pub(super) struct Job {
    /// The name of the stage; several jobs may have the same.
    pub(super) stage: String,
    pub(super) command: Command,
}

impl Job {
    pub(super) fn new(stage: impl Into<String>, command: Command) -> Self {
        Self { stage: stage.into(), command }
    }
}

/// A stage that has ended.
pub(super) struct Finished {
    pub(super) stage: String,
    pub(super) took: Duration,
    pub(super) account: Account,
    pub(super) succeeded: bool,
}

/// Phases that run one after the other.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) phases: Vec<Phase>,
    /// A lane that runs during all phases.
    pub(super) background: Vec<Job>,
}

/// Lanes that run at the same time.
#[derive(Default)]
pub(super) struct Phase {
    pub(super) lanes: Vec<Vec<Job>>,
    /// Any lane that has run its own jobs takes the next of these.
    pub(super) shared: VecDeque<Job>,
}

impl From<Phase> for Plan {
    fn from(phase: Phase) -> Self {
        Self { phases: vec![phase], background: Vec::new() }
    }
}

/// Runs every job, also after one has failed. Returns the stages in the order of the lanes, those of the background last. A stage's time is
/// the sum of its jobs' times.
pub(super) fn run(plan: impl Into<Plan>) -> anyhow::Result<Vec<Finished>> {
    let Plan { phases, background } = plan.into();
    let (lock, none) = (Mutex::new(()), Mutex::default());
    let jobs = std::thread::scope(|scope| {
        let background = scope.spawn(|| run_lane(background, &none, &lock));
        let mut jobs = Vec::new();
        for phase in phases {
            jobs.extend(run_phase(phase, &lock)?);
        }
        jobs.extend(joined(background)?);
        anyhow::Ok(jobs)
    })?;
    let mut finished: Vec<Finished> = Vec::new();
    for one in jobs {
        match finished.iter_mut().find(|same| same.stage == one.stage) {
            Some(same) => {
                same.took += one.took;
                same.account.add(one.account);
                same.succeeded &= one.succeeded;
            }
            None => finished.push(one),
        }
    }
    Ok(finished)
}

/// Runs the lanes of a phase at the same time.
fn run_phase(Phase { lanes, shared }: Phase, lock: &Mutex<()>) -> anyhow::Result<Vec<Finished>> {
    let shared = Mutex::new(shared);
    let done: Vec<anyhow::Result<Vec<Finished>>> = std::thread::scope(|scope| {
        let running: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(|| run_lane(lane, &shared, lock))).collect();
        running.into_iter().map(joined).collect()
    });
    Ok(done.into_iter().collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn joined(lane: ScopedJoinHandle<'_, anyhow::Result<Vec<Finished>>>) -> anyhow::Result<Vec<Finished>> {
    lane.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a lane of jobs panicked")))
}

fn run_lane(lane: Vec<Job>, shared: &Mutex<VecDeque<Job>>, lock: &Mutex<()>) -> anyhow::Result<Vec<Finished>> {
    let next_shared = || shared.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let mut finished: Vec<Finished> = Vec::new();
    for mut job in lane.into_iter().chain(std::iter::from_fn(next_shared)) {
        #[expect(clippy::disallowed_methods, reason = "how long it took, for the person who waits; nothing is decided by it")]
        let started = Instant::now();
        let (account, succeeded) = watch(&job.stage, &mut job.command, lock)?;
        finished.push(Finished { stage: job.stage, took: started.elapsed(), account, succeeded });
    }
    Ok(finished)
}

/// Runs a program, passes its output on, and counts its tests.
fn watch(stage: &str, job: &mut Command, lock: &Mutex<()>) -> anyhow::Result<(Account, bool)> {
    let shown = command::shown(job);
    pass_on(stage, format!("$ {shown}\n").as_bytes(), &mut std::io::stderr(), lock);
    let mut child = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().with_context(|| format!("cannot start {shown}"))?;
    let (stdout, stderr) = (child.stdout.take().context("stdout is piped")?, child.stderr.take().context("stderr is piped")?);
    let mut account = std::thread::scope(|scope| {
        let reader = scope.spawn(|| pass_on(stage, stderr, &mut std::io::stderr(), lock));
        let mut account = pass_on(stage, stdout, &mut std::io::stdout(), lock);
        account.left_out.extend(reader.join().map(|of_stderr| of_stderr.left_out).unwrap_or_default());
        account
    });
    account.left_out.sort();
    let status = child.wait().with_context(|| format!("{shown} cannot be waited for"))?;
    if !status.success() {
        pass_on(stage, format!("error: {shown}: {status}\n").as_bytes(), &mut std::io::stderr(), lock);
    }
    Ok((account, status.success()))
}

/// Passes lines on one at a time, each after the name of its stage.
fn pass_on(stage: &str, from: impl Read, to: &mut impl Write, lock: &Mutex<()>) -> Account {
    let mut account = Account::default();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        account.count_line(&String::from_utf8_lossy(&line));
        let whole = [stage.as_bytes(), b" | ", &line].concat();
        let _one_at_a_time = lock.lock();
        // If the reader has closed the output, the tests go on.
        let _ = to.write_all(&whole).and_then(|()| to.flush());
        line.clear();
    }
    account
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(stage: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job::new(stage, command)
    }

    /// A script that succeeds once the file is there, and fails after a minute.
    fn waits_for(path: &str) -> String {
        format!("for i in $(seq 600); do test -e {path} && break; sleep 0.1; done; test -e {path}")
    }

    #[test]
    fn output_is_passed_on_byte_for_byte() {
        let given = b"test result: ok. 1 passed; 0 failed\n\xff\xfe not UTF-8\nlast line without end";
        let mut passed_on = Vec::new();
        let account = pass_on("a", &given[..], &mut passed_on, &Mutex::new(()));
        assert_eq!(passed_on, b"a | test result: ok. 1 passed; 0 failed\na | \xff\xfe not UTF-8\na | last line without end");
        assert_eq!(account.sum(), "1 passed, 0 failed");
    }

    #[test]
    fn a_job_that_fails_fails_its_stage_and_the_next_runs_all_the_same() {
        let passes = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
        let lanes = vec![
            vec![job("unit", passes), job("unit", "exit 101"), job("unit", passes), job("e2e", passes)],
            vec![job("killed", "kill -9 $$")],
        ];
        let finished = run(Phase { lanes, ..Phase::default() }).unwrap();
        let outcomes: Vec<_> = finished.iter().map(|one| (one.stage.as_str(), one.succeeded, one.account.sum())).collect();
        let expected =
            [("unit", false, "4 passed, 0 failed"), ("e2e", true, "2 passed, 0 failed"), ("killed", false, "0 passed, 0 failed")];
        assert_eq!(outcomes, expected.map(|(stage, succeeded, sum)| (stage, succeeded, sum.to_owned())));
    }

    #[test]
    fn lanes_run_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name).display().to_string());
        // Each job waits for the other, so neither ends if they run one after the other.
        let meets = |own: &str, other: &str| format!("touch {own}; {}", waits_for(other));
        let lanes = vec![vec![job("a", &meets(&one, &two))], vec![job("b", &meets(&two, &one))]];
        assert!(run(Phase { lanes, ..Phase::default() }).unwrap().iter().all(|stage| stage.succeeded));
    }

    #[test]
    fn phases_run_one_after_the_other_while_the_background_runs() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name).display().to_string());
        let phase = |job| Phase { lanes: vec![vec![job]], ..Phase::default() };
        // The background begins before the first phase ends, and ends in the second.
        let background = vec![job("background", &format!("touch {first}; {}", waits_for(&second)))];
        let phases = vec![
            phase(job("first", &format!("{} && test ! -e {second}", waits_for(&first)))),
            phase(job("second", &format!("test -e {first} && touch {second}"))),
        ];
        let finished = run(Plan { phases, background }).unwrap();
        let outcomes: Vec<_> = finished.iter().map(|one| (one.stage.as_str(), one.succeeded)).collect();
        assert_eq!(outcomes, [("first", true), ("second", true), ("background", true)]);
    }

    #[test]
    fn a_lane_without_own_jobs_runs_the_shared_ones_while_another_is_busy() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.path().join(name).display().to_string());
        // The busy lane waits for both shared jobs, so it does not end if they run after it.
        let busy = vec![job("busy", &waits_for(&one)), job("busy", &waits_for(&two))];
        let shared =
            [&one, &two].map(|path| job("shared", &format!("touch {path}; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'")));
        let finished = run(Phase { lanes: vec![busy, vec![]], shared: shared.into() }).unwrap();
        let outcomes: Vec<_> = finished.iter().map(|one| (one.stage.as_str(), one.succeeded, one.account.sum())).collect();
        let expected = [("busy", true, "0 passed, 0 failed"), ("shared", true, "2 passed, 0 failed")];
        assert_eq!(outcomes, expected.map(|(stage, succeeded, sum)| (stage, succeeded, sum.to_owned())));
    }

    #[test]
    fn program_that_cannot_be_started_is_an_error() {
        let lanes = vec![vec![Job::new("none", Command::new("/nonexistent/program"))]];
        assert!(run(Phase { lanes, ..Phase::default() }).is_err());
    }
}
