//! From the bus to the actor.

use actix::Addr;
use actors::{Served, Wiring};
use bus::BusError;
use contract::messages::pull_coordinator::{CancelStandingPull, EnsureImage, ExplainImage, ListPulls, ListStandingPulls};
use futures::FutureExt as _;
use futures::future::try_join_all;

use crate::actor::PullCoordinator;

/// Takes this service's commands from the bus until what is returned is dropped.
///
/// # Errors
/// The bus is closed.
pub async fn serve(wiring: &Wiring, actor: &Addr<PullCoordinator>) -> Result<Vec<Served>, BusError> {
    // At once, because each waits for the server to confirm it.
    try_join_all([
        actors::serve::<EnsureImage>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ListPulls>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ListStandingPulls>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<CancelStandingPull>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ExplainImage>(wiring, actor.clone().recipient()).boxed_local(),
    ])
    .await
}
