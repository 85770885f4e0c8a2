//! Other agents of the same name. Two of them would both pull and both answer, so the younger one gives way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actors::{Sender, Wiring};
use bus::BusHealth;
use clock::{Now, Random};
use contract::messages::agent::{DescribeNode, NodeDescription};
use contract::{CallError, Envelope, Meta};
use futures::StreamExt as _;
use tracing::warn;

use super::condition::rfc_3339;
use super::door::{ANSWER_WITHIN, Door};
use super::identity::Identity;

/// Another agent of the same name, in words.
#[derive(Debug)]
pub(super) struct Rival(String);

impl fmt::Display for Rival {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Rival {
    fn of(other: &NodeDescription) -> Self {
        let started = rfc_3339(Now { wall: Duration::from_millis(other.started_ms), ..Now::default() });
        Self(format!(
            "another agent of the node {} answers on the bus (instance {}, version {}, started {started}); stop that one, or give this one another --node",
            other.node, other.instance, other.version
        ))
    }
}

/// Asks on the bus whether somebody else has the name.
pub(super) struct Rivals {
    identity: Identity,
    wiring: Wiring,
    door: Arc<Door>,
    random: Random,
}

impl Rivals {
    pub(super) fn new(identity: Identity, wiring: Wiring, door: Arc<Door>) -> Self {
        Self { identity, wiring, door, random: Random::from_system() }
    }

    /// Another agent that answers, whichever of the two began first.
    pub(super) async fn any(&mut self) -> Option<Rival> {
        self.ask().await.map(|other| Rival::of(&other))
    }

    /// An older agent. Asks at each connect, and whenever somebody else asks for this name: it may be a rival, who connected
    /// later and heard our answer. Never returns while there is none.
    pub(super) async fn next_older(mut self) -> Rival {
        let mut states = self.wiring.bus.health_changes();
        let mut is_connected = false;
        loop {
            let is_due = tokio::select! {
                biased;
                state = states.next() => {
                    let Some(health) = state else { return std::future::pending().await };
                    let was_connected = std::mem::replace(&mut is_connected, !matches!(health, BusHealth::Disconnected { .. }));
                    is_connected && !was_connected
                }
                () = self.door.rung() => is_connected,
            };
            if !is_due {
                continue;
            }
            if let Some(other) = self.ask().await {
                if self.identity.is_younger_than(other.started_ms, &other.instance) {
                    return Rival::of(&other);
                }
                warn!(instance = other.instance, "a younger agent of this node's name answers; it stops when it hears of this one");
            }
            // Two that ask each other shall not do so in a loop as fast as they can.
            tokio::time::sleep(ANSWER_WITHIN).await;
        }
    }

    async fn ask(&mut self) -> Option<NodeDescription> {
        let meta = Meta::root(&mut self.random);
        self.door.expect_own(meta.message_id);
        let ask = Sender::<DescribeNode>::remote(self.wiring.clone());
        match ask.call(Envelope { meta, body: DescribeNode {} }, ANSWER_WITHIN).await {
            Ok(other) if other.instance == self.identity.instance => None,
            Ok(other) => Some(other),
            Err(CallError::Refused { reason }) => {
                warn!(reason, "somebody answers to this node's name, but does not say who it is");
                None
            }
            Err(_) => None,
        }
    }
}
