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

/// Longer than anything here takes, on a machine under load.
const LIMIT: Duration = Duration::from_secs(60);

/// A running agent; killed when dropped.
pub struct Agent<'a> {
    place: &'a Workplace,
    process: Started,
    /// What it tells systemd.
    notices: UnixDatagram,
    arguments: Vec<String>,
    socket: PathBuf,
}

impl<'a> Agent<'a> {
    /// Starts the agent of a node with a store of the node's own.
    pub fn start(place: &'a Workplace, node: &str, more: &[&str]) -> Self {
        Self::start_in(place, node, &format!("store-of-{node}"), more)
    }

    /// Starts the agent of a node with this store, below which it keeps its state.
    pub fn start_in(place: &'a Workplace, node: &str, store: &str, more: &[&str]) -> Self {
        let arguments: Vec<String> = [&["run", "--node", node, "--store", store], more].concat().into_iter().map(str::to_owned).collect();
        let socket = place.path(store).join("state").join(node).join("agent.sock");
        let (process, notices) = start(place, &arguments);
        Self { place, process, notices, arguments, socket }
    }

    /// Waits until it has told systemd that it is ready.
    pub fn ready(self) -> Self {
        assert_eq!(self.notice(), "READY=1", "{}", self.process.stderr());
        self
    }

    /// The next that it tells systemd.
    pub fn notice(&self) -> String {
        let mut text = [0; 256];
        let length = self.notices.recv(&mut text).unwrap_or_else(|error| panic!("it tells nothing: {error}\n{}", self.process.stderr()));
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    }

    /// Its socket on this machine.
    pub fn socket(&self) -> &PathBuf {
        &self.socket
    }

    /// The URL of its socket.
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its log, as soon as that holds this.
    pub fn log_with(&self, text: &str) -> String {
        until(&format!("the log says {text:?}: {}", self.process.stderr()), || Some(self.process.stderr()).filter(|log| log.contains(text)))
    }

    /// Where it serves metrics and health, as its first line says.
    pub fn http(&self) -> SocketAddr {
        let log = self.log_with("the agent has started");
        let said = log.split("metrics=\"http://").nth(1).and_then(|rest| rest.split('/').next());
        said.and_then(|address| address.parse().ok()).unwrap_or_else(|| panic!("no metrics.address is said: {log}"))
    }

    /// Its metrics over HTTP, as Prometheus asks for them.
    pub fn metrics(&self) -> String {
        let answer = http_get(self.http(), "/metrics", "application/openmetrics-text;version=1.0.0");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Runs a command that asks this agent through its socket.
    pub fn asked(&self, arguments: &[&str]) -> Finished {
        self.place.run(&[arguments, &["--agent", &self.url()]].concat())
    }

    /// Starts a command that asks this agent through its socket, and lets it run beside the test.
    pub fn asked_meanwhile(&self, arguments: &[&str]) -> Started {
        self.place.start(&[arguments, &["--agent", &self.url()]].concat())
    }

    /// What it answers to a command through its socket, asked by this process: where many agents are asked again and again, a process
    /// for each question would be most of what the machine does.
    pub fn ask<C: Command + Clone>(&self, body: &C) -> C::Reply {
        self.ask_within(TraceContext::root(&mut Random::from_system()), body)
    }

    /// The same within a trace, by which a registry knows what this agent asks for.
    pub fn ask_within<C: Command + Clone>(&self, trace: TraceContext, body: &C) -> C::Reply {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = || runtime.block_on(ask_once(&self.socket, &self.arguments[2], trace, body)).ok();
        until(&format!("the agent answers: {}", self.process.stderr()), answer)
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// What it says of itself through its socket.
    pub fn described(&self) -> Value {
        self.asked(&["nodes", "-o", "json"]).expect(0).object()
    }

    /// Its state, as it says it through its socket.
    pub fn state(&self) -> String {
        self.described()["state"].as_str().unwrap().to_owned()
    }

    /// Waits until its state is so.
    pub fn until_state(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        until(what, || Some(self.state()).filter(|state| is(state)))
    }

    /// One of its counters.
    pub fn counter(&self, name: &str) -> u64 {
        let node = self.described()["node"].as_str().unwrap().to_owned();
        self.asked(&["nodes", &node, "--counters", "-o", "json"]).expect(0).object()["counters"][name].as_u64().unwrap()
    }

    /// Waits for its end.
    pub fn end(self) -> Finished {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        Finished::of(&arguments, self.process)
    }

    /// Waits for its end, however that comes: status, what it wrote to stdout, its log.
    pub fn wait(self) -> (i32, String, String) {
        self.process.wait()
    }

    /// Kills it, as a crash does, and starts it again.
    pub fn kill_and_start_again(self) -> Self {
        let Self { place, process, arguments, socket, .. } = self;
        process.signal(Signal::Kill);
        let (status, ..) = process.wait();
        assert_eq!(status, 137);
        let (process, notices) = start(place, &arguments);
        Self { place, process, notices, arguments, socket }
    }
}

/// What the agent with this name and socket answers, asked once: an error where it is not there, or ends before it has answered.
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
