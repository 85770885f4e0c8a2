//! Credential helpers: their input, their answers, and the errors of helpers that fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::unix::fs::symlink;
use std::path::Path;

use runtimes::keyring::{Audience, Credential, Environment, Keyring, KeyringError, KeyringOptions};
use tempfile::TempDir;

/// A node with one login file and its own PATH, in which the scripted helper has several names.
struct Node {
    folder: TempDir,
}

impl Node {
    fn new(config: &str, helpers: &[&str]) -> Self {
        let folder = TempDir::with_prefix("keyring-").unwrap();
        let helper_program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/helpers/docker-credential-scripted");
        for name in helpers {
            // A symlink, not a copy: a program that was just written may still be open for writing in a forked test.
            symlink(&helper_program, folder.path().join(format!("docker-credential-{name}"))).unwrap();
        }
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        Self { folder }
    }

    async fn lookup(&self, repository: &str) -> Result<Vec<Credential>, KeyringError> {
        let path = format!("relative:{}:/usr/bin:/bin", self.folder.path().display());
        let environment = [("PATH", path.as_str()), ("HELPER_USER", "robot")].into_iter().collect::<Environment>();
        let authfile = Some(self.folder.path().join("config.json"));
        Keyring::new(KeyringOptions { authfile, environment, kubelet_file: "/nonexistent".into() })
            .lookup(&Audience::runtime(repository))
            .await
    }

    async fn failure(&self, repository: &str) -> String {
        let error = self.lookup(repository).await.expect_err("the helper fails");
        let text = error.to_string();
        assert!(!text.contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{text}");
        text.replace(&self.folder.path().display().to_string(), "DIR")
    }
}

#[tokio::test]
async fn helper_gets_the_server_and_gives_the_login() {
    let config = r#"{"credHelpers": {"registry.example": "good", "https://index.docker.io/v1/": "good", "*.cloud.example": "good"},
        "credsStore": "environment"}"#;
    let node = Node::new(config, &["good", "environment"]);
    for (repository, user, helper) in [
        ("registry.example/team/app", "at registry.example", "good"),
        ("docker.io/library/busybox", "at https://index.docker.io/v1/", "good"),
        ("eu.cloud.example:443/app", "robot", "environment"),
        ("eu.cloud.example/app", "at eu.cloud.example", "good"),
        ("localhost:5000/app", "robot", "environment"),
    ] {
        let found = node.lookup(repository).await.unwrap();
        let [credential] = found.as_slice() else { panic!("{repository}: {found:?}") };
        assert_eq!((credential.username(), credential.password()), (user, "hunter2"), "{repository}");
        let named = format!("from helper {helper}, named in {}", node.folder.path().join("config.json").display());
        assert!(credential.source().starts_with("login for ") && credential.source().ends_with(&named), "{}", credential.source());
    }
}

#[tokio::test]
async fn credential_store_is_asked_about_the_default_registry_by_its_old_name() {
    let node = Node::new(r#"{"credsStore": "good"}"#, &["good"]);
    let found = node.lookup("docker.io/library/busybox").await.unwrap();
    assert_eq!(found[0].username(), "at https://index.docker.io/v1/");
}

#[tokio::test]
async fn helpers_token_replaces_the_login() {
    let node = Node::new(r#"{"credsStore": "token"}"#, &["token"]);
    let found = node.lookup("registry.example/app").await.unwrap();
    assert_eq!((found[0].username(), found[0].password(), found[0].identity_token()), ("", "", "hunter2"));
}

#[tokio::test]
async fn helper_without_a_login_is_no_error() {
    for name in ["none", "empty"] {
        let config = format!(r#"{{"credHelpers": {{"registry.example": "{name}"}}, "auths": {{"registry.example": {{"auth": "dTpw"}}}}}}"#);
        let node = Node::new(&config, &[name]);
        let found = node.lookup("registry.example/app").await.unwrap();
        assert_eq!(found.iter().map(Credential::username).collect::<Vec<_>>(), ["u"], "{name}");
        let node = Node::new(&format!(r#"{{"credsStore": "{name}"}}"#), &[name]);
        assert!(node.lookup("registry.example/app").await.unwrap().is_empty(), "{name}: then the pull is anonymous");
    }
}

#[tokio::test]
async fn failing_helper_is_an_error_with_advice() {
    let see_more = |name: &str| format!("; to see more, run: printf %s 'registry.example' | docker-credential-{name} get");
    for (name, expected) in [
        (
            "absent",
            "credential helper docker-credential-absent, named in DIR/config.json for registry.example, is not in PATH; install it or take \
             it out of the file"
                .to_owned(),
        ),
        ("failing", format!("credential helper docker-credential-failing failed with exit status: 3{}", see_more("failing"))),
        ("garbage", format!("credential helper docker-credential-garbage answered something that is no JSON login{}", see_more("garbage"))),
        ("endless", format!("credential helper docker-credential-endless answered more than 65536 bytes{}", see_more("endless"))),
        (
            "../good",
            "credential helper \"../good\", named in DIR/config.json, is no plain program name; write the part after docker-credential-"
                .to_owned(),
        ),
    ] {
        let node = Node::new(&format!(r#"{{"credHelpers": {{"registry.example": "{name}"}}}}"#), &["good", "failing", "garbage", "endless"]);
        assert_eq!(node.failure("registry.example/app").await, expected);
        assert!(node.lookup("other.example/app").await.unwrap().is_empty(), "other registries are not affected");
    }
}

/// On a paused clock the 10 s pass while the helper sleeps.
#[tokio::test(start_paused = true)]
async fn hanging_helper_times_out() {
    let node = Node::new(r#"{"credsStore": "slow"}"#, &["slow"]);
    let expected = "credential helper docker-credential-slow gave no answer in 10 s; to see more, run: printf %s 'registry.example' | \
                    docker-credential-slow get";
    assert_eq!(node.failure("registry.example/app").await, expected);
}
