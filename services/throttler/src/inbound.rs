//! From the bus to the actor.

use actix::Addr;
use actors::{Served, Wiring};
use bus::BusError;
use contract::messages::throttler::{
    AcquirePermit, BudgetTurn, CountPermits, GrantBudget, ListBudgets, ReleasePermit, RenewBudget, ReportLimits, ReturnBudget, SeeFleet,
};

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
        actors::serve::<ReportLimits>(wiring, actor.clone().recipient()).await?,
        actors::serve::<SeeFleet>(wiring, actor.clone().recipient()).await?,
        actors::serve::<ListBudgets>(wiring, actor.clone().recipient()).await?,
        actors::serve::<GrantBudget>(wiring, actor.clone().recipient()).await?,
        actors::serve::<RenewBudget>(wiring, actor.clone().recipient()).await?,
        actors::serve::<ReturnBudget>(wiring, actor.clone().recipient()).await?,
        actors::serve::<BudgetTurn>(wiring, actor.clone().recipient()).await?,
    ])
}
