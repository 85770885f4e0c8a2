//! An agent of the built program, and somebody who asks it for images through its socket.

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

/// An agent is ready within 3 s; a machine under load takes longer.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// Longer than any pull of a present image takes.
const CALL_LIMIT: Duration = Duration::from_secs(30);
const NODE: &str = "n1";

/// A running agent; killed when dropped.
pub(crate) struct RunningAgent {
    id: u32,
    socket: PathBuf,
    asker: Asker,
    _child: Child,
    _folder: TempDir,
}

/// Somebody who asks an agent for images, through a connection of its own.
pub(crate) struct Asker {
    ensure: Sender<EnsureImage>,
    random: RefCell<Random>,
}

impl RunningAgent {
    /// Starts the agent of a node of its own, and waits until it is ready.
    pub(crate) async fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let folder = TempDir::with_prefix("bench-")?;
        let child = started(&program::fleetpull()?, folder.path(), NODE, arguments, environment).await?;
        let socket = folder.path().join("store/state").join(NODE).join("agent.sock");
        let asker = Asker::connect(&socket).await?;
        let id = child.id().context("the agent has ended")?;
        Ok(Self { id, socket, asker, _child: child, _folder: folder })
    }

    /// Another one who asks it.
    pub(crate) async fn asker(&self) -> Result<Asker> {
        Asker::connect(&self.socket).await
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Makes sure that a present image is there.
    pub(crate) async fn pull_present(&self, image: &str) -> Result<()> {
        let outcome = self.asker.pull(image, CALL_LIMIT).await?;
        ensure!(outcome.outcome == OutcomeKind::Present, "{image} should be there: {}", outcome.message);
        Ok(())
    }
}

impl Asker {
    async fn connect(socket: &Path) -> Result<Self> {
        let bus = Arc::new(SocketBus::connect(socket).await.context("the agent's socket does not answer")?);
        let wiring = Wiring { bus, fleet: Fleet::default(), node: NODE.parse()?, delivery: Delivery::Bus };
        Ok(Self { ensure: Sender::remote(wiring), random: RefCell::new(Random::from_system()) })
    }

    /// Asks for an image, and waits so long.
    pub(crate) async fn pull(&self, image: &str, limit: Duration) -> Result<PullOutcome> {
        self.ask(EnsureImage { image: image.to_owned(), ..EnsureImage::default() }, limit).await
    }

    /// Lets a pull stand for so long, without waiting for it.
    pub(crate) async fn stand(&self, image: &str, limit: Duration) -> Result<()> {
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

/// An agent that has said that it is ready, with its store in the folder.
pub(crate) async fn started(binary: &Path, folder: &Path, node: &str, more: &[&str], environment: &[(&str, &str)]) -> Result<Child> {
    let notify = folder.join("notify.sock");
    let said = UnixDatagram::bind(&notify).context("no socket can be made")?;
    let mut command = program::apart(binary, folder);
    command.args(["run", "--node", node, "--store"]).arg(folder.join("store")).args(more);
    let log = folder.join("agent.log");
    command.envs(environment.iter().copied()).env("NOTIFY_SOCKET", &notify).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(File::create(&log).context("no log can be written")?);
    let mut agent = command.spawn().context("the agent does not start")?;
    let ready = async {
        let mut message = [0; 1024];
        loop {
            let length = said.recv(&mut message).await?;
            if message[..length].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                return anyhow::Ok(());
            }
        }
    };
    let started = tokio::select! {
        biased;
        ended = agent.wait() => Err(anyhow!("the agent has ended: {}", ended?)),
        ready = timeout(READY_LIMIT, ready) => ready.context("the agent does not say that it is ready")?,
    };
    started.with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
    Ok(agent)
}
