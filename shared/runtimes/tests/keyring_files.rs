//! Login files: which are read, the order of their logins, that changes are noticed, and that nothing leaks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use runtimes::keyring::{Audience, Credential, Environment, Keyring, KeyringOptions};
use tempfile::TempDir;

fn write(path: &Path, user: &str, registry: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!(r#"{{"auths": {{"{registry}": {{"username": "{user}", "password": "hunter2"}}}}}}"#)).unwrap();
}

fn keyring_in(folder: &Path, variables: &[(&str, PathBuf)]) -> Keyring {
    let environment: Environment = variables.iter().map(|(name, value)| (*name, value)).collect();
    Keyring::new(KeyringOptions { authfile: None, environment, kubelet_file: folder.join("kubelet/config.json") })
}

/// The source text of a login under `registry` in `file`.
fn login_in(file: &Path, registry: &str) -> String {
    format!("login for {registry} in {}", file.display())
}

async fn sources(keyring: &Keyring, repository: &str) -> Vec<String> {
    keyring.lookup(&Audience::runtime(repository)).await.unwrap().iter().map(|credential| credential.source().to_owned()).collect()
}

#[tokio::test]
async fn usual_files_are_searched_in_order() {
    let folder = TempDir::with_prefix("keyring-").unwrap();
    let at = |name: &str| folder.path().join(name);
    write(&at("kubelet/config.json"), "kubelet", "registry.example");
    write(&at("home/.docker/config.json"), "docker", "registry.example");
    write(&at("run/containers/auth.json"), "podman", "registry.example");
    write(&at("home/.config/containers/auth.json"), "kept", "other.example");
    let keyring = keyring_in(folder.path(), &[("HOME", at("home")), ("XDG_RUNTIME_DIR", at("run"))]);
    let expected = ["home/.docker/config.json", "run/containers/auth.json", "kubelet/config.json"];
    let expected = expected.map(|name| login_in(&at(name), "registry.example"));
    assert_eq!(sources(&keyring, "registry.example/app").await, expected);
    assert_eq!(sources(&keyring, "other.example/app").await, [login_in(&at("home/.config/containers/auth.json"), "other.example")]);
    assert_eq!(sources(&keyring, "third.example/app").await, [""; 0]);
    assert_eq!(
        keyring.sources(),
        ["home/.docker/config.json", "run/containers/auth.json", "home/.config/containers/auth.json", "kubelet/config.json"]
            .map(|name| at(name).display().to_string())
    );
}

#[tokio::test]
async fn equal_login_is_tried_once() {
    let folder = TempDir::with_prefix("keyring-").unwrap();
    write(&folder.path().join("home/.docker/config.json"), "deploy", "registry.example");
    write(&folder.path().join("kubelet/config.json"), "deploy", "registry.example");
    let keyring = keyring_in(folder.path(), &[("HOME", folder.path().join("home"))]);
    let expected = login_in(&folder.path().join("home/.docker/config.json"), "registry.example");
    assert_eq!(sources(&keyring, "registry.example/app").await, [expected]);
}

#[tokio::test]
async fn rotated_login_is_used_at_once() {
    let folder = TempDir::with_prefix("keyring-").unwrap();
    let file = folder.path().join("config.json");
    let keyring = keyring_in(folder.path(), &[("DOCKER_CONFIG", folder.path().to_owned())]);
    assert_eq!(sources(&keyring, "registry.example/app").await, [""; 0], "there is no file yet");
    for user in ["one", "two", "three"] {
        // Replaced as by `docker login`, so that the change is noticed even within one second and with the same size.
        let next = folder.path().join("next.json");
        write(&next, user, "registry.example");
        std::fs::rename(&next, &file).unwrap();
        let found = keyring.lookup(&Audience::runtime("registry.example/app")).await.unwrap();
        assert_eq!(found.iter().map(Credential::username).collect::<Vec<_>>(), [user]);
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(sources(&keyring, "registry.example/app").await, [""; 0]);
}

#[tokio::test]
async fn named_file_must_exist() {
    let folder = TempDir::with_prefix("keyring-").unwrap();
    let file = folder.path().join("absent.json");
    let options = |authfile, environment| KeyringOptions { authfile, environment, kubelet_file: "/nonexistent".into() };
    let by_flag = Keyring::new(options(Some(file.clone()), Environment::default()));
    let by_variable = Keyring::new(options(None, [("REGISTRY_AUTH_FILE", &file)].into_iter().collect()));
    for (keyring, how) in [(by_flag, "--authfile"), (by_variable, "REGISTRY_AUTH_FILE")] {
        let error = keyring.lookup(&Audience::runtime("registry.example/app")).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "cannot read the registry logins in {}: No such file or directory (os error 2); make it readable or name another file with \
                 --authfile",
                file.display()
            )
        );
        assert_eq!(keyring.sources(), [format!("{} ({how})", file.display())]);
    }
}

#[tokio::test]
async fn unparsable_file_is_an_error_without_content() {
    let folder = TempDir::with_prefix("keyring-").unwrap();
    let file = folder.path().join("config.json");
    let keyring = keyring_in(folder.path(), &[("DOCKER_CONFIG", folder.path().to_owned())]);
    for (content, problem) in [
        (r#"{"auths": {"a.b": {"password": "hunter2" "x"}}}"#.to_owned(), "it is no JSON (line 1, column 42)"),
        (r#"{"auths": {"a.b": {"auth": "hunter2!"}}}"#.to_owned(), r#"auths["a.b"].auth is not the base64 of user:password"#),
        ("hunter2".to_owned(), "it is no JSON (line 1, column 1)"),
        (String::new(), "the JSON ends too early (line 1, column 0)"),
    ] {
        std::fs::write(&file, content).unwrap();
        let error = keyring.lookup(&Audience::runtime("registry.example/app")).await.unwrap_err();
        let expected = format!("cannot use the registry logins in {}: {problem}; correct the file or log in again", file.display());
        assert_eq!(error.to_string(), expected);
        assert!(!format!("{error:?}").contains("hunter2"));
    }
    std::fs::write(&file, " ".repeat(4 * 1024 * 1024 + 1)).unwrap();
    let error = keyring.lookup(&Audience::runtime("registry.example/app")).await.unwrap_err();
    assert!(error.to_string().contains("it is larger than 4194304 bytes"), "{error}");
}

#[tokio::test]
async fn nothing_of_a_login_is_printed() {
    let folder = TempDir::with_prefix("keyring-").unwrap();
    write(&folder.path().join("config.json"), "deploy", "registry.example");
    let keyring = keyring_in(folder.path(), &[("DOCKER_CONFIG", folder.path().to_owned())]);
    let found: Vec<Credential> = keyring.lookup(&Audience::runtime("registry.example/app")).await.unwrap();
    assert_eq!(format!("{found:?}"), format!("[Credential({:?})]", login_in(&folder.path().join("config.json"), "registry.example")));
    let printed = format!("{found:?} {keyring:?} {:?}", keyring.explain(&Audience::runtime("registry.example/app"), "x").await);
    assert!(!printed.contains("hunter2") && !printed.contains("deploy"), "{printed}");
}
