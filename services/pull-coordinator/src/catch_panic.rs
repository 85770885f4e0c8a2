//! Keeps a panic of an optional question to the runtime away from the pull.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;

/// The result of `asking`; none if it panics. The panic is logged, and ends neither the pull nor the actor.
///
/// `asking` is dropped after a panic, so it need not be unwind safe.
pub(crate) async fn catch_panic<T>(what: &'static str, asking: impl Future<Output = T>) -> Option<T> {
    let answered = AssertUnwindSafe(asking).catch_unwind().await;
    answered.inspect_err(|_| tracing::error!(what, "this check panicked; the node goes on without it; report this as a bug")).ok()
}
