//! A panic that a test plants in a task of a running process. Not in release builds.

use std::sync::OnceLock;

use tokio::sync::Semaphore;

/// The task that is to panic when asked.
static PLANTED: OnceLock<String> = OnceLock::new();
/// Closed when the planted panic is to happen.
static TRIGGER: Semaphore = Semaphore::const_new(0);

/// Plants a panic in every task of this name that is spawned from now on. Only the first call has an effect.
pub fn plant_panic(task: String) {
    // A second name is ignored, as documented.
    let _ = PLANTED.set(task);
}

/// Makes the tasks with a planted panic panic; false if there are none.
pub fn panic_planted() -> bool {
    TRIGGER.close();
    PLANTED.get().is_some()
}

/// Runs a task, or panics when asked to.
pub(crate) async fn with_planted_panic<T>(name: &'static str, task: impl Future<Output = T>) -> T {
    if PLANTED.get().is_none_or(|planted| planted != name) {
        return task.await;
    }
    tokio::select! {
        biased;
        never = panic_on_request(name) => never,
        done = task => done,
    }
}

async fn panic_on_request<T>(name: &str) -> T {
    // It never has permits, so this only ends when it is closed.
    let _ = TRIGGER.acquire().await;
    panic_on_purpose(&format!("planted in the task {name}"))
}

/// Panics, for tests of panics.
#[expect(clippy::panic, reason = "the planted panic")]
pub fn panic_on_purpose(why: &str) -> ! {
    panic!("on purpose: {why}")
}
