use std::sync::mpsc;
use std::time::Duration;

use super::*;

/// The time limit of a step, longer than any takes.
const LIMIT: Duration = Duration::from_secs(20);

/// Whether the next panic of this task arrives; other tests of this process panic at the same time.
async fn panic_of(panics: &mut Panics, task: &str) -> bool {
    let found = async { while !matches!(panics.next().await, Panic::Task(name) | Panic::Service(name) if name == task) {} };
    tokio::time::timeout(LIMIT, found).await.is_ok()
}

/// Whether a panic of this task was reported before this moment.
async fn was_reported(panics: &mut Panics, task: &'static str) -> bool {
    report(Panic::Task("the end of the test"));
    loop {
        match panics.next().await {
            Panic::Task("the end of the test") => return false,
            Panic::Task(name) if name == task => return true,
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_panic_of_a_task_is_reported_and_returned_by_its_handle() {
    let mut reported_panics = panics();
    let ended = spawn("spawned", async { panic!("on purpose") }).await;
    assert!(ended.is_err_and(|error| error.is_panic()));
    assert!(panic_of(&mut reported_panics, "spawned").await);
    let mut set = JoinSet::new();
    spawn_in(&mut set, "in a set", async { panic!("on purpose") });
    assert!(panic_of(&mut reported_panics, "in a set").await);
    // A panic is reported even if the handle was dropped.
    drop(spawn("dropped handle", async { panic!("on purpose") }));
    assert!(panic_of(&mut reported_panics, "dropped handle").await);
    let local = tokio::task::LocalSet::new();
    let ended = local.run_until(async { spawn_local("local", async { panic!("on purpose") }).await }).await;
    assert!(ended.is_err_and(|error| error.is_panic()));
    assert!(panic_of(&mut reported_panics, "local").await);
}

#[tokio::test]
async fn a_task_that_is_aborted_or_dropped_with_its_runtime_has_not_panicked() {
    let mut reported_panics = panics();
    let task = spawn("aborted", pending::<()>());
    task.abort();
    assert!(task.await.is_err_and(|error| error.is_cancelled()));
    let other = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { drop(spawn("aborted", pending::<()>())) });
    });
    other.join().unwrap();
    // Nor is one that is dropped by a panicking thread.
    let panicked = tokio::task::spawn_blocking(|| {
        let _task = reported("aborted", pending::<()>());
        panic!("on purpose")
    });
    assert!(panicked.await.is_err_and(|error| error.is_panic()));
    assert!(!was_reported(&mut reported_panics, "aborted").await);
}

#[tokio::test]
async fn a_panic_that_a_caller_awaits_goes_to_the_caller_alone() {
    let mut reported_panics = panics();
    let ended = contained_on(&Handle::current(), "contained", async { panic!("on purpose") }).await;
    assert!(ended.is_err_and(|error| error.is_panic()));
    let mut set = JoinSet::new();
    contained_in(&mut set, "contained", async { panic!("on purpose") });
    assert!(set.join_next().await.unwrap().is_err_and(|error| error.is_panic()));
    let waiting = tokio::spawn(async { blocking("contained", || panic!("on purpose")).await });
    assert!(waiting.await.is_err_and(|error| error.is_panic()));
    assert_eq!(blocking("contained", || 7).await, 7);
    assert!(!was_reported(&mut reported_panics, "contained").await);
}

#[tokio::test]
async fn a_panic_of_abandoned_blocking_work_is_reported() {
    let mut reported_panics = panics();
    let (go, wait) = mpsc::channel::<()>();
    drop(blocking("given up", move || {
        let _ = wait.recv_timeout(LIMIT);
        panic!("on purpose")
    }));
    drop(go);
    assert!(panic_of(&mut reported_panics, "given up").await);
}

#[tokio::test]
async fn a_guard_that_is_dropped_while_panicking_reports_its_service() {
    let mut reported_panics = panics();
    drop(PanicGuard::of("calm"));
    let broken = tokio::task::spawn_blocking(|| {
        let _guard = PanicGuard::of("broken");
        panic!("on purpose")
    });
    assert!(broken.await.is_err());
    assert_eq!(Panic::Service("broken").to_string(), "the service broken");
    assert!(panic_of(&mut reported_panics, "broken").await);
}
