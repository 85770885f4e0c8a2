//! Options that cannot be used are reported before connecting.

use std::path::{Path, PathBuf};

use bus::nats::{NatsBus, NatsOptions};
use tempfile::TempDir;

use super::urls;

async fn refusal(options: NatsOptions) -> String {
    match NatsBus::connect(options).await {
        Ok(_) => panic!("these options cannot work"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn urls_that_cannot_be_read_are_named_without_their_login() {
    for (given, expected) in [
        ("http://a:4222", "\"http://a:4222\" is not the URL of a NATS server: the scheme http is not supported"),
        ("ws://ann:pw@a", "\"ws://***@a\" is not the URL of a NATS server: the scheme ws is not supported"),
        ("nats://ann:pw@", "\"nats://***@\" is not the URL of a NATS server"),
        ("nats://ann:pw@a:port", "\"nats://***@a:port\" is not the URL of a NATS server: invalid port number"),
        ("nats://ann:pw,x@a", "\"***\" is not the URL of a NATS server: invalid port number"),
        ("a,nats://b c", "\"nats://b c\" is not the URL of a NATS server"),
        ("", "no NATS server is named"),
        (" , ", "no NATS server is named"),
        ("nats://ann:pw@a,nats://bob:pw@b", "the NATS URLs hold different logins"),
    ] {
        let text = refusal(urls(given)).await;
        assert!(text.starts_with(expected), "{given}: {text}");
        assert!(!text.contains("pw"), "{text}");
    }
    assert!(refusal(NatsOptions::default()).await.contains("--nats nats://host:4222"));
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let folder = TempDir::new().unwrap();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let missing = folder.path().join("missing");
    type Set = fn(PathBuf) -> NatsOptions;
    let sets: [(&str, Set); 4] = [
        ("credentials file", |path| NatsOptions { creds: Some(path), ..urls("a") }),
        ("nkey file", |path| NatsOptions { nkey: Some(path), ..urls("a") }),
        ("CA file", |path| NatsOptions { ca: Some(path), ..urls("a") }),
        ("client certificate", |path| NatsOptions { cert: Some(path.clone()), key: Some(path), ..urls("a") }),
    ];
    for (what, set) in sets {
        let text = refusal(set(missing.clone())).await;
        assert!(text.contains(what) && text.contains(missing.to_str().unwrap()) && text.contains("cannot be read"), "{text}");
        let text = refusal(set(empty.clone())).await;
        assert!(text.contains(what) && text.contains(empty.to_str().unwrap()) && text.contains("it holds no"), "{text}");
    }
}

#[tokio::test]
async fn half_a_client_certificate_is_refused() {
    let options = NatsOptions { cert: Some("/a".into()), ..urls("a") };
    assert!(refusal(options).await.contains("--nats-cert and --nats-key together"));
}

fn context(config_home: &Path, name: &str) -> NatsOptions {
    let config_home = Some(config_home.to_owned());
    NatsOptions { context: Some(name.to_owned()), config_home, ..NatsOptions::default() }
}

#[tokio::test]
async fn contexts_that_cannot_be_used_are_named() {
    let folder = TempDir::new().unwrap();
    let contexts = folder.path().join("nats/context");
    std::fs::create_dir_all(&contexts).unwrap();
    for (name, text, expected) in [
        ("missing", None, "there is no NATS context missing at"),
        ("../x", None, "\"../x\" is not the name of a NATS context"),
        ("broken", Some("{ \"url\": "), "cannot be used: line 1, column 9 is not as expected"),
        ("odd", Some("{ \"password\": 4711 }"), "cannot be used: line 1"),
        ("nsc", Some("{ \"nsc\": \"nsc://o/a/u\" }"), "`nsc` is not supported: export a credentials file"),
        ("login", Some("{ \"creds\": \"/nowhere/x.creds\" }"), "credentials file /nowhere/x.creds cannot be read"),
    ] {
        if let Some(text) = text {
            std::fs::write(contexts.join(format!("{name}.json")), text).unwrap();
        }
        let error = refusal(context(folder.path(), name)).await;
        assert!(error.contains(expected), "{name}: {error}");
        assert!(!error.contains("4711"), "{error}");
    }
    let homeless = NatsOptions { context: Some("prod".to_owned()), ..NatsOptions::default() };
    assert!(refusal(homeless).await.contains("set HOME or XDG_CONFIG_HOME"));
}
