//! Takes this service's commands from the bus.

use actix::Addr;
use actors::{Served, Wiring};
use bus::BusError;
use contract::messages::pull_coordinator::{CancelStandingPull, EnsureImage, ExplainImage, ListImages, ListPulls, ListStandingPulls};
use futures::FutureExt as _;
use futures::future::try_join_all;

use crate::actor::PullCoordinator;

/// Serves this service's commands until the returned value is dropped.
///
/// # Errors
/// The bus is closed.
pub async fn serve(wiring: &Wiring, actor: &Addr<PullCoordinator>) -> Result<Vec<Served>, BusError> {
    // In parallel, because each waits for the server to confirm its subscription.
    try_join_all([
        actors::serve::<EnsureImage>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ListPulls>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ListStandingPulls>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ListImages>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<CancelStandingPull>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ExplainImage>(wiring, actor.clone().recipient()).boxed_local(),
    ])
    .await
}
