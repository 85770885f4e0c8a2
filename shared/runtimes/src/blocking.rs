//! Runs work that waits for a disk on threads that may block.
//!
//! Callers are actors: their thread serves every pull of the node, so it must not wait for a slow or hanging file system.

use tokio::sync::Semaphore;

/// The most calls at the same time; further ones wait. More do not make a disk faster, and a hanging file system occupies at most
/// this many threads.
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
    async fn calling_thread_goes_on_during_a_blocking_call() {
        let (send, receive) = mpsc::channel();
        let work = on_disk(move || receive.recv_timeout(Duration::from_secs(20)));
        let (received, _) = tokio::join!(work, async { send.send(7) });
        assert_eq!(received, Ok(7), "the thread of the test was held up");
    }

    #[tokio::test]
    async fn abandoned_call_counts_until_its_end() {
        let (send, receive) = mpsc::channel::<()>();
        let abandoned = tokio::spawn(on_disk(move || receive.recv()));
        tokio::task::yield_now().await;
        abandoned.abort();
        drop(abandoned.await);
        // Abandoned calls must not add up to more threads than the limit.
        assert!(CALLS.available_permits() < CALLS_MAX);
        drop(send);
    }

    #[tokio::test]
    #[should_panic(expected = "broken")]
    #[allow(clippy::panic)]
    async fn panic_is_passed_on_to_the_caller() {
        on_disk(|| panic!("broken")).await;
    }
}
