//! A way to make an actor or a task of a running agent panic, so that a test can see what becomes of the agent. Not in release builds.

use actix::{Addr, Handler, Message};
use tokio::signal::unix::{SignalKind, signal};

use super::actor::Agent;

/// Names the task in which a panic is planted. Without it the agent's actor panics.
const PLANTED: &str = "PLANTED_PANIC";

/// Panic.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Break;

impl Handler<Break> for Agent {
    type Result = ();

    fn handle(&mut self, _: Break, _: &mut Self::Context) {
        tasks::panic_on_purpose("SIGUSR2 asked this debug build to");
    }
}

/// Plants a panic in the tasks that the environment names. To be called before any task is spawned.
pub(super) fn plant() {
    if let Ok(task) = std::env::var(PLANTED) {
        tasks::plant_panic(task);
    }
}

/// Breaks the task in which a panic is planted, or else the agent's actor, when the process gets SIGUSR2.
pub(super) fn break_by_signal(agent: Addr<Agent>) {
    let Ok(mut asked) = signal(SignalKind::user_defined2()) else { return };
    let breaking = async move {
        while asked.recv().await.is_some() {
            if !tasks::break_planted() {
                // The agent's actor does not answer: its panic is reported elsewhere.
                let _ = agent.send(Break).await;
            }
        }
    };
    tasks::spawn_local("break-by-signal", breaking);
}
