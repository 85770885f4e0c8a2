//! From the bus to the actor.

use actix::Addr;
use actors::{Served, Wiring};
use bus::BusError;
use contract::messages::event_recorder::{CountEvents, ListEvents, RecordEvent};

use crate::actor::EventRecorder;

/// Takes this service's commands from the bus until what is returned is dropped.
///
/// # Errors
/// The bus is closed.
pub async fn serve(wiring: &Wiring, actor: &Addr<EventRecorder>) -> Result<Vec<Served>, BusError> {
    // At once, because each waits for the server to confirm it.
    let (record, list, count) = futures::try_join!(
        actors::serve::<RecordEvent>(wiring, actor.clone().recipient()),
        actors::serve::<ListEvents>(wiring, actor.clone().recipient()),
        actors::serve::<CountEvents>(wiring, actor.clone().recipient()),
    )?;
    Ok(vec![record, list, count])
}
