//! Status calls to a CRI runtime, which use a direct connection.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::FailureClass;
use image::Reference;
use runtimes::cri::{CriOptions, CriRuntime};
use runtimes::keyring::{Environment, Keyring, KeyringOptions};
use runtimes::{ImageRuntime as _, ImageStatus};
use support::scripted_cri::{Failure, PresentImage, Script, ScriptedCri, StatusAnswer};
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};

const IMAGE: &str = "registry.example/team/app:v1";

fn runtime(endpoint: &str) -> CriRuntime {
    let keyring = Keyring::new(KeyringOptions { authfile: None, environment: Environment::default(), kubelet_file: "/nonexistent".into() });
    CriRuntime::new(CriOptions::new(endpoint, keyring, clock::Clock::host())).unwrap()
}

async fn status(runtime: &CriRuntime) -> Result<Option<ImageStatus>, (String, FailureClass)> {
    let found = runtime.image_status(&Reference::parse(IMAGE).unwrap(), None).await;
    found.map_err(|failure| (failure.text, failure.class))
}

fn present(repo_digests: Vec<String>) -> StatusAnswer {
    StatusAnswer::Present(PresentImage { id: "sha256:a".to_owned(), size: 7, repo_digests })
}

#[tokio::test]
async fn logins_are_those_for_the_registry() {
    let logins = runtime("unix:///nonexistent/cri.sock").logins(&Reference::parse(IMAGE).unwrap()).await.unwrap();
    assert_eq!(logins.iter().map(|logins| logins.endpoint.as_str()).collect::<Vec<_>>(), ["registry.example"]);
}

/// The answer is several times as large as the window.
#[tokio::test]
async fn large_answer_is_received_completely() {
    let digest = |number: usize| format!("sha256:{number:064}");
    let mut names: Vec<String> = (0..50_000).map(|number| format!("other.example/team/app@{}", digest(number))).collect();
    names.push(format!("registry.example/team/app@{}", digest(50_000)));
    assert!(names.iter().map(String::len).sum::<usize>() > 4 * 1024 * 1024);
    let service = ScriptedCri::start(Script { image_status: vec![present(names)], ..Script::default() });
    let runtime = runtime(&service.endpoint());
    for _ in 0..2 {
        assert_eq!(status(&runtime).await.unwrap().unwrap().digest, Some(digest(50_000)));
    }
}

#[tokio::test]
async fn failed_status_call_is_made_once() {
    let codes = ["Unknown", "Unavailable", "Internal", "Canceled", "OutOfRange"];
    let failed = |code: &&str| StatusAnswer::Failed(Failure::new(code, "it broke"));
    let service = ScriptedCri::start(Script { image_status: codes.iter().map(failed).collect(), ..Script::default() });
    let runtime = runtime(&service.endpoint());
    for code in codes {
        assert_eq!(status(&runtime).await.unwrap_err().0, format!("rpc error: code = {code} desc = it broke"));
    }
    assert_eq!(service.calls().len(), codes.len());
}

#[tokio::test]
async fn concurrent_status_calls_share_a_connection() {
    let service = ScriptedCri::start(Script { image_status: vec![present(Vec::new())], ..Script::default() });
    let folder = TempDir::with_prefix("cri-").unwrap();
    let socket = folder.path().join("cri.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let (accepted, behind) = (Arc::new(AtomicUsize::new(0)), service.socket());
    let count = Arc::clone(&accepted);
    let passing = tokio::spawn(async move {
        while let Ok((mut asking, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let mut answering = UnixStream::connect(&behind).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut asking, &mut answering).await });
        }
    });
    let runtime = runtime(&socket.display().to_string());
    let answers = futures::future::join_all((0..500).map(|_| status(&runtime))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Some(_)))));
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
    passing.abort();
}

#[tokio::test]
async fn dropped_status_call_is_cancelled() {
    let service = ScriptedCri::start(Script::default());
    service.hold();
    let runtime = runtime(&service.endpoint());
    let asking = tokio::spawn(async move { status(&runtime).await });
    service.wait_for_calls("ImageStatus", 1).await;
    asking.abort();
    service.wait_until_given_up().await;
}

#[tokio::test]
async fn restarted_runtime_is_reached_again() {
    let folder = TempDir::with_prefix("cri-").unwrap();
    let socket = folder.path().join("cri.sock");
    let runtime = runtime(&socket.display().to_string());
    for _ in 0..2 {
        // Its connections end with its process.
        let process = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let service = {
            let _inside = process.enter();
            ScriptedCri::start(Script { image_status: vec![present(Vec::new())], ..Script::default() })
        };
        std::os::unix::fs::symlink(service.socket(), &socket).unwrap();
        for _ in 0..2 {
            assert_eq!(status(&runtime).await.unwrap().unwrap().size_bytes, 7);
        }
        std::fs::remove_file(&socket).unwrap();
        drop(service);
        process.shutdown_background();
    }
}

#[tokio::test]
async fn disconnecting_runtime_is_reported() {
    let folder = TempDir::with_prefix("cri-").unwrap();
    let socket = folder.path().join("cri.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let closing = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let (text, class) = status(&runtime(&socket.display().to_string())).await.unwrap_err();
    assert_eq!(text, "rpc error: code = Unavailable desc = error reading from server: EOF");
    assert_eq!(class, FailureClass::NodeLocal);
    closing.abort();
}
