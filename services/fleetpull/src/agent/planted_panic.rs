//! Makes an actor or a task of a running agent panic, so that a test can check how the agent reacts. Not in release builds.

use actix::{Addr, Handler, Message};
use tokio::signal::unix::{SignalKind, signal};

use super::actor::Agent;

/// Names the task that panics. If it is not set, the agent's actor panics.
const PLANTED: &str = "PLANTED_PANIC";

/// Makes the agent's actor panic.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Panic;

impl Handler<Panic> for Agent {
    type Result = ();

    fn handle(&mut self, _: Panic, _: &mut Self::Context) {
        tasks::panic_on_purpose("SIGUSR2 asked this debug build to");
    }
}

/// Plants a panic in the task that the environment names. Must be called before any task is spawned.
pub(super) fn plant() {
    if let Ok(task) = std::env::var(PLANTED) {
        tasks::plant_panic(task);
    }
}

/// On SIGUSR2, panics in the task that has the planted panic, or else in the agent's actor.
pub(super) fn panic_on_signal(agent: Addr<Agent>) {
    let Ok(mut asked) = signal(SignalKind::user_defined2()) else { return };
    let signals = async move {
        while asked.recv().await.is_some() {
            if !tasks::panic_planted() {
                // The panicking actor does not answer; its panic guard reports the panic.
                let _ = agent.send(Panic).await;
            }
        }
    };
    tasks::spawn_local("panic-on-signal", signals);
}
