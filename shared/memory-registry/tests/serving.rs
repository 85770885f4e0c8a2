//! The memory registry as a client sees it, over a plain socket, so that no HTTP client hides what is sent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use memory_registry::{Auth, BodyFault, Fault, FaultAction, Flavour, MadeImage, MemoryRegistry, Options, TokenAuth};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer: its head as text, and its body.
struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn has(&self, header: &str) -> bool {
        self.head.to_ascii_lowercase().contains(header)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Sends one request, and reads until the connection is closed.
async fn get(registry: &MemoryRegistry, path: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(registry.host()).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A fault may reset the connection; the bytes received before count.
    let _ = stream.read_to_end(&mut answer).await;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    Answer { head: String::from_utf8(answer[..end].to_vec()).unwrap(), body: answer[end..].to_vec() }
}

fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

async fn registry() -> MemoryRegistry {
    MemoryRegistry::start(Options::default()).await.unwrap()
}

#[tokio::test]
async fn image_is_served_completely_and_counted() {
    let registry = registry().await;
    let added = registry.add_image(
        "a/b",
        "1",
        &MadeImage::of_layers([100_000, 5_000]).of_flavour(Flavour::Docker).for_platforms(["linux/amd64", "linux/arm64"]),
    );
    let list = get(&registry, "/v2/a/b/manifests/1", "").await;
    assert_eq!(digest(&list.body), added.digest);
    assert!(list.has(&format!("docker-content-digest: {}", added.digest)) && list.has("manifest.list.v2+json"));
    assert_eq!(list.json()["manifests"][1]["platform"]["architecture"], "arm64");
    for blob in added.manifests[1].blobs() {
        let answer = get(&registry, &format!("/v2/a/b/blobs/{}", blob.digest), "").await;
        assert_eq!((digest(&answer.body), answer.body.len() as u64), (blob.digest.clone(), blob.size));
        assert_eq!(registry.blob_bytes_served()[&blob.digest], blob.size);
    }
    assert_eq!((registry.counts().requests, registry.counts().failing), (4, 0));
}

#[tokio::test]
async fn parts_are_served() {
    let registry = registry().await;
    let added = registry.add_image("a", "1", &MadeImage::of_layers([200_000]));
    let path = format!("/v2/a/blobs/{}", added.manifests[0].layers[0].digest);
    let whole = get(&registry, &path, "").await.body;
    for (range, status, expected) in
        [("bytes=0-", 206, &whole[..]), ("bytes=70000-", 206, &whole[70_000..]), ("bytes=70000-150000", 206, &whole[70_000..150_001])]
    {
        let answer = get(&registry, &path, &format!("range: {range}\r\n")).await;
        assert_eq!((answer.status(), answer.body.as_slice()), (status, expected), "{range}");
    }
    assert_eq!(get(&registry, &path, "range: bytes=900000-\r\n").await.status(), 416);
}

#[tokio::test]
async fn missing_content_has_the_registries_error_codes() {
    let registry = registry().await;
    registry.add_image("a", "1", &MadeImage::of_layers([1_000]));
    for (path, code) in
        [("/v2/a/manifests/2", "MANIFEST_UNKNOWN"), ("/v2/b/manifests/1", "NAME_UNKNOWN"), ("/v2/a/blobs/sha256:0", "BLOB_UNKNOWN")]
    {
        let answer = get(&registry, path, "").await;
        assert_eq!((answer.status(), &answer.json()["errors"][0]["code"]), (404, &Value::from(code)));
    }
    assert_eq!(registry.counts().failing, 3);
}

#[tokio::test]
async fn faults_apply_as_specified() {
    let registry = registry().await;
    let added = registry.add_image("a", "1", &MadeImage::of_layers([100_000]));
    let layer = &added.manifests[0].layers[0];
    let path = format!("/v2/a/blobs/{}", layer.digest);
    let whole = get(&registry, &path, "").await.body;
    let spoilt = async |fault| {
        registry.faults().clear();
        registry.faults().add(Fault::body(&layer.digest, fault));
        get(&registry, &path, "").await
    };
    assert_eq!(spoilt(BodyFault::CutAfter(70_000)).await.body, whole[..70_000]);
    let short = spoilt(BodyFault::ShortBy(10)).await;
    assert!(short.has(&format!("content-length: {}", layer.size - 10)) && short.body == whole[..whole.len() - 10]);
    let corrupt = spoilt(BodyFault::CorruptAt(66_000)).await.body;
    assert_eq!(corrupt.iter().zip(&whole).position(|(one, other)| one != other), Some(66_000));
    assert_eq!(spoilt(BodyFault::BytesPerSecond(2_000_000)).await.body, whole);
    registry.faults().clear();
    registry.reset_counts();
    registry.faults().add(Fault::new("/v2/", FaultAction::Close));
    assert_eq!(get(&registry, "/v2/", "").await.head, "");
    assert_eq!(registry.counts().failing, 1);
}

#[tokio::test]
async fn tokens_are_demanded_and_issued() {
    let auth = TokenAuth {
        user: "u".to_owned(),
        password: "p".to_owned(),
        identity_token: String::new(),
        anonymous: false,
        expires_in: "9".to_owned(),
    };
    let registry = MemoryRegistry::start(Options { auth: Auth::Token(auth), ..Options::default() }).await.unwrap();
    registry.add_image("a", "1", &MadeImage::of_layers([1_000]));
    let refused = get(&registry, "/v2/a/manifests/1", "").await;
    assert!(refused.status() == 401 && refused.has("www-authenticate: bearer realm=") && refused.has("scope=\"repository:a:pull\""));
    assert_eq!((registry.counts().challenges, registry.counts().failing), (1, 0));
    let token = get(&registry, "/token?scope=repository%3Aa%3Apull", "authorization: Basic dTpw\r\n").await.json()["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let bearer = format!("authorization: Bearer {token}\r\n");
    assert_eq!(get(&registry, "/v2/a/manifests/1", &bearer).await.status(), 200);
    assert_eq!(get(&registry, "/v2/b/manifests/1", &bearer).await.status(), 401, "a token is good for its repository alone");
    assert_eq!(get(&registry, "/token", "").await.status(), 401);
    assert_eq!(registry.counts().failing, 2);
    assert!(!format!("{:?}", registry.requests()).contains(&token));
}

/// Layers are real: the host's `tar` unpacks them, with their checksum.
#[tokio::test]
async fn layers_unpack() {
    let registry = registry().await;
    let added = registry.add_image("a", "1", &MadeImage::of_layers([300_000]));
    let layer = get(&registry, &format!("/v2/a/blobs/{}", added.manifests[0].layers[0].digest), "").await.body;
    let mut tar = std::process::Command::new("tar")
        .args(["-tzvf", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut tar.stdin.take().unwrap(), &layer).unwrap();
    let output = tar.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("data/"));
}
