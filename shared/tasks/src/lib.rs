//! The only way to spawn a task. A panic of a task that nobody awaits must be reported: without the task events are not published, or
//! connections not accepted, while the process seems to work.
//!
//! - [`spawn`], [`spawn_local`] and [`spawn_in`] report a panic of the task under its name. An agent reads [`panics`] and ends.
//! - [`blocking`], [`contained_on`] and [`contained_in`] pass a panic on to the code that awaits the result. It decides what the panic
//!   means; [`blocking`] reports it if nobody awaits any more.
//! - [`PanicGuard`] does the same for what is not a future, such as an actor.
//!
//! A task that is aborted, or dropped with its runtime, has not panicked. Dropping a handle aborts no task, as with tokio.
#![allow(clippy::disallowed_methods, reason = "the one place where tasks are spawned")]

mod panics;
#[cfg(debug_assertions)]
mod planted;

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use panics::report;
pub use panics::{Panic, PanicGuard, Panics, panics};
#[cfg(debug_assertions)]
pub use planted::{panic_on_purpose, panic_planted, plant_panic};

/// Spawns a task on the current tokio runtime. If it panics, that is reported under `name`.
pub fn spawn<T: Send + 'static>(name: &'static str, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(reported(name, task))
}

/// As [`spawn`], on the thread of the caller, for what is not `Send`. Must be called inside an actix system or a `LocalSet`.
pub fn spawn_local<T: 'static>(name: &'static str, task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    tokio::task::spawn_local(reported(name, task))
}

/// As [`spawn`], as a member of a set.
pub fn spawn_in<T: Send + 'static>(set: &mut JoinSet<T>, name: &'static str, task: impl Future<Output = T> + Send + 'static) {
    set.spawn(reported(name, task));
}

/// Spawns a task whose result the caller awaits, on another runtime. Its panic is logged, and the caller gets it as an error of the handle.
pub fn contained_on<T: Send + 'static>(
    runtime: &Handle,
    name: &'static str,
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    runtime.spawn(logged(name, task))
}

/// As [`contained_on`], as a member of a set of the current runtime.
pub fn contained_in<T: Send + 'static>(set: &mut JoinSet<T>, name: &'static str, task: impl Future<Output = T> + Send + 'static) {
    set.spawn(logged(name, task));
}

/// Runs `work` on a thread that may block, from this moment on. Its panic goes to the caller that awaits the result; if the caller has
/// given up, the panic is reported under `name`.
pub fn blocking<T: Send + 'static>(name: &'static str, work: impl FnOnce() -> T + Send + 'static) -> impl Future<Output = T> + Send {
    let (send, receive) = oneshot::channel();
    // The handle is not needed: a thread cannot be aborted.
    drop(tokio::task::spawn_blocking(move || {
        // The state that `work` may leave broken belongs to it, or to the caller that sees the panic.
        let done = catch_unwind(AssertUnwindSafe(work));
        if let Err(Err(_)) = send.send(done) {
            report(Panic::Task(name));
        }
    }));
    async move {
        match receive.await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => resume_unwind(panic),
            // The tokio runtime ends before the work began, and the caller ends with it.
            Err(_) => pending().await,
        }
    }
}

fn reported<T>(name: &'static str, task: impl Future<Output = T>) -> impl Future<Output = T> {
    caught(may_panic(name, task), move || report(Panic::Task(name)))
}

fn logged<T>(name: &'static str, task: impl Future<Output = T>) -> impl Future<Output = T> {
    let log = move || tracing::error!(task = name, "a task panicked; what waits for it fails; report this as a bug");
    caught(may_panic(name, task), log)
}

/// The task, which panics if a test plants that. It is boxed: each future around it would have room for it twice, as an argument and while
/// it runs, and a pull has 14 KB of state.
#[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "nothing is planted in release builds"))]
fn may_panic<T>(name: &'static str, task: impl Future<Output = T>) -> impl Future<Output = T> {
    let task = Box::pin(task);
    #[cfg(debug_assertions)]
    let task = planted::with_planted_panic(name, task);
    task
}

/// Runs `on_panic` if the task panics, and passes the panic on.
async fn caught<T>(task: impl Future<Output = T>, on_panic: impl FnOnce()) -> T {
    // Nothing of the task is used after its panic.
    let done = AssertUnwindSafe(task).catch_unwind().await;
    done.unwrap_or_else(|panic| {
        on_panic();
        resume_unwind(panic)
    })
}

#[cfg(test)]
mod tests;
