//! The state of the fleet, as the throttler of a node learns it.

use serde::{Deserialize, Serialize};

use crate::messages::registrar::FleetSeen;
use crate::{Command, Service};

/// To the node's throttler: the state of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeeFleet(pub FleetSeen);

impl Command for SeeFleet {
    type Reply = FleetNoted;
    const SERVICE: Service = Service::Throttler;
    const VERB: &'static str = "fleet";
}

/// The answer to [`SeeFleet`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetNoted {}
