//! Passes commands from the bus to the actor.

use actix::Addr;
use actors::{Served, Wiring};
use bus::BusError;
use contract::messages::throttler::{
    AcquirePermit, BudgetTurn, CountPermits, ForgetQuota, GrantBudget, ListBudgets, ReleasePermit, RenewBudget, ReportLimits, ReturnBudget,
    SeeFleet,
};
use futures::FutureExt as _;
use futures::future::try_join_all;

use crate::actor::Throttler;

/// Serves this service's commands from the bus until the returned values are dropped.
///
/// # Errors
/// The bus is closed.
pub async fn serve(wiring: &Wiring, actor: &Addr<Throttler>) -> Result<Vec<Served>, BusError> {
    // Concurrently, because each waits for the server to confirm it.
    try_join_all([
        actors::serve::<AcquirePermit>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ReleasePermit>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<CountPermits>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ReportLimits>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<SeeFleet>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ListBudgets>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ForgetQuota>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<GrantBudget>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<RenewBudget>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<ReturnBudget>(wiring, actor.clone().recipient()).boxed_local(),
        actors::serve::<BudgetTurn>(wiring, actor.clone().recipient()).boxed_local(),
    ])
    .await
}
