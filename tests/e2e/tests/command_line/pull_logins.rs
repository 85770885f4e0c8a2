//! Logins: files, helpers, a registry that requires a password, and no password in any output.

use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use e2e::{Registry, Workplace, skopeo};
use memory_registry::{Auth, Options, TokenAuth};
use serde_json::{Value, json};
use support::docker_registry::{self, DockerRegistry, PASSWORD, USER};
use support::requirement::met;

use super::common::{check_row, small};

fn login_file(host: &str, user: &str, password: &str) -> String {
    json!({"auths": {host: {"auth": BASE64_STANDARD.encode(format!("{user}:{password}"))}}}).to_string()
}

fn pull(place: &Workplace, more: &[&str], image: &str, status: i32) -> Value {
    let arguments = [&["pull", "-o", "json", "--policy", "Always", "--store", "store", "--log-level", "trace"], more, &[image]].concat();
    let done = place.run(&arguments).expect(status);
    for secret in [PASSWORD, "wrong-horse", &BASE64_STANDARD.encode(format!("{}:{}", USER, PASSWORD)), "memory-token"] {
        assert!(!done.output().contains(secret), "{secret} leaks: {done}");
    }
    let row = done.object();
    check_row(&row);
    row
}

#[test]
fn a_registry_that_wants_a_password_gets_it_from_wherever_it_is_kept() {
    if met(docker_registry::available()).is_none() {
        return;
    }
    let (made, real) = (Registry::new(), DockerRegistry::start_with_login());
    made.add_image("shop/web", "v1", &small());
    let image = format!("{}/shop/web:v1", real.host());
    let (from, to, login) = (format!("docker://{}", made.image("shop/web:v1")), format!("docker://{image}"), format!("{USER}:{PASSWORD}"));
    skopeo(&["copy", "--quiet", "--src-tls-verify=false", "--dest-tls-verify=false", "--dest-creds", &login, &from, &to]);

    let place = Workplace::new();
    let refused = pull(&place, &[], &image, 1);
    assert_eq!((&refused["class"], &refused["auth"]), (&"denied".into(), &"anonymous".into()), "{refused}");

    let good = place.write("good.json", login_file(real.host(), USER, PASSWORD));
    let wrong = place.write("wrong.json", login_file(real.host(), USER, "wrong-horse"));
    let by_flag = pull(&place, &["--authfile", &good], &image, 0);
    assert_eq!(by_flag["auth"], format!("login for {} in {good}", real.host()), "{by_flag}");
    let mistaken = pull(&place, &["--authfile", &wrong], &image, 1);
    assert_eq!(mistaken["class"], "denied", "{mistaken}");
    let source = format!("login for {} in {wrong}", real.host());
    assert_eq!(mistaken["auth"], source, "{mistaken}");
    let [none, sent] = [&refused, &mistaken].map(|row| row["message"].as_str().unwrap());
    assert!(none.contains("no login was sent") && sent.contains(&format!("though the {source} was sent")), "{none}\n{sent}");
    assert!(!sent.contains(USER), "{sent}");
    for (more, login) in [(&["--authfile", &wrong][..], format!(" gets the {source}\n")), (&[], " gets none (".to_owned())] {
        let explained = place.run(&[&["explain", &image, "--policy", "Always", "--store", "store"], more].concat()).expect(0);
        assert!(explained.stdout.contains(&login) && !explained.output().contains(USER), "{explained}");
    }

    let file = login_file(real.host(), USER, PASSWORD);
    let by_variable = Workplace::new().with("REGISTRY_AUTH_FILE", &good);
    let by_docker = Workplace::new();
    by_docker.write(".docker/config.json", &file);
    let by_docker_variable = Workplace::new().with("DOCKER_CONFIG", place.text_path("docker"));
    place.write("docker/config.json", &file);
    let by_containers = Workplace::new().with("XDG_RUNTIME_DIR", place.text_path("runtime"));
    place.write("runtime/containers/auth.json", &file);
    for place in [by_variable, by_docker, by_docker_variable, by_containers] {
        let row = pull(&place, &[], &image, 0);
        assert!(row["auth"].as_str().unwrap().starts_with(&format!("login for {} in ", real.host())), "{row}");
    }
}

#[test]
fn a_helper_is_asked_and_one_that_is_missing_or_fails_is_an_error() {
    let auth = Auth::Token(TokenAuth {
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
        identity_token: String::new(),
        anonymous: true,
        expires_in: "300".to_owned(),
    });
    let registry = Registry::with(Options { auth, ..Options::default() });
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let tools = Workplace::new();
    let answer = json!({"ServerURL": registry.host(), "Username": USER, "Secret": PASSWORD});
    for (name, script) in [
        ("works", format!("#!/bin/sh\ncat >/dev/null\necho '{answer}'\n")),
        ("fails", format!("#!/bin/sh\necho 'vault is sealed for {}' >&2\nexit 1\n", USER)),
    ] {
        let path = tools.write(&format!("bin/docker-credential-{name}"), script);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", tools.text_path("bin"), std::env::var("PATH").unwrap());
    let with = |helper: &str| {
        let place = Workplace::new().with("PATH", &path);
        place.write(".docker/config.json", json!({"credHelpers": {registry.host(): helper}}).to_string());
        place
    };
    let works = pull(&with("works"), &[], &image, 0);
    assert!(works["auth"].as_str().unwrap().contains("helper works"), "{works}");
    registry.reset_counts();
    for (helper, text) in [("missing", "docker-credential-missing"), ("fails", "docker-credential-fails")] {
        let row = pull(&with(helper), &[], &image, 1);
        assert_eq!(row["class"], "node_local", "{row}");
        assert!(row["message"].as_str().unwrap().contains(text), "{row}");
    }
    assert_eq!(registry.counts().requests, 0, "a helper that fails is never a silent anonymous pull");
}

#[test]
fn an_authfile_that_is_missing_or_no_json_is_an_error() {
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let place = Workplace::new();
    let broken = place.write("broken.json", format!("{{\"auths\": {{\"x\": {{\"auth\": \"{}", PASSWORD));
    for file in ["nowhere.json", &broken] {
        let row = pull(&place, &["--authfile", file], &registry.image("shop/web:v1"), 1);
        assert!(row["message"].as_str().unwrap().contains(file), "{row}");
    }
    assert_eq!(registry.counts().requests, 0);
}
