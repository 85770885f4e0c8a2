//! Takes this service's commands from the bus.

use actix::Addr;
use actors::{Served, Wiring};
use bus::BusError;
use contract::messages::event_recorder::{CountEvents, ListEvents, RecordEvent};

use crate::actor::EventRecorder;

/// Serves this service's commands until the returned value is dropped.
///
/// # Errors
/// The bus is closed.
pub async fn serve(wiring: &Wiring, actor: &Addr<EventRecorder>) -> Result<Vec<Served>, BusError> {
    // In parallel, because each waits for the server to confirm its subscription.
    let (record, list, count) = futures::try_join!(
        actors::serve::<RecordEvent>(wiring, actor.clone().recipient()),
        actors::serve::<ListEvents>(wiring, actor.clone().recipient()),
        actors::serve::<CountEvents>(wiring, actor.clone().recipient()),
    )?;
    Ok(vec![record, list, count])
}
