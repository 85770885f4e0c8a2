//! Bounds the number of concurrent requests to one endpoint, over all pulls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most remembered endpoints; unused ones are forgotten first.
const ENDPOINTS_MAX: usize = 256;

pub(super) struct Permits {
    each: usize,
    semaphores: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Permits {
    pub(super) fn new(each: usize) -> Self {
        Self { each: each.max(1), semaphores: Mutex::default() }
    }

    /// Waits for a permit, which is kept until the answer's body is read.
    pub(super) async fn acquire(&self, host: &str) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.semaphore(host).acquire_owned().await.ok()
    }

    fn semaphore(&self, host: &str) -> Arc<Semaphore> {
        let mut semaphores = self.semaphores.lock().unwrap_or_else(PoisonError::into_inner);
        if semaphores.len() >= ENDPOINTS_MAX {
            semaphores.retain(|_, semaphore| semaphore.available_permits() < self.each);
        }
        Arc::clone(semaphores.entry(host.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.each))))
    }
}
