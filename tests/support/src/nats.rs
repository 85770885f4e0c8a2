//! Real nats-servers, each on a free port with its own data directory, removed when the test ends.

mod accounts;
mod certificates;
mod cluster;
mod monitoring;
mod process;
mod program;
mod tenancy;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::held_port::HeldPort;

pub use self::accounts::Accounts;
pub use self::certificates::Authority;
pub use self::cluster::NatsCluster;
pub use self::monitoring::Monitoring;
use self::process::ServerProcess;
pub use self::program::{current_program, old_program, oldest_program};
pub use self::tenancy::Tenancy;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct NatsConfig {
    program: Option<PathBuf>,
    /// Further lines of the JetStream block; none if JetStream is off.
    jetstream: Option<String>,
    text: String,
    /// The place in a cluster, if the server is a member of one.
    member: Option<Member>,
}

/// A place in a cluster.
#[derive(Clone, Debug)]
struct Member {
    name: String,
    /// The port that the other servers connect to.
    port: u16,
    /// The route ports of all servers of the cluster, this one included.
    routes: Vec<u16>,
}

impl Default for NatsConfig {
    /// JetStream is on; there is no login and no TLS.
    fn default() -> Self {
        Self { program: None, jetstream: Some(String::new()), text: String::new(), member: None }
    }
}

impl NatsConfig {
    /// Turns JetStream off.
    #[must_use]
    pub fn without_jetstream(mut self) -> Self {
        self.jetstream = None;
        self
    }

    /// Sets limits of JetStream on this server, in the syntax of nats-server.
    #[must_use]
    pub fn with_jetstream(mut self, limits: &str) -> Self {
        self.jetstream = Some(limits.to_owned());
        self
    }

    /// Adds lines of configuration, in the syntax of nats-server.
    #[must_use]
    pub fn with(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self.text.push('\n');
        self
    }

    /// Uses another nats-server program, such as [`old_program`] finds.
    #[must_use]
    pub fn with_program(mut self, program: PathBuf) -> Self {
        self.program = Some(program);
        self
    }
}

fn program_of(config: &NatsConfig) -> PathBuf {
    config.program.clone().unwrap_or_else(|| current_program().unwrap_or_else(|why| panic!("{why}")))
}

/// A running nats-server; killed when dropped.
pub struct NatsServer {
    config: NatsConfig,
    program: PathBuf,
    folder: TempDir,
    port: HeldPort,
    process: Option<ServerProcess>,
}

impl NatsServer {
    /// Starts a server and waits until it takes connections.
    ///
    /// # Panics
    /// When no suitable nats-server is found or the server does not start: the text explains what to do.
    #[must_use]
    pub fn start(config: NatsConfig) -> Self {
        let program = program_of(&config);
        let folder = TempDir::with_prefix("nats-").expect("a folder for the server can be made");
        let mut server = Self { config, program, folder, port: HeldPort::any(), process: None };
        server.launch();
        server
    }

    /// The URL of the server, without a login.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// Host and port, for building another URL.
    #[must_use]
    pub fn address(&self) -> String {
        self.port.address().to_string()
    }

    /// The folder of the server: its configuration, and the data of JetStream in `store`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills the server, like a crash.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Shuts the server down and waits for its end.
    pub fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.terminate();
        }
    }

    /// Starts the server again on the same port and store; kills it first if it runs.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    /// Starts the server again on the same port and store with another configuration; kills it first if it runs.
    ///
    /// # Panics
    /// As [`NatsServer::start`].
    pub fn restart_with(&mut self, config: NatsConfig) {
        self.kill();
        self.program = program_of(&config);
        self.config = config;
        self.launch();
    }

    /// Deletes all data of JetStream. The server must not run.
    pub fn wipe_store(&self) {
        assert!(self.process.is_none(), "a running server's store cannot be wiped");
        std::fs::remove_dir_all(self.folder.path().join("store")).expect("the store can be removed");
    }

    /// Stops the process of the server (SIGSTOP); its connections remain open.
    pub fn pause(&self) {
        self.process().pause();
    }

    /// Continues a paused server (SIGCONT).
    pub fn resume(&self) {
        self.process().resume();
    }

    /// The process id.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process().number()
    }

    /// The log of the server since its last start.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn log(&self) -> String {
        self.process().log()
    }

    /// The monitoring address, if the server runs as part of a cluster or has `http` in its configuration.
    #[must_use]
    pub fn monitoring(&self) -> Option<Monitoring> {
        self.process.as_ref().and_then(ServerProcess::monitor).map(Monitoring)
    }

    fn process(&self) -> &ServerProcess {
        self.process.as_ref().expect("the server runs")
    }

    fn launch(&mut self) {
        let path = self.folder.path().join("server.conf");
        std::fs::write(&path, self.configuration()).expect("the configuration can be written");
        self.process = Some(ServerProcess::start(&self.program, &path, self.config.member.is_some()));
    }

    fn configuration(&self) -> String {
        let mut text = format!("listen: \"{}\"\n", self.address());
        if let Some(limits) = &self.config.jetstream {
            let store = self.folder.path().join("store");
            writeln!(text, "jetstream {{ store_dir: {store:?}, {limits} }}").expect("a string can be written");
        }
        if let Some(Member { name, port, routes }) = &self.config.member {
            let routes: Vec<String> = routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
            // The state of the cluster is read over HTTP, which needs no login. For nats-server, -1 means any free port.
            let own = format!("server_name: {name}\nhttp: \"127.0.0.1:-1\"\n");
            text += &own;
            writeln!(text, "cluster {{ name: fleet, listen: \"127.0.0.1:{port}\", routes: [{}] }}", routes.join(", "))
                .expect("a string can be written");
        }
        text + &self.config.text
    }
}
