//! A damaged database is set aside, and its readable events are copied into a new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::PullEvent;

use super::{CEILING_STEP, Opened, Origin, SqliteStore, connect, decode, log_of, unsigned};
use crate::core::{Batch, Slot, number_of};
use crate::store::StoreError;

/// The most damaged databases that are kept; beyond it the first one is replaced.
const SET_ASIDE_MOST: u32 = 3;

/// What can be read of a damaged database.
#[derive(Default)]
struct Salvaged {
    /// The events, in the order of their numbers.
    events: Vec<Arc<PullEvent>>,
    /// None if it, or `ceiling`, cannot be read: events that were deleted may have had any number of that incarnation.
    incarnation: Option<String>,
    /// The highest number that an event may have; 0: unknown.
    ceiling: u64,
}

/// Sets a damaged database aside, and goes on in a new one with its readable events.
pub(super) fn replace(path: &Path, origin: &Origin, why: &StoreError) -> Result<Opened, StoreError> {
    let Salvaged { events, incarnation, ceiling } = salvage(path);
    let kept = set_aside(path).map_err(|error| StoreError(format!("{why}, and it cannot be set aside: {error}")))?;
    let incarnation = incarnation.unwrap_or_else(|| origin.new_incarnation.clone());
    let opened = SqliteStore::open_file(path, &Origin { new_incarnation: incarnation, ..origin.clone() });
    let mut opened = opened.map_err(|error| error.why)?;
    let last_read = events.last().map_or(0, number_of);
    // Numbers above the last known one may have been used, and must not be used again.
    let last = last_read.max(ceiling).max(opened.store.last_number) + CEILING_STEP;
    let (found, slots) = (events.len(), events.iter().map(Slot::of).collect());
    opened.store.write_up_to(last, &Batch { put: events, ..Batch::default() })?;
    opened.recovered.slots = slots;
    opened.recovered.next_number = last + 1;
    opened.recovered.lost =
        Some(format!("{why}: {found} events were read from it, others may be lost; the file was kept as {}", kept.display()));
    Ok(opened)
}

/// Reads the events of a damaged database: up to the damage from both ends.
fn salvage(path: &Path) -> Salvaged {
    let Ok(connection) = connect(path) else { return Salvaged::default() };
    let fact = |name: &str| {
        let value = connection.query_row("SELECT value FROM facts WHERE name = ?1", [name], |row| row.get::<_, String>(0));
        value.ok()
    };
    let ceiling: Option<u64> = fact("ceiling").and_then(|text| text.parse().ok());
    let numbered = fact("incarnation").zip(ceiling);
    let mut found = std::collections::BTreeMap::new();
    for order in ["ASC", "DESC"] {
        let Ok(mut query) = connection.prepare(&format!("SELECT number, body FROM events ORDER BY number {order}")) else { continue };
        let Ok(mut rows) = query.query([]) else { continue };
        while let Ok(Some(row)) = rows.next() {
            let (Ok(number), Ok(body)) = (row.get::<_, i64>(0), row.get::<_, Vec<u8>>(1)) else { break };
            let event = decode(&body).filter(|event| event.sequence.as_ref().is_some_and(|sequence| sequence.number == unsigned(number)));
            found.extend(event.map(|event| (number, Arc::new(event))));
        }
    }
    let events = found.into_values().collect();
    match numbered {
        Some((incarnation, ceiling)) => Salvaged { events, incarnation: Some(incarnation), ceiling },
        None => Salvaged { events, ..Salvaged::default() },
    }
}

/// Renames a database and its log.
fn set_aside(path: &Path) -> std::io::Result<PathBuf> {
    let place = |number: u32| path.with_file_name(format!("outbox.damaged-{number}.db"));
    let free = (1..=SET_ASIDE_MOST).map(place).find(|place| !place.exists()).unwrap_or_else(|| place(1));
    std::fs::rename(path, &free)?;
    match std::fs::rename(log_of(path), log_of(&free)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(free),
    }
}
