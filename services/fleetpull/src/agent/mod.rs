//! The agent of a node: serves the commands on the fleet's bus and on a socket for this machine, and supervises the services.
//!
//! `work::start` defines the order: the agent serves nothing on the bus before it has checked for a duplicate agent, and it reports ready
//! only after it serves.

mod actor;
mod agent_events;
mod announcement;
mod condition;
mod counters;
mod duplicates;
mod exposition;
mod fleet_size;
mod health;
mod http_endpoint;
mod identity;
mod introduction;
mod name_watch;
#[cfg(debug_assertions)]
mod planted_panic;
mod readings;
mod serving;
mod setup;
mod state_dir;
mod supervisor;
mod time_limit;
mod work;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bus::BusHealth;
use tasks::Panic;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::{FLUSH_WITHIN, output};
use supervisor::Supervisor;
use time_limit::TimeLimit;
use work::Work;

/// The longest stop. systemd kills the process after three times as long.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// The longest stop without a bus, when the agent has nobody to inform.
const STOP_ALONE_WITHIN: Duration = Duration::from_secs(1);
/// How long the end of the process waits for threads that may block after an orderly stop, when all events are stored. One that resolves a
/// name or reads from a disk that hangs may never end.
const THREADS_WITHIN: Duration = Duration::from_millis(500);
/// The same limit after any other end: a thread may still write recorded events, which takes seconds on a disk that is very busy.
const WRITES_WITHIN: Duration = Duration::from_secs(10);

/// Runs the agent until a signal or a panic ends it.
///
/// # Errors
/// The agent cannot start, or lost one of its services.
pub fn run(configuration: &Configuration) -> Result<Exit> {
    let system = actix::System::new();
    let result = system.block_on(serve(configuration));
    let (exit, within) = match &result {
        Ok(Stopped::InOrder) => (Exit::Success, THREADS_WITHIN),
        Ok(Stopped::TooSlowly) => (Exit::Success, WRITES_WITHIN),
        Err(error) => (Exit::of_error(error), WRITES_WITHIN),
    };
    let error = result.as_ref().err().map(|error| format!("{error:#}"));
    // The runtime waits for its threads, whatever they wait for.
    let limit = TimeLimit::start(within, move || {
        info!("the process ends without a thread that still blocks: a name was being resolved, or a disk hangs");
        if let Some(error) = error {
            output::complain(&anyhow::Error::msg(error));
        }
        telemetry::end(FLUSH_WITHIN);
        std::process::exit(exit.code().into());
    });
    drop(system);
    drop(limit);
    result.map(|_| exit)
}

/// How an agent stopped after a signal.
#[derive(Clone, Copy)]
enum Stopped {
    /// All events are stored.
    InOrder,
    /// A limit was over: events may still be being written.
    TooSlowly,
}

async fn serve(configuration: &Configuration) -> Result<Stopped> {
    let mut signals = Signals::listen()?;
    #[cfg(debug_assertions)]
    planted_panic::plant();
    let Some(mut work) = work::start(configuration, signals.next()).await? else { return Ok(Stopped::InOrder) };
    let mut supervisor = Supervisor::of_process();
    supervisor.notify_ready();
    let why = wait_for_the_end(&mut work, &mut signals, &mut supervisor).await;
    supervisor.notify_stopping();
    match why {
        End::Signal(name) => {
            info!(signal = name, "stopping: no more commands are taken; a pull in flight is given up, what it fetched is kept");
            Ok(stop(work, &format!("the agent stops: {name}")).await)
        }
        // After a panic the state may be inconsistent, so the agent does not wait for an orderly stop.
        End::Panic(panic) => {
            bail!("{panic} panicked; the log above shows where. The agent exits, so that its supervisor starts it again")
        }
    }
}

/// Why the agent ends.
enum End {
    Signal(&'static str),
    Panic(Panic),
}

async fn wait_for_the_end(work: &mut Work, signals: &mut Signals, supervisor: &mut Supervisor) -> End {
    loop {
        tokio::select! {
            biased;
            panic = work.next_panic() => return End::Panic(panic),
            name = signals.next() => return End::Signal(name),
            () = supervisor.next_watchdog_notification() => supervisor.notify_alive(),
        }
    }
}

async fn stop(work: Work, why: &str) -> Stopped {
    let alone = matches!(work.bus().health(), BusHealth::Disconnected { .. });
    let limit = if alone { STOP_ALONE_WITHIN } else { STOP_WITHIN };
    if tokio::time::timeout(limit, work.stop(why)).await.is_ok() {
        return Stopped::InOrder;
    }
    warn!(?limit, "stopping took too long: what was under way is given up; events that were recorded are stored");
    Stopped::TooSlowly
}

/// The signals that stop an agent in an orderly way.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("signals cannot be listened for");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
