//! From the bus to the actor.

use actix::Addr;
use actors::{Served, Wiring};
use bus::BusError;
use contract::messages::throttler::{AcquirePermit, CountPermits, ReleasePermit};

use crate::actor::Throttler;

/// Takes this service's commands from the bus until what is returned is dropped.
///
/// # Errors
/// The bus is closed.
pub async fn serve(wiring: &Wiring, actor: &Addr<Throttler>) -> Result<Vec<Served>, BusError> {
    Ok(vec![
        actors::serve::<AcquirePermit>(wiring, actor.clone().recipient()).await?,
        actors::serve::<ReleasePermit>(wiring, actor.clone().recipient()).await?,
        actors::serve::<CountPermits>(wiring, actor.clone().recipient()).await?,
    ])
}
