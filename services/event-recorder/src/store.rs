//! The port of the store in which events wait for the fleet's stream.

pub mod memory;
pub mod sqlite;

use std::sync::Arc;

use contract::PullEvent;

use crate::core::{Batch, Recovered};

/// Why the store did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Keeps events. What a write has returned for survives the end of the process; what was synced also survives the loss of power.
pub trait OutboxStore: Send {
    /// Does all of a batch, or nothing, and hands it to the operating system.
    ///
    /// # Errors
    /// Nothing of the batch is stored.
    fn write(&mut self, batch: &Batch) -> Result<(), StoreError>;

    /// Events after a number, in the order of their numbers. One that cannot be read is left out.
    ///
    /// # Errors
    /// The store cannot be read.
    fn load(&mut self, after: u64, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError>;

    /// The newest events, oldest first.
    ///
    /// # Errors
    /// As [`OutboxStore::load`].
    fn newest(&mut self, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError>;

    /// Brings what was written to the disk. May be called while another thread writes.
    fn syncer(&self) -> Syncer;

    /// Brings everything to the disk and says so: the next opening goes on without a gap.
    ///
    /// # Errors
    /// It cannot be written.
    fn close(&mut self) -> Result<(), StoreError>;
}

/// Brings what was written to the disk.
pub type Syncer = Arc<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// A store, and what it held.
pub struct OpenedStore {
    /// The store.
    pub store: Box<dyn OutboxStore>,
    /// Whose state directory this is: another incarnation is another sequence of events.
    pub incarnation: String,
    /// What it held.
    pub recovered: Recovered,
}
