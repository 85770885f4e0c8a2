//! From the bus to the actor.

use actix::Addr;
use actors::{Served, Wiring};
use bus::BusError;
use contract::messages::pull_coordinator::{CancelWish, EnsureImage, ExplainImage, ListPulls, ListWishes};

use crate::actor::PullCoordinator;

/// Takes this service's commands from the bus until what is returned is dropped.
///
/// # Errors
/// The bus is closed.
pub async fn serve(wiring: &Wiring, actor: &Addr<PullCoordinator>) -> Result<Vec<Served>, BusError> {
    Ok(vec![
        actors::serve::<EnsureImage>(wiring, actor.clone().recipient()).await?,
        actors::serve::<ListPulls>(wiring, actor.clone().recipient()).await?,
        actors::serve::<ListWishes>(wiring, actor.clone().recipient()).await?,
        actors::serve::<CancelWish>(wiring, actor.clone().recipient()).await?,
        actors::serve::<ExplainImage>(wiring, actor.clone().recipient()).await?,
    ])
}
