//! From the bus to the actor.

use actix::Addr;
use actors::{Served, Wiring};
use bus::BusError;
use contract::messages::backoff_tracker::{
    BeginAttempt, CheckBackoff, ClearBackoff, CountBackoffs, ListBackoffs, PauseSharing, ReportAttempt, RequestClearance, ResolveAttempt,
    SeeFleet, WithdrawClearance,
};
use futures::FutureExt as _;
use futures::future::try_join_all;

use crate::actor::BackoffTracker;

/// Takes this service's commands from the bus until the returned values are dropped.
///
/// # Errors
/// The bus is closed.
pub async fn serve(wiring: &Wiring, actor: &Addr<BackoffTracker>) -> Result<Vec<Served>, BusError> {
    // All at the same time, because each waits for the server to confirm it.
    try_join_all([
        actors::serve::<CheckBackoff>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ReportAttempt>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<CountBackoffs>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<RequestClearance>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<BeginAttempt>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ResolveAttempt>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<WithdrawClearance>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<SeeFleet>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ListBackoffs>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ClearBackoff>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<PauseSharing>(wiring, actor.clone().recipient()).boxed_local(),
    ])
    .await
}
