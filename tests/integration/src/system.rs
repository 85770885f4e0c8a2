//! Actix systems for tests: one with paused time, which moves when all tasks wait for time, and one with real time.

use std::future::Future;

use actix::System;
use tokio::runtime::Builder;

/// How many turns the other tasks get before a wait for a condition fails. Each turn takes well under 1 us.
const TURNS: usize = 100_000;

/// Runs a test whose time moves only by `tokio::time::advance`, or when every task waits for time.
pub fn paused<F: Future>(test: F) -> F::Output {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime can be made");
    System::with_tokio_rt(runtime).block_on(test)
}

/// Runs a test in real time, for real sockets.
pub fn real<F: Future>(test: F) -> F::Output {
    System::with_tokio_rt(|| Builder::new_current_thread().enable_all().build().expect("a runtime can be made")).block_on(test)
}

/// Lets the other tasks run until the condition is met. In a paused system no time passes meanwhile.
///
/// # Panics
/// If it is not met in `TURNS` turns.
pub async fn until<F: Future<Output = bool>>(what: &str, mut met: impl FnMut() -> F) {
    for _ in 0..TURNS {
        if met().await {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it did not come to pass that {what}");
}
