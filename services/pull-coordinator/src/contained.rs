//! Asking a runtime for something that a pull can do without.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;

/// What comes of `asking`; none if it panics, which is reported and ends neither the pull nor the actor.
///
/// Nothing of `asking` is used after a panic, so it need not be unwind safe.
pub(crate) async fn contained<T>(what: &'static str, asking: impl Future<Output = T>) -> Option<T> {
    let answered = AssertUnwindSafe(asking).catch_unwind().await;
    answered.inspect_err(|_| tracing::error!(what, "this check panicked; the node goes on without it; report this as a bug")).ok()
}
