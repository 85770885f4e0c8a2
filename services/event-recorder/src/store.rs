//! The port of the store in which events wait for the fleet's stream.

pub mod memory;
pub mod sqlite;

use std::sync::Arc;

use contract::PullEvent;

use crate::core::{Batch, Recovered};

/// The store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// Stores events. A written batch survives the end of the process; a synced one also survives a power failure.
pub trait OutboxStore: Send {
    /// Writes the whole batch or nothing, and hands it to the operating system.
    ///
    /// # Errors
    /// Nothing of the batch is stored.
    fn write(&mut self, batch: &Batch) -> Result<(), StoreError>;

    /// The first `limit` readable events above a number, in order. Fewer mean that there are no more.
    ///
    /// # Errors
    /// The store cannot be read.
    fn load(&mut self, after: u64, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError>;

    /// The newest `limit` readable events, oldest first.
    ///
    /// # Errors
    /// As [`OutboxStore::load`].
    fn newest(&mut self, limit: usize) -> Result<Vec<Arc<PullEvent>>, StoreError>;

    /// A function that syncs written batches to the disk. It may be called while another thread writes.
    fn syncer(&self) -> Syncer;

    /// Syncs everything to the disk and marks the store as closed, so that the next opening goes on numbering without a gap.
    ///
    /// # Errors
    /// The store cannot be written.
    fn close(&mut self) -> Result<(), StoreError>;
}

/// Syncs written batches to the disk.
pub type Syncer = Arc<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// An opened store and its contents.
pub struct OpenedStore {
    /// The store.
    pub store: Box<dyn OutboxStore>,
    /// The id of the state directory. Each incarnation numbers its events from 1.
    pub incarnation: String,
    /// Its contents when it was opened.
    pub recovered: Recovered,
}
