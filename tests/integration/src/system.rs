//! Actix systems for tests: one whose time stands still unless nothing else is left to do, and one with real time.

use std::future::Future;

use actix::System;
use tokio::runtime::Builder;

/// How many turns the other tasks get before a condition counts as never met. Each turn costs well under a microsecond.
const TURNS: usize = 100_000;

/// Runs a test whose time moves only by `tokio::time::advance`, or by itself when every task waits for time.
pub fn paused<F: Future>(test: F) -> F::Output {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime can be made");
    System::with_tokio_rt(runtime).block_on(test)
}

/// Runs a test in real time, for real sockets.
pub fn real<F: Future>(test: F) -> F::Output {
    System::with_tokio_rt(|| Builder::new_current_thread().enable_all().build().expect("a runtime can be made")).block_on(test)
}

/// Lets the other tasks run until the condition is met. No time passes in a paused system meanwhile.
///
/// # Panics
/// When it is not met in `TURNS` turns.
pub async fn until<F: Future<Output = bool>>(what: &str, mut met: impl FnMut() -> F) {
    for _ in 0..TURNS {
        if met().await {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it did not come to pass that {what}");
}
