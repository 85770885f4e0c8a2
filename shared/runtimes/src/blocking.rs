//! Work that waits for a disk, on threads that may.
//!
//! Callers are actors: their thread serves every pull of the node and must not wait for a slow or hanging file system.

use tokio::sync::Semaphore;

/// Calls at the same time; further ones wait. A disk gains nothing from more, and a file system that hangs takes no more threads than
/// these.
const CALLS_MAX: usize = 16;

static CALLS: Semaphore = Semaphore::const_new(CALLS_MAX);

/// Runs `work` on a thread that may block, and passes its panic on.
pub(crate) async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    // The semaphore is never closed.
    let permit = CALLS.acquire().await.ok();
    tasks::blocking("disk", move || {
        let _permit = permit;
        work()
    })
    .await
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tasks of a test")]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_thread_that_asks_goes_on_meanwhile() {
        let (send, receive) = mpsc::channel();
        let work = on_disk(move || receive.recv_timeout(Duration::from_secs(20)));
        let (received, _) = tokio::join!(work, async { send.send(7) });
        assert_eq!(received, Ok(7), "the thread of the test was held up");
    }

    #[tokio::test]
    async fn a_call_that_nobody_waits_for_counts_until_it_has_ended() {
        let (send, receive) = mpsc::channel::<()>();
        let abandoned = tokio::spawn(on_disk(move || receive.recv()));
        tokio::task::yield_now().await;
        abandoned.abort();
        drop(abandoned.await);
        // Those that are abandoned may not add up to more threads than the limit.
        assert!(CALLS.available_permits() < CALLS_MAX);
        drop(send);
    }

    #[tokio::test]
    #[should_panic(expected = "broken")]
    #[allow(clippy::panic)]
    async fn a_panic_is_passed_on() {
        on_disk(|| panic!("broken")).await;
    }
}
