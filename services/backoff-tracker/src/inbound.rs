//! From the bus to the actor.

use actix::Addr;
use actors::{Served, Wiring};
use bus::BusError;
use contract::messages::backoff_tracker::{CheckBackoff, CountBackoffs, ReportAttempt};

use crate::actor::BackoffTracker;

/// Takes this service's commands from the bus until what is returned is dropped.
///
/// # Errors
/// The bus is closed.
pub async fn serve(wiring: &Wiring, actor: &Addr<BackoffTracker>) -> Result<Vec<Served>, BusError> {
    Ok(vec![
        actors::serve::<CheckBackoff>(wiring, actor.clone().recipient()).await?,
        actors::serve::<ReportAttempt>(wiring, actor.clone().recipient()).await?,
        actors::serve::<CountBackoffs>(wiring, actor.clone().recipient()).await?,
    ])
}
