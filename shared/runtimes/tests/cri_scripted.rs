//! The `cri` runtime with a scripted service: texts equal those of kubelet's client byte for byte, logins are used in order, and a service
//! that does not answer is reported.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use contract::{Carried, FailureClass, TraceContext};
use image::{Platform, Reference};
use runtimes::cri::{CriOptions, CriRuntime};
use runtimes::keyring::{Environment, Keyring, KeyringOptions};
use runtimes::{ImageRuntime, ImageStatus, Progress, PullFailure, PullRequest, PulledImage};
use support::scripted_cri::{CODES, Failure, PresentImage, PullAnswer, Script, ScriptedCri, StatusAnswer, VersionAnswer};
use tempfile::TempDir;

const IMAGE: &str = "registry.example/team/app:1";

fn no_logins() -> Keyring {
    Keyring::new(KeyringOptions { authfile: None, environment: Environment::default(), kubelet_file: "/nonexistent".into() })
}

fn logins_in(folder: &Path, config: &str) -> Keyring {
    let file = folder.join("config.json");
    std::fs::write(&file, config).unwrap();
    Keyring::new(KeyringOptions { authfile: Some(file), environment: Environment::default(), kubelet_file: "/nonexistent".into() })
}

fn runtime(endpoint: &str, keyring: Keyring) -> CriRuntime {
    CriRuntime::new(CriOptions::new(endpoint, keyring, clock::Clock::host())).unwrap()
}

fn request(image: &str) -> PullRequest {
    PullRequest {
        reference: Reference::parse(image).unwrap(),
        platform: None,
        trace: TraceContext::root(&mut clock::Random::seeded(1)),
        carried: None,
    }
}

fn failed(code: &str, message: &str) -> PullAnswer {
    PullAnswer::Failed(Failure::new(code, message))
}

async fn pull_of(answers: Vec<PullAnswer>) -> Result<PulledImage, PullFailure> {
    let service = ScriptedCri::start(Script { pull_image: answers, ..Script::default() });
    runtime(&service.endpoint(), no_logins()).pull(request(IMAGE), Progress::new()).await
}

async fn status_of(answer: StatusAnswer, image: &str) -> Result<Option<ImageStatus>, String> {
    let service = ScriptedCri::start(Script { image_status: vec![answer], ..Script::default() });
    let found = runtime(&service.endpoint(), no_logins()).image_status(&Reference::parse(image).unwrap(), None).await;
    found.map_err(|failure| failure.text)
}

fn odd_texts() -> Vec<String> {
    let mut texts =
        ["", " ", "plain", "say \"hi\"", "one\ntwo\r\nthree", "100%", "%s %d %41 %", "tab\tbell\u{7}nul\u{0}", "é 漢 🦀", "\u{fffd}"]
            .map(str::to_owned)
            .to_vec();
    texts.push("x".repeat(3_000));
    texts.push("x".repeat(64 * 1024));
    // Takes three bytes on the wire for each byte of the text.
    texts.push("é".repeat(32 * 1024));
    texts
}

#[tokio::test]
async fn every_code_has_kubelets_text() {
    for code in &CODES[1..] {
        let failure = pull_of(vec![failed(code, "it broke")]).await.unwrap_err();
        let whole = format!("rpc error: code = {code} desc = it broke");
        assert_eq!(failure.text, if *code == "Unknown" { "it broke".to_owned() } else { whole.clone() });
        assert_eq!(failure.auth, "anonymous");
        let inspected = status_of(StatusAnswer::Failed(Failure::new(code, "it broke")), IMAGE).await;
        assert_eq!(inspected, Err(whole));
    }
}

#[tokio::test]
async fn odd_texts_are_passed_on_unchanged() {
    for text in odd_texts() {
        assert_eq!(pull_of(vec![failed("Unknown", &text)]).await.unwrap_err().text, text);
        let expected = format!("rpc error: code = Internal desc = {text}");
        assert_eq!(pull_of(vec![failed("Internal", &text)]).await.unwrap_err().text, expected);
        let inspected = status_of(StatusAnswer::Failed(Failure::new("Unknown", &text)), IMAGE).await;
        assert_eq!(inspected, Err(format!("rpc error: code = Unknown desc = {text}")));
    }
}

#[tokio::test]
async fn texts_beyond_64_kib_are_cut() {
    let failure = pull_of(vec![failed("Unknown", &"x".repeat(200_000))]).await.unwrap_err();
    assert_eq!(failure.text.len(), 64 * 1024);
}

#[tokio::test]
async fn urls_lose_their_query_alone() {
    let text = r#"failed: Get "https://user:word@auth.example/token?scope=x&sig=y": EOF"#;
    let failure = pull_of(vec![failed("Unknown", text)]).await.unwrap_err();
    assert_eq!(failure.text, r#"failed: Get "https://auth.example/token": EOF"#);
    assert_eq!((failure.class, failure.endpoint.as_deref()), (FailureClass::RegistryUnavailable, Some("auth.example:443")));
    let inspected = status_of(StatusAnswer::Failed(Failure::new("Unknown", text)), IMAGE).await;
    assert_eq!(inspected.unwrap_err(), r#"rpc error: code = Unknown desc = failed: Get "https://auth.example/token": EOF"#);
}

#[tokio::test]
async fn pulled_image_without_a_reference_is_a_failure() {
    let failure = pull_of(vec![PullAnswer::Pulled { image_ref: String::new() }]).await.unwrap_err();
    assert_eq!(failure.text, format!("imageRef of image \"{IMAGE}\" is not set"));
    let pulled = pull_of(vec![PullAnswer::Pulled { image_ref: "sha256:a".to_owned() }]).await.unwrap();
    assert_eq!(pulled, PulledImage { image_ref: "sha256:a".to_owned(), auth: "anonymous".to_owned(), ..PulledImage::default() });
}

#[tokio::test]
async fn image_status_is_present_absent_or_incomplete() {
    let digest = |last: char| format!("sha256:{}{last}", "0".repeat(63));
    let present = |id: &str, size| {
        StatusAnswer::Present(PresentImage {
            id: id.to_owned(),
            size,
            repo_digests: vec![format!("other.example/app@{}", digest('1')), format!("docker.io/library/app@{}", digest('2'))],
        })
    };
    assert_eq!(status_of(StatusAnswer::Absent, "app").await, Ok(None));
    let expected = |digest| ImageStatus { image_ref: "sha256:a".to_owned(), size_bytes: 7, digest, platform: None };
    assert_eq!(status_of(present("sha256:a", 7), "app").await, Ok(Some(expected(Some(digest('2'))))));
    assert_eq!(status_of(present("sha256:a", 7), "third.example/app").await, Ok(Some(expected(None))));
    let by_digest = format!("app@{}", digest('3'));
    assert_eq!(status_of(present("sha256:a", 7), &by_digest).await, Ok(Some(expected(None))));
    for half in [present("", 7), present("sha256:a", 0)] {
        assert_eq!(status_of(half, "app").await, Err("Id or size of image \"app:latest\" is not set".to_owned()));
    }
}

#[tokio::test]
async fn runtime_gets_the_reference_as_asked() {
    let service = ScriptedCri::start(Script::default());
    let runtime = runtime(&service.endpoint(), no_logins());
    runtime.pull(request("busybox"), Progress::new()).await.unwrap();
    runtime.image_status(&Reference::parse("index.docker.io/library/debian:12").unwrap(), None).await.unwrap();
    let images: Vec<String> = service.calls().into_iter().map(|call| format!("{} {}", call.method, call.image)).collect();
    assert_eq!(images, ["PullImage busybox:latest", "ImageStatus index.docker.io/library/debian:12"]);
}

#[tokio::test]
async fn logins_are_tried_in_order_until_one_is_accepted() {
    let folder = TempDir::with_prefix("cri-").unwrap();
    let config = r#"{"auths": {"registry.example/team": {"auth": "YTp4"}, "registry.example": {"auth": "Yjp5"}, "*.example": {"identitytoken": "z"}}}"#;
    let answers = vec![failed("Unknown", "no"), failed("Unknown", "no"), PullAnswer::Pulled { image_ref: "sha256:a".to_owned() }];
    let service = ScriptedCri::start(Script { pull_image: answers, ..Script::default() });
    let pulled = runtime(&service.endpoint(), logins_in(folder.path(), config)).pull(request(IMAGE), Progress::new()).await.unwrap();
    let file = folder.path().join("config.json");
    assert_eq!(pulled.auth, format!("identity token for *.example in {}", file.display()));
    let logins: Vec<[String; 4]> = service
        .calls()
        .into_iter()
        .map(|call| call.auth.map(|auth| [auth.username, auth.password, auth.identity_token, auth.server_address]).unwrap())
        .collect();
    assert_eq!(logins, [["a", "x", "", ""], ["b", "y", "", ""], ["", "", "z", ""]].map(|login| login.map(str::to_owned)));
}

#[tokio::test]
async fn refused_logins_are_joined_into_one_text() {
    let folder = TempDir::with_prefix("cri-").unwrap();
    let config = r#"{"auths": {"registry.example/team": {"auth": "YTp4"}, "registry.example": {"auth": "Yjp5"}}}"#;
    let unauthorized = "reading manifest 1 in registry.example/team/app: unauthorized";
    let unknown = "reading manifest 1 in registry.example/team/app: manifest unknown";
    for (answers, text, class) in [
        (vec![failed("Unknown", unauthorized)], unauthorized.to_owned(), FailureClass::Denied),
        (vec![failed("Unknown", unauthorized), failed("Unknown", unknown)], format!("[{unauthorized}, {unknown}]"), FailureClass::NotFound),
        (vec![failed("Unknown", unknown), failed("Unknown", unauthorized)], format!("[{unknown}, {unauthorized}]"), FailureClass::NotFound),
        (
            vec![failed("NotFound", "gone"), failed("Unknown", "gone")],
            "[rpc error: code = NotFound desc = gone, gone]".to_owned(),
            FailureClass::Unknown,
        ),
    ] {
        let service = ScriptedCri::start(Script { pull_image: answers, ..Script::default() });
        let runtime = runtime(&service.endpoint(), logins_in(folder.path(), config));
        let failure = runtime.pull(request(IMAGE), Progress::new()).await.unwrap_err();
        assert_eq!((failure.text, failure.class), (text, class));
        let file = folder.path().join("config.json").display().to_string();
        assert_eq!(failure.auth, format!("login for registry.example/team in {file}, login for registry.example in {file}"));
        assert_eq!(service.calls().len(), 2);
    }
}

#[tokio::test]
async fn several_long_texts_are_bounded_together() {
    let folder = TempDir::with_prefix("cri-").unwrap();
    let config = r#"{"auths": {"registry.example/team": {"auth": "YTp4"}, "registry.example": {"auth": "Yjp5"}}}"#;
    let answers = vec![failed("Unknown", &"x".repeat(60_000)), failed("Unknown", &"y".repeat(60_000))];
    let service = ScriptedCri::start(Script { pull_image: answers, ..Script::default() });
    let runtime = runtime(&service.endpoint(), logins_in(folder.path(), config));
    let failure = runtime.pull(request(IMAGE), Progress::new()).await.unwrap_err();
    assert_eq!(failure.text.len(), 64 * 1024);
    assert!(failure.text.starts_with("[xxx") && failure.text.ends_with("yyy"));
}

#[tokio::test]
async fn unavailable_logins_fail_the_pull() {
    let folder = TempDir::with_prefix("cri-").unwrap();
    let service = ScriptedCri::start(Script::default());
    let runtime = runtime(&service.endpoint(), logins_in(folder.path(), r#"{"credsStore": "absent"}"#));
    let failure = runtime.pull(request(IMAGE), Progress::new()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NodeLocal);
    assert!(failure.text.starts_with("credential helper docker-credential-absent, named in"), "{}", failure.text);
    assert_eq!(service.calls().len(), 0, "the runtime is not asked without the login");
}

#[tokio::test]
async fn dropped_pull_is_cancelled() {
    let service = ScriptedCri::start(Script::default());
    service.hold();
    let runtime = runtime(&service.endpoint(), no_logins());
    let pull = tokio::spawn(async move { runtime.pull(request(IMAGE), Progress::new()).await });
    service.wait_for_calls("PullImage", 1).await;
    pull.abort();
    service.wait_until_given_up().await;
}

#[tokio::test]
async fn foreign_platform_is_refused_without_asking_the_runtime() {
    let service = ScriptedCri::start(Script::default());
    let runtime = runtime(&service.endpoint(), no_logins());
    let foreign = Platform::parse("linux/s390x").unwrap();
    let failure = runtime.pull(PullRequest { platform: Some(foreign), ..request(IMAGE) }, Progress::new()).await.unwrap_err();
    let expected = format!(
        "the runtime at {} pulls for its own platform, {}; linux/s390x can be pulled with --runtime oci-layout",
        service.socket().display(),
        Platform::host()
    );
    assert_eq!((failure.text, failure.class), (expected, FailureClass::NodeLocal));
    assert_eq!(service.calls().len(), 0);
    runtime.pull(PullRequest { platform: Some(Platform::host()), ..request(IMAGE) }, Progress::new()).await.unwrap();
}

/// On a paused clock the 2 min pass as soon as every task is idle.
#[tokio::test(start_paused = true)]
async fn silent_runtime_times_out_after_2_min() {
    let service = ScriptedCri::start(Script::default());
    service.hold();
    let clock = clock::Clock::host();
    let found = runtime(&service.endpoint(), no_logins()).image_status(&Reference::parse(IMAGE).unwrap(), None).await.unwrap_err();
    assert_eq!(found.text, "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
    assert_eq!(found.class, FailureClass::NodeLocal);
    assert_eq!(clock.now().monotonic.as_secs(), 120);
}

#[tokio::test]
async fn missing_socket_has_gos_text() {
    let folder = TempDir::with_prefix("cri-").unwrap();
    let socket = folder.path().join("cri.sock");
    let runtime = runtime(&socket.display().to_string(), no_logins());
    let text = |cause: &str| {
        format!(
            "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial unix {}: connect: {cause}\"",
            socket.display()
        )
    };
    let reference = Reference::parse(IMAGE).unwrap();
    let failure = runtime.pull(request(IMAGE), Progress::new()).await.unwrap_err();
    assert_eq!((failure.text, failure.class), (text("no such file or directory"), FailureClass::NodeLocal));
    let found = runtime.image_status(&reference, None).await.unwrap_err();
    assert_eq!((found.text, found.class), (text("no such file or directory"), FailureClass::NodeLocal));

    // Bound and closed: the file exists, but nobody listens.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert_eq!(runtime.image_status(&reference, None).await.unwrap_err().text, text("connection refused"));

    // After the runtime's start the next call reaches it.
    let service = ScriptedCri::start(Script::default());
    std::fs::remove_file(&socket).unwrap();
    std::os::unix::fs::symlink(service.socket(), &socket).unwrap();
    assert_eq!(runtime.image_status(&reference, None).await, Ok(None));
}

#[tokio::test]
async fn disconnecting_runtime_is_reported() {
    let folder = TempDir::with_prefix("cri-").unwrap();
    let socket = folder.path().join("cri.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let closing = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let failure = runtime(&socket.display().to_string(), no_logins()).pull(request(IMAGE), Progress::new()).await.unwrap_err();
    assert_eq!(failure.text, "rpc error: code = Unavailable desc = error reading from server: EOF");
    assert_eq!(failure.class, FailureClass::NodeLocal);
    closing.abort();
}

#[tokio::test]
async fn description_names_the_runtime_or_its_problem() {
    let folder = TempDir::with_prefix("cri-").unwrap();
    let named = VersionAnswer::Named { name: "cri-o".to_owned(), version: "1.31.2".to_owned() };
    let service = ScriptedCri::start(Script { version: vec![named], ..Script::default() });
    let described = runtime(&service.endpoint(), logins_in(folder.path(), "{}")).describe().await;
    assert_eq!((described.name.as_str(), described.version.as_str(), &described.problem), ("cri-o", "1.31.2", &None));
    assert_eq!(described.place, service.endpoint());
    assert_eq!(described.credential_sources, [format!("{} (--authfile)", folder.path().join("config.json").display())]);

    let absent = runtime("/nonexistent/cri.sock", no_logins()).describe().await;
    let expected = "nothing answers at /nonexistent/cri.sock (no such file or directory): start the runtime, or name its socket with \
                    --runtime-endpoint";
    assert_eq!((absent.name.as_str(), absent.problem.as_deref()), ("cri", Some(expected)));

    let without = VersionAnswer::Failed(Failure::new("Unimplemented", "unknown service runtime.v1.RuntimeService"));
    let service = ScriptedCri::start(Script { version: vec![without], ..Script::default() });
    let problem = runtime(&service.endpoint(), no_logins()).describe().await.problem.unwrap();
    assert!(problem.contains("does not speak CRI version 1: enable containerd's cri plugin"), "{problem}");
}

#[test]
fn endpoints_without_a_socket_path_are_refused() {
    let options = |endpoint: &str| CriOptions::new(endpoint, no_logins(), clock::Clock::host());
    let refused = CriRuntime::new(options("tcp://127.0.0.1:1")).err().unwrap().to_string();
    let expected = "runtime endpoint \"tcp://127.0.0.1:1\": only unix sockets are supported; name its socket as \
                    unix:///run/containerd/containerd.sock";
    assert_eq!(refused, expected);
}

#[test]
fn scripts_are_read_from_json() {
    let text = r#"{"image_status": [null, {"id": "sha256:a", "size": 5}, {"code": "NotFound", "message": "gone"}],
        "pull_image": [{"image_ref": "sha256:a"}, {"code": "Unknown", "message": ""}]}"#;
    let script: Script = serde_json::from_str(text).unwrap();
    assert!(matches!(script.image_status[..], [StatusAnswer::Absent, StatusAnswer::Present(_), StatusAnswer::Failed(_)]));
    assert!(matches!(script.pull_image[..], [PullAnswer::Pulled { .. }, PullAnswer::Failed(_)]));
    assert_eq!(serde_json::to_value(&script.image_status[0]).unwrap(), serde_json::Value::Null);
}

#[tokio::test]
async fn trace_is_sent_as_metadata() {
    let service = ScriptedCri::start(Script::default());
    let asked = PullRequest { carried: Carried::of(Some("vendor=1"), Some("team=a")), ..request(IMAGE) };
    let traceparent = asked.trace.traceparent();
    runtime(&service.endpoint(), no_logins()).pull(asked, Progress::new()).await.unwrap();
    let metadata = &service.metadata_of_pulls()[0];
    let sent = ["traceparent", "tracestate", "baggage"].map(|name| metadata.get(name).map(String::as_str));
    assert_eq!(sent, [Some(traceparent.as_str()), Some("vendor=1"), Some("team=a")]);
}
