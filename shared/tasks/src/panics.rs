//! Panics in this process.

use std::fmt;
use std::sync::LazyLock;

use tokio::sync::broadcast;

/// How many panics can wait to be read; one is enough to end the process.
const PANICS_KEPT: usize = 16;

/// One channel for the process: a panic may have left any state inconsistent, and the composition of the process has to know.
static REPORTS: LazyLock<broadcast::Sender<Panic>> = LazyLock::new(|| broadcast::Sender::new(PANICS_KEPT));

/// The panicked actor or task, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panic {
    /// An actor, and with it its service.
    Service(&'static str),
    /// A spawned task.
    Task(&'static str),
}

impl fmt::Display for Panic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(name) => write!(formatter, "the service {name}"),
            Self::Task(name) => write!(formatter, "the task {name}"),
        }
    }
}

/// The panics of this process since the call of [`panics`].
#[derive(Debug)]
pub struct Panics(broadcast::Receiver<Panic>);

/// Subscribes to panics of actors and tasks in this process.
#[must_use]
pub fn panics() -> Panics {
    Panics(REPORTS.subscribe())
}

impl Panics {
    /// The next panic; never returns if there is none.
    pub async fn next(&mut self) -> Panic {
        loop {
            match self.0.recv().await {
                Ok(panic) => return panic,
                // The oldest were overwritten; the remaining ones are enough.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                // The sender is never dropped.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// Logs a panic and reports it to all subscribers.
pub(crate) fn report(panic: Panic) {
    match panic {
        Panic::Service(actor) => tracing::error!(actor, "an actor panicked; its service has ended"),
        Panic::Task(task) => tracing::error!(task, "a task panicked; its work is not done any more"),
    }
    // An error means that nobody listens, as in a command that ends by itself.
    let _ = REPORTS.send(panic);
}

/// Held by an actor; reports the panic of its service if it is dropped while panicking.
#[derive(Debug)]
pub struct PanicGuard(&'static str);

impl PanicGuard {
    /// A guard for the service of this name.
    #[must_use]
    pub fn of(service: &'static str) -> Self {
        Self(service)
    }
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            report(Panic::Service(self.0));
        }
    }
}
