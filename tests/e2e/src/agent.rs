//! A running agent, started the way systemd starts it.

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actors::{Delivery, Sender, Wiring};
use bus::socket::SocketBus;
use clock::Random;
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope, Meta, TraceContext};

use crate::{Finished, Signal, Started, Workplace, http_get, until};
use serde_json::Value;

/// A limit that nothing here reaches on a machine under load.
const LIMIT: Duration = Duration::from_secs(60);

/// A running agent; killed when dropped.
pub struct Agent<'a> {
    place: &'a Workplace,
    process: Started,
    /// The socket on which it notifies systemd.
    notices: UnixDatagram,
    arguments: Vec<String>,
    socket: PathBuf,
}

impl<'a> Agent<'a> {
    /// Starts a node's agent with a store of its own.
    pub fn start(place: &'a Workplace, node: &str, more: &[&str]) -> Self {
        Self::start_in(place, node, &format!("store-of-{node}"), more)
    }

    /// Starts a node's agent with this store; its state is below the store.
    pub fn start_in(place: &'a Workplace, node: &str, store: &str, more: &[&str]) -> Self {
        let arguments: Vec<String> = [&["run", "--node", node, "--store", store], more].concat().into_iter().map(str::to_owned).collect();
        let socket = place.path(store).join("state").join(node).join("agent.sock");
        let (process, notices) = start(place, &arguments);
        Self { place, process, notices, arguments, socket }
    }

    /// Waits until the agent has notified systemd that it is ready.
    pub fn ready(self) -> Self {
        assert_eq!(self.notice(), "READY=1", "{}", self.process.stderr());
        self
    }

    /// The next notification to systemd.
    pub fn notice(&self) -> String {
        let mut text = [0; 256];
        let length = self.notices.recv(&mut text).unwrap_or_else(|error| panic!("it tells nothing: {error}\n{}", self.process.stderr()));
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    }

    /// The agent's socket on this machine.
    pub fn socket(&self) -> &PathBuf {
        &self.socket
    }

    /// The URL of the agent's socket.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// The agent's process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the agent's log contains this text, and returns the log.
    pub fn log_with(&self, text: &str) -> String {
        until(&format!("the log contains {text:?}: {}", self.process.stderr()), || {
            Some(self.process.stderr()).filter(|log| log.contains(text))
        })
    }

    /// The address of metrics and health, from the first line of the log.
    pub fn http(&self) -> SocketAddr {
        let log = self.log_with("the agent has started");
        let logged = log.split("metrics=\"http://").nth(1).and_then(|rest| rest.split('/').next());
        logged.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("the log names no metrics.address: {log}"))
    }

    /// The agent's metrics over HTTP, requested as by Prometheus.
    pub fn metrics(&self) -> String {
        let answer = http_get(self.http(), "/metrics", "application/openmetrics-text;version=1.0.0");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// Sends a signal to the agent.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Runs a command that uses this agent's socket.
    pub fn asked(&self, arguments: &[&str]) -> Finished {
        self.place.run(&[arguments, &["--agent", &self.url()]].concat())
    }

    /// Starts a command that uses this agent's socket, and lets it run during the test.
    pub fn asked_meanwhile(&self, arguments: &[&str]) -> Started {
        self.place.start(&[arguments, &["--agent", &self.url()]].concat())
    }

    /// Sends a command from this process through the agent's socket. A process for each of many questions to many agents would take most of
    /// the machine's time.
    pub fn ask<C: Command + Clone>(&self, body: &C) -> C::Reply {
        self.ask_within(TraceContext::root(&mut Random::from_system()), body)
    }

    /// As [`Agent::ask`] within a trace, by which a registry recognises this agent's requests.
    pub fn ask_within<C: Command + Clone>(&self, trace: TraceContext, body: &C) -> C::Reply {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = || runtime.block_on(ask_once(&self.socket, &self.arguments[2], trace, body)).ok();
        until(&format!("the agent answers: {}", self.process.stderr()), answer)
    }

    /// The agent's log so far.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// The agent's own description, read through its socket.
    pub fn described(&self) -> Value {
        self.asked(&["nodes", "-o", "json"]).expect(0).object()
    }

    /// The agent's state, read through its socket.
    pub fn state(&self) -> String {
        self.described()["state"].as_str().unwrap().to_owned()
    }

    /// Waits until `is` accepts the agent's state, and returns it.
    pub fn until_state(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        until(what, || Some(self.state()).filter(|state| is(state)))
    }

    /// One of the agent's counters.
    pub fn counter(&self, name: &str) -> u64 {
        let node = self.described()["node"].as_str().unwrap().to_owned();
        self.asked(&["nodes", &node, "--counters", "-o", "json"]).expect(0).object()["counters"][name].as_u64().unwrap()
    }

    /// Waits for the agent's end.
    pub fn end(self) -> Finished {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        Finished::of(&arguments, self.process)
    }

    /// Waits for the agent's end; returns the exit status, stdout and the log.
    pub fn wait(self) -> (i32, String, String) {
        self.process.wait()
    }

    /// Kills the agent, as a crash does, and starts it again.
    pub fn kill_and_start_again(self) -> Self {
        let Self { place, process, arguments, socket, .. } = self;
        process.signal(Signal::Kill);
        let (status, ..) = process.wait();
        assert_eq!(status, 137);
        let (process, notices) = start(place, &arguments);
        Self { place, process, notices, arguments, socket }
    }
}

/// Sends one command to the agent of this name and socket; an error if no agent is there, or if it ends before it answers.
pub async fn ask_once<C: Command + Clone>(socket: &Path, node: &str, trace: TraceContext, body: &C) -> Result<C::Reply, CallError> {
    let bus = SocketBus::connect(socket).await.map_err(|error| CallError::Bus { reason: error.to_string() })?;
    let node = node.parse().expect("an agent has a name");
    let wiring = Wiring { bus: Arc::new(bus), fleet: Fleet::default(), node, delivery: Delivery::Bus };
    let envelope = Envelope { meta: Meta::within(trace, &mut Random::from_system()), body: body.clone() };
    Sender::<C>::remote(wiring).call(envelope, LIMIT).await
}

fn start(place: &Workplace, arguments: &[String]) -> (Started, UnixDatagram) {
    let folder = tempfile::Builder::new().prefix("notices-").tempdir_in(place.path("")).unwrap().keep();
    let path = folder.join("socket");
    let notices = UnixDatagram::bind(&path).unwrap();
    notices.set_read_timeout(Some(LIMIT)).unwrap();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = place.command(&arguments);
    command.env("NOTIFY_SOCKET", path);
    (Started::of(command), notices)
}
