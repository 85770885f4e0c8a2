//! An agent of the built program, and a caller that pulls through its socket.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use actors::{Delivery, Sender, Wiring};
use anyhow::{Context as _, Result, anyhow, ensure};
use bus::socket::SocketBus;
use clock::Random;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
use contract::subject::Fleet;
use contract::{Envelope, Meta};
use tempfile::TempDir;
use tokio::net::UnixDatagram;
use tokio::process::Child;
use tokio::time::timeout;

use crate::program;

/// The longest time until an agent is ready. It takes up to 3 s, and longer on a machine under load.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// A limit that no pull of a present image reaches.
const CALL_LIMIT: Duration = Duration::from_secs(30);
const NODE: &str = "n1";

/// A running agent; killed when dropped.
pub(crate) struct RunningAgent {
    id: u32,
    socket: PathBuf,
    caller: Caller,
    _child: Child,
    _folder: TempDir,
}

/// A caller with a connection of its own to an agent.
pub(crate) struct Caller {
    ensure: Sender<EnsureImage>,
    random: RefCell<Random>,
}

impl RunningAgent {
    /// Starts the agent of a new node, and waits until it is ready.
    pub(crate) async fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let folder = TempDir::with_prefix("bench-")?;
        let child = started(&program::fleetpull()?, folder.path(), NODE, arguments, environment).await?;
        let socket = folder.path().join("store/state").join(NODE).join("agent.sock");
        let caller = Caller::connect(&socket).await?;
        let id = child.id().context("the agent has ended")?;
        Ok(Self { id, socket, caller, _child: child, _folder: folder })
    }

    /// Another caller of the agent.
    pub(crate) async fn new_caller(&self) -> Result<Caller> {
        Caller::connect(&self.socket).await
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Pulls a present image.
    pub(crate) async fn pull_present(&self, image: &str) -> Result<()> {
        let outcome = self.caller.pull(image, CALL_LIMIT).await?;
        ensure!(outcome.outcome == OutcomeKind::Present, "{image} should be there: {}", outcome.message);
        Ok(())
    }
}

impl Caller {
    async fn connect(socket: &Path) -> Result<Self> {
        let bus = Arc::new(SocketBus::connect(socket).await.context("the agent's socket does not answer")?);
        let wiring = Wiring { bus, fleet: Fleet::default(), node: NODE.parse()?, delivery: Delivery::Bus };
        Ok(Self { ensure: Sender::remote(wiring), random: RefCell::new(Random::from_system()) })
    }

    /// Pulls an image, and waits for at most this long.
    pub(crate) async fn pull(&self, image: &str, limit: Duration) -> Result<PullOutcome> {
        self.ask(EnsureImage { image: image.to_owned(), ..EnsureImage::default() }, limit).await
    }

    /// Makes a detached standing pull of this duration.
    pub(crate) async fn make_standing_pull(&self, image: &str, limit: Duration) -> Result<()> {
        let wait_ms = u64::try_from(limit.as_millis()).ok();
        let outcome =
            self.ask(EnsureImage { image: image.to_owned(), wait_ms, detach: true, ..EnsureImage::default() }, CALL_LIMIT).await?;
        ensure!(outcome.stands, "{image} should be waited for: {}", outcome.message);
        Ok(())
    }

    async fn ask(&self, ask: EnsureImage, limit: Duration) -> Result<PullOutcome> {
        let body = EnsureImage { policy: Some(PullPolicy::IfNotPresent), ..ask };
        let meta = Meta::root(&mut self.random.borrow_mut());
        Ok(self.ensure.call(Envelope { meta, body }, limit).await?)
    }
}

/// Starts an agent with its store in the folder, and waits until it is ready.
pub(crate) async fn started(binary: &Path, folder: &Path, node: &str, more: &[&str], environment: &[(&str, &str)]) -> Result<Child> {
    let notify = folder.join("notify.sock");
    let notifications = UnixDatagram::bind(&notify).context("no socket can be made")?;
    let mut command = program::isolated(binary, folder);
    command.args(["run", "--node", node, "--store"]).arg(folder.join("store")).args(more);
    let log = folder.join("agent.log");
    command.envs(environment.iter().copied()).env("NOTIFY_SOCKET", &notify).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(File::create(&log).context("no log can be written")?);
    let mut agent = command.spawn().context("the agent does not start")?;
    let ready = async {
        let mut message = [0; 1024];
        loop {
            let length = notifications.recv(&mut message).await?;
            if message[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                return anyhow::Ok(());
            }
        }
    };
    let started = tokio::select! {
        biased;
        ended = agent.wait() => Err(anyhow!("the agent has ended: {}", ended?)),
        ready = timeout(READY_LIMIT, ready) => ready.context("the agent does not notify that it is ready")?,
    };
    started.with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
    Ok(agent)
}
