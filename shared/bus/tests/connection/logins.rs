//! Logins: password, token, nkey, credentials file, context.

use std::path::PathBuf;

use bus::nats::{NatsBus, NatsOptions};
use bus::{BucketSpec, Messaging, SharedState};
use nkeys::KeyPair;
use support::nats::{NatsConfig, Tenancy};
use tempfile::TempDir;

use super::{reported_reason, server, until_connected, until_disconnected, urls, works};

const PASSWORD: &str = "hunter2@home/%";
const PASSWORD_IN_URL: &str = "hunter2%40home%2F%25";

fn with_password() -> NatsConfig {
    NatsConfig::default().with(&format!("authorization {{ user: ann, password: {PASSWORD:?} }}"))
}

fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn user_and_password_in_the_url() {
    let server = server!(with_password());
    works(urls(format!("nats://ann:{PASSWORD_IN_URL}@{}", server.address()))).await;
}

#[tokio::test]
async fn a_login_given_once_counts_for_all_urls() {
    let server = server!(with_password());
    works(urls(format!("nats://ann:{PASSWORD_IN_URL}@127.0.0.1:1,{}", server.address()))).await;
}

#[tokio::test]
async fn a_token_in_the_url() {
    let server = server!(NatsConfig::default().with("authorization { token: s3cret }"));
    works(urls(format!("nats://s3cret@{}", server.address()))).await;
}

#[tokio::test]
async fn a_token_in_a_file_that_is_read_at_each_connect() {
    let folder = TempDir::new().unwrap();
    let server = server!(NatsConfig::default().with("authorization { token: s3cret }"));
    let token_file = file(&folder, "token", "old\n");
    let options = NatsOptions { token_file: Some(token_file.clone()), inbox_prefix: Some("_INBOX_n1".to_owned()), ..urls(server.url()) };
    let bus = NatsBus::connect(options.clone()).await.unwrap();
    reported_reason(&bus, &["authorization violation"]).await;
    file(&folder, "token", "s3cret\n");
    bus.wait_connected(super::LIMIT).await.unwrap();
    assert!(bus.new_inbox().starts_with("_INBOX_n1."));
    works(options.clone()).await;
    for (text, expected) in [("", "holds not one token"), ("two words", "holds not one token")] {
        std::fs::write(&token_file, text).unwrap();
        let error = NatsBus::connect(options.clone()).await.err().unwrap().to_string();
        assert!(error.contains(expected) && !error.contains("words"), "{error}");
    }
    std::fs::remove_file(&token_file).unwrap();
    assert!(NatsBus::connect(options).await.err().unwrap().to_string().contains("cannot be read"));
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let server = server!(with_password());
    let options = urls(format!("nats://ann:hunter3@{}", server.address()));
    let bus = NatsBus::connect(options.clone()).await.unwrap();
    let reason = reported_reason(&bus, &[&server.url(), "authorization violation", "--nats-creds"]).await;
    let error = bus.wait_connected(std::time::Duration::from_millis(1)).await.unwrap_err();
    for text in [reason, error.to_string(), format!("{error:?}"), format!("{options:?}"), options.redacted()] {
        assert!(!text.contains("hunter3") && !text.contains("ann:"), "{text}");
    }
}

#[tokio::test]
async fn missing_login_is_reported() {
    let server = server!(with_password());
    let bus = NatsBus::connect(urls(server.url())).await.unwrap();
    reported_reason(&bus, &["authorization violation", "--nats-creds"]).await;
}

#[tokio::test]
async fn nkey_file_connects_and_one_of_another_user_is_refused() {
    let (folder, user) = (TempDir::new().unwrap(), KeyPair::new_user());
    let server = server!(NatsConfig::default().with(&format!("authorization {{ users: [{{ nkey: {} }}] }}", user.public_key())));
    let nkey = Some(file(&folder, "user.nk", &format!("{}\n", user.seed().unwrap())));
    works(NatsOptions { nkey, ..urls(server.url()) }).await;
    let nkey = Some(file(&folder, "other.nk", &KeyPair::new_user().seed().unwrap()));
    let bus = NatsBus::connect(NatsOptions { nkey, ..urls(server.url()) }).await.unwrap();
    reported_reason(&bus, &["authorization violation"]).await;
}

fn with_accounts(tenancy: &Tenancy) -> NatsConfig {
    NatsConfig::default().with(&tenancy.configuration())
}

#[tokio::test]
async fn credentials_file_connects() {
    let (folder, tenancy) = (TempDir::new().unwrap(), Tenancy::new());
    let server = server!(with_accounts(&tenancy));
    let creds = Some(file(&folder, "user.creds", &tenancy.credentials()));
    works(NatsOptions { creds, ..urls(server.url()) }).await;
}

#[tokio::test]
async fn wrong_credentials_are_refused() {
    let (folder, tenancy) = (TempDir::new().unwrap(), Tenancy::new());
    let server = server!(with_accounts(&tenancy));
    let creds = Some(file(&folder, "user.creds", &Tenancy::new().credentials()));
    let bus = NatsBus::connect(NatsOptions { creds, ..urls(server.url()) }).await.unwrap();
    reported_reason(&bus, &["authorization violation", "--nats-creds"]).await;
}

#[tokio::test]
async fn a_renewed_credentials_file_is_read_at_the_next_connect() {
    let (folder, tenancy) = (TempDir::new().unwrap(), Tenancy::new());
    let mut server = server!(with_accounts(&tenancy));
    let path = file(&folder, "user.creds", &tenancy.credentials());
    let bus = NatsBus::connect(NatsOptions { creds: Some(path.clone()), ..urls(server.url()) }).await.unwrap();
    let mut changes = bus.health_changes();
    until_connected(&mut changes).await;
    std::fs::remove_file(&path).unwrap();
    server.kill();
    until_disconnected(&mut changes).await;
    server.restart();
    reported_reason(&bus, &["credentials file", path.to_str().unwrap()]).await;
    file(&folder, "user.creds", &tenancy.credentials());
    until_connected(&mut changes).await;
}

fn context(folder: &TempDir, text: &str) -> NatsOptions {
    file(folder, "nats/context/prod.json", text);
    NatsOptions {
        context: Some("prod".to_owned()),
        config_home: Some(folder.path().to_owned()),
        home: Some(folder.path().to_owned()),
        ..NatsOptions::default()
    }
}

#[tokio::test]
async fn a_context_with_user_and_password() {
    let folder = TempDir::new().unwrap();
    let server = server!(with_password());
    let text =
        format!(r#"{{ "description": "ours", "url": "{}", "user": "ann", "password": "{PASSWORD}", "color_scheme": "" }}"#, server.url());
    works(context(&folder, &text)).await;
    let elsewhere = text.replace(&server.url(), "nats://127.0.0.1:1");
    works(NatsOptions { urls: Some(server.url()), ..context(&folder, &elsewhere) }).await;
}

#[tokio::test]
async fn a_context_with_an_inbox_prefix_or_a_token() {
    let folder = TempDir::new().unwrap();
    let server = server!(NatsConfig::default().with(
        "accounts { A { jetstream: enabled, users: [
           { user: ann, password: pw, permissions: { subscribe: { deny: [\"_INBOX.>\"] } } } ] } }",
    ));
    let text = format!(r#"{{ "url": "{}", "user": "ann", "password": "pw", "inbox_prefix": "_INBOX_ann" }}"#, server.url());
    works(context(&folder, &text)).await;
    let bus = NatsBus::connect(context(&folder, &text)).await.unwrap();
    assert!(bus.new_inbox().starts_with("_INBOX_ann."));
    let server = server!(NatsConfig::default().with("authorization { token: s3cret }"));
    works(context(&folder, &format!(r#"{{ "url": "{}", "token": "s3cret" }}"#, server.url()))).await;
}

#[tokio::test]
async fn a_context_with_a_jetstream_domain() {
    let folder = TempDir::new().unwrap();
    // The domain cannot be set together with the folder of the store, so the whole section is given here.
    let store = folder.path().join("store");
    let server = server!(NatsConfig::default().without_jetstream().with(&format!("jetstream {{ domain: hub, store_dir: {store:?} }}")));
    let options = context(&folder, &format!(r#"{{ "url": "{}", "jetstream_domain": "hub" }}"#, server.url()));
    let bus = NatsBus::connect(options).await.unwrap();
    bus.wait_connected(super::LIMIT).await.unwrap();
    let spec = BucketSpec { name: "state".to_owned(), marker_ttl: None, max_bytes: None, forgets_oldest: false, republish_to: None };
    let state = bus.bucket(&spec).await.unwrap();
    assert_eq!(state.create("a", "1".into(), None).await, Ok(1));
    assert_eq!(state.get("a").await.unwrap().unwrap().value, "1");
    let options = context(&folder, &format!(r#"{{ "url": "{}", "jetstream_domain": "elsewhere" }}"#, server.url()));
    reported_reason(&NatsBus::connect(options).await.unwrap(), &["no JetStream"]).await;
}

#[tokio::test]
async fn a_context_with_files_beneath_the_home_folder() {
    let (folder, tenancy) = (TempDir::new().unwrap(), Tenancy::new());
    let server = server!(with_accounts(&tenancy));
    file(&folder, "keys/user.creds", &tenancy.credentials());
    works(context(&folder, &format!(r#"{{ "url": "{}", "creds": "~/keys/user.creds" }}"#, server.url()))).await;
}
