//! The state of the container runtime, as an agent reports it.

use std::os::unix::net::UnixListener;

use e2e::Workplace;
use support::scripted_cri::{PresentImage, Script, ScriptedCri, StatusAnswer, VersionAnswer};

use e2e::Agent;

/// A scripted runtime with threads of its own; when it is dropped, all its connections end.
struct Runtime {
    cri: ScriptedCri,
    _threads: tokio::runtime::Runtime,
}

impl Runtime {
    fn start() -> Self {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let _inside = threads.enter();
        let version = VersionAnswer::Named { name: "containerd".to_owned(), version: "1.7.2".to_owned() };
        let present = StatusAnswer::Present(PresentImage { id: "sha256:here".to_owned(), ..PresentImage::default() });
        let cri = ScriptedCri::start(Script { version: vec![version], image_status: vec![present], ..Script::default() });
        Self { cri, _threads: threads }
    }
}

fn start<'a>(place: &'a Workplace, endpoint: &str) -> Agent<'a> {
    Agent::start(place, "n1", &["--runtime", "cri", "--runtime-endpoint", endpoint]).ready()
}

#[test]
fn the_runtime_is_named_and_its_loss_is_reported() {
    let (runtime, place) = (Runtime::start(), Workplace::new());
    let endpoint = runtime.cri.endpoint();
    let agent = start(&place, &endpoint);
    let log = agent.log_with("the agent has started");
    for part in ["containerd 1.7.2", &endpoint] {
        assert!(log.contains(part), "{part} in {log}");
    }
    let described = agent.described();
    assert_eq!((&described["runtime"], &described["state"]), (&"containerd 1.7.2".into(), &"ok".into()));
    drop(runtime);
    let state = agent.until_state("the loss is seen", |state| state != "ok");
    assert!(state.starts_with("degraded: runtime ") && state.contains("start the runtime"), "{state}");
    assert_eq!(agent.counter("runtime_usable"), 0);
    agent.log_with("the runtime cannot be used");
}

#[test]
fn an_agent_starts_before_its_runtime() {
    let place = Workplace::new();
    let endpoint = format!("unix://{}", place.text_path("none.sock"));
    let agent = start(&place, &endpoint);
    assert!(agent.state().contains("none.sock"), "{}", agent.state());
}

#[test]
fn a_runtime_that_hangs_keeps_nobody_from_asking_the_agent() {
    let place = Workplace::new();
    // A socket that accepts connections and never answers.
    let _silent = UnixListener::bind(place.path("silent.sock")).unwrap();
    let endpoint = format!("unix://{}", place.text_path("silent.sock"));
    let agent = start(&place, &endpoint);
    let state = agent.state();
    assert!(state.starts_with("degraded: runtime cri: "), "{state}");
    agent.log_with(&endpoint);
}
