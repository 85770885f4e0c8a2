//! A way to make an actor of a running agent panic, so that a test can see what becomes of the agent. Not in release builds.

use actix::{Addr, Handler, Message};
use tokio::signal::unix::{SignalKind, signal};

use super::actor::Agent;

/// Panic.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Break;

impl Handler<Break> for Agent {
    type Result = ();

    #[expect(clippy::panic, reason = "what it is for")]
    fn handle(&mut self, _: Break, _: &mut Self::Context) {
        panic!("on purpose: SIGUSR2 asked this debug build to");
    }
}

/// Breaks the agent's actor when the process gets SIGUSR2.
pub(super) fn break_by_signal(agent: Addr<Agent>) {
    let Ok(mut asked) = signal(SignalKind::user_defined2()) else { return };
    actix::spawn(async move {
        while asked.recv().await.is_some() {
            // It does not answer: that it died is told elsewhere.
            let _ = agent.send(Break).await;
        }
    });
}
