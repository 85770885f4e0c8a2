//! Sends digests to the bus, and the fleet's state to the node's other services.

use std::time::Duration;

use actors::{Delivery, Sender};
use bus::Message;
use contract::messages::registrar::{FleetDigest, FleetSeen};
use contract::messages::{backoff_tracker, throttler};
use contract::subject::Fleet;
use contract::{Command, Envelope, Meta, NodeName};
use serde::Serialize;
use tracing::debug;

/// How long a service behind the bus may take to note the fleet's state. A lost message is repeated after `REPEAT_AFTER`.
const NOTED_WITHIN: Duration = Duration::from_secs(1);

/// The node's services that receive the fleet's state from the registrar.
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// The node's back-off tracker.
    pub tracker: Sender<backoff_tracker::SeeFleet>,
    /// The node's throttler.
    pub throttler: Sender<throttler::SeeFleet>,
}

impl Neighbours {
    /// Sends the state to both services. The returned future waits for the answers of services behind the bus.
    pub(crate) fn send_fleet(&self, meta: &Meta, seen: &FleetSeen, delivery: Delivery) -> impl Future<Output = ()> + use<> {
        let tracker = send(&self.tracker, meta, backoff_tracker::SeeFleet(seen.clone()), delivery);
        let throttler = send(&self.throttler, meta, throttler::SeeFleet(seen.clone()), delivery);
        async move {
            futures::join!(tracker, throttler);
        }
    }
}

fn send<C: Command>(to: &Sender<C>, meta: &Meta, body: C, delivery: Delivery) -> impl Future<Output = ()> + use<C> {
    let unposted = to.post(Envelope { meta: meta.clone(), body });
    // If the mailbox of a service in this process is full, do not wait for room.
    let call = unposted.filter(|_| delivery == Delivery::Bus).map(|envelope| to.call(envelope, NOTED_WITHIN));
    async move {
        if let Some(call) = call
            && let Err(error) = call.await
        {
            debug!(%error, service = C::SERVICE.name(), "the fleet's state could not be sent to a service");
        }
    }
}

/// Encodes as MessagePack with named fields, so that fields can be added.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Encoding maps, texts and numbers in memory never fails.
    rmp_serde::to_vec_named(value).unwrap_or_default()
}

/// The digest as a message, below the registrar's own token.
pub(crate) fn digest_message(fleet: &Fleet, registrar: &NodeName, digest: &FleetDigest) -> Message {
    Message::new(fleet.digest(registrar), encode(digest))
}
