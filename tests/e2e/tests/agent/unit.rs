//! The agent under the restrictions of deploy/systemd/fleetpull.service.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use e2e::{Registry, Signal, Started, Workplace, until};
use memory_registry::MadeImage;
use support::requirement::met;

/// Whether this program succeeds on this host.
fn does(program: &str, arguments: &[&str]) -> Result<(), String> {
    match Command::new(program).args(arguments).output() {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(format!("{program} fails here: {}", String::from_utf8_lossy(&done.stderr).trim())),
        Err(error) => Err(format!("{program} cannot be run: {error}; cargo xtask tools gets it")),
    }
}

/// The system calls of one of systemd's groups and of the groups in it, or the one call of this name.
fn calls_of(group: &str) -> BTreeSet<String> {
    if !group.starts_with('@') {
        return [group.to_owned()].into();
    }
    let listed = Command::new("systemd-analyze").args(["--no-pager", "syscall-filter", group]).output().unwrap();
    assert!(listed.status.success(), "{group}: {}", String::from_utf8_lossy(&listed.stderr));
    let text = String::from_utf8(listed.stdout).unwrap();
    let lines = text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.flat_map(calls_of).collect()
}

/// The system calls that the unit permits.
fn permitted() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd/fleetpull.service");
    let unit = std::fs::read_to_string(path).unwrap();
    let mut permitted = BTreeSet::new();
    for filter in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (denied, groups) = filter.strip_prefix('~').map_or((false, filter), |groups| (true, groups));
        for call in groups.split(' ').flat_map(calls_of) {
            if denied {
                permitted.remove(&call)
            } else {
                permitted.insert(call)
            };
        }
    }
    permitted
}

/// The system calls in a trace. Each line of the trace begins with the number of a thread.
fn made(trace: &str) -> BTreeSet<String> {
    let name = |line: &str| line.split_once(' ')?.1.trim_start().split_once('(').map(|(name, _)| name.to_owned());
    let is_call =
        |name: &String| !name.is_empty() && name.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || one == '_');
    trace.lines().filter_map(name).filter(is_call).collect()
}

#[test]
fn an_agent_makes_no_system_call_that_its_unit_forbids() {
    if met(does("strace", &["-qq", "-o", "/dev/null", "true"]).and_then(|()| does("systemd-analyze", &["--version"]))).is_none() {
        return;
    }
    let (place, registry) = (Workplace::new(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([400_000, 20_000]));
    let trace = place.path("trace");
    let agent = place.command(&["run", "--node", "n1", "--store", "store", "--nats", "nats://127.0.0.1:1"]);
    let mut traced = Command::new("strace");
    // The tracer is the agent's child, not its parent: signals reach the agent.
    traced.args(["-D", "-f", "-qq", "-s", "0", "-o"]).arg(&trace).arg(agent.get_program()).args(agent.get_args());
    traced.current_dir(place.path("")).env_clear().envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let agent = Started::of(traced);
    let socket = format!("unix://{}", place.text_path("store/state/n1/agent.sock"));
    until("the agent pulls", || {
        let pulled = place.run(&["pull", &registry.image("shop/web:v1"), "--agent", &socket]);
        (pulled.status == 0).then_some(())
    });
    agent.signal(Signal::Terminate);
    assert_eq!(agent.wait().0, 0);
    let made = made(&std::fs::read_to_string(trace).unwrap());
    for usual in ["connect", "fsync", "openat", "listen"] {
        assert!(made.contains(usual), "{usual} is traced: {made:?}");
    }
    let permitted = permitted();
    let forbidden: Vec<&String> = made.difference(&permitted).collect();
    assert!(forbidden.is_empty(), "the unit forbids {forbidden:?}");
}
