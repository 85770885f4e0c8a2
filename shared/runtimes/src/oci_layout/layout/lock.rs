//! File locks between processes, waited for without holding a thread.

use std::fs::{File, TryLockError};
use std::io;
use std::time::Duration;

/// How often a lock that another process holds is tried again. The system has no way to wait that can be given up.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// Waits until the file is locked. `waiting` is called each time that it is not yet.
pub(super) async fn lock(file: &File, mut waiting: impl FnMut()) -> io::Result<()> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {
                waiting();
                tokio::time::sleep(TRY_EVERY).await;
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}
