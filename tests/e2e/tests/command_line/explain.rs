//! `explain`: how a reference is read, and what a pull would do.

use e2e::{Registry, Workplace};
use serde_json::{Value, json};

use super::common::{NOBODY, small};

#[test]
fn explain_shows_how_a_reference_is_read_and_what_would_happen() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let explain = |image: &str, more: &[&str]| place.run(&[&["explain", "-o", "json", "--store", "store", image], more].concat());
    let busybox = explain("busybox", &[]).expect(0).object();
    for (field, value) in
        [("repository", "docker.io/library/busybox"), ("tag", "latest"), ("registry", "docker.io"), ("runtime_reference", "busybox:latest")]
    {
        assert_eq!(busybox[field], value, "{field} of {busybox}");
    }
    assert!(busybox["digest"].is_null(), "{busybox}");
    assert_eq!(busybox["pull"]["policy"], "Always");
    let before = explain(&image, &[]).expect(0).object();
    assert_eq!((&before["pull"]["policy"], &before["pull"]["present"]), (&"IfNotPresent".into(), &false.into()), "{before}");
    assert!(!place.path("store").exists(), "asking makes no store");
    let changed = || std::fs::metadata(place.path("store")).and_then(|store| store.modified()).expect("it is there");
    std::fs::create_dir(place.path("store")).expect("a folder can be made");
    let made = changed();
    assert_eq!(explain(&image, &[]).expect(0).object()["pull"]["present"], false);
    assert_eq!((std::fs::read_dir(place.path("store")).expect("a folder").count(), changed()), (0, made), "asking writes nothing");
    let _ = place.run(&["pull", "-q", "--store", "store", &image]).expect(0);
    registry.reset_counts();
    let pulled = changed();
    let after = explain(&image, &["--policy", "Always"]).expect(0).object();
    assert_eq!((after["pull"]["present"].as_bool(), changed()), (Some(true), pulled), "{after}");
    let after = explain(&image, &[]).expect(0).object();
    assert_eq!(after["pull"]["present"], true, "{after}");
    let by_digest = explain(&registry.image(&format!("shop/web@{}", added.digest)), &["--policy", "Never"]).expect(0).object();
    assert_eq!((&by_digest["digest"], &by_digest["tag"]), (&added.digest.as_str().into(), &Value::Null), "{by_digest}");
    assert_eq!(registry.counts().requests, 0, "asking what would happen asks no registry");
    let text = place.run(&["explain", &image, "--store", "store"]).expect(0);
    assert!(text.stdout.contains("nothing would be pulled"), "{text}");
    let with_a_server = place.with("NATS_URL", format!("nats://{NOBODY}"));
    let own = with_a_server.run(&["explain", &image, "--store", "store"]).expect(0);
    assert!(own.stdout.contains("here: ") && own.stdout.contains("nothing would be pulled"), "a store that is named is asked: {own}");
    assert!(with_a_server.run(&["explain", &image]).expect(1).stdout.contains("it is not known what would happen"), "else the fleet");
}

#[test]
fn explain_shows_what_would_fail_here_before_a_registry_is_asked() {
    let place = Workplace::new();
    let image = format!("{NOBODY}/shop/web:v1");
    place.write("file", "no folder");
    place.write("broken.json", "{\"auths\": ");
    place.write("helper.json", json!({"credHelpers": {NOBODY: "of-nobody"}}).to_string());
    let table: [(&[&str], &str, &str); 7] = [
        (&["--store", "/proc/1/x"], "the store /proc/1/x cannot be used: ", "; name another folder with --store"),
        (&["--store", "file/below"], "the store file/below cannot be used: ", "a file stands where the store"),
        (&["--store", "file"], "the store file cannot be used: ", "name another folder with --store"),
        (&["--store", "store", "--authfile", "gone.json"], "cannot read the registry logins in gone.json: ", "with --authfile"),
        (&["--store", "store", "--authfile", "broken.json"], "cannot use the registry logins in broken.json: ", "correct the file"),
        (&["--store", "store", "--authfile", "helper.json"], "credential helper docker-credential-of-nobody, ", "install it"),
        (
            &["--runtime", "cri", "--runtime-endpoint", "unix:///nope", "--policy", "Always"],
            "rpc error: code = Unavailable ",
            "nothing answers on /nope: start the container runtime",
        ),
    ];
    for (arguments, what, advice) in table {
        let explanation = place.run(&[&["explain", "-o", "json", &image], arguments].concat()).expect(1).object();
        assert_eq!(
            (&explanation["pull"]["class"], &explanation["repository"]),
            (&"node_local".into(), &format!("{NOBODY}/shop/web").into()),
            "{explanation}"
        );
        let cause = explanation["pull"]["cause"].as_str().unwrap();
        assert!(cause.starts_with(what) && cause.contains(advice), "{explanation}");
        let text = place.run(&[&["explain", &image], arguments].concat()).expect(1);
        assert!(text.stdout.contains("it would fail before any registry is asked\n  cause: "), "{text}");
        assert!(!place.path("store").exists(), "asking makes no store");
        let row = place.run(&[&["pull", "-o", "json", &image], arguments].concat()).expect(1).object();
        assert_eq!((&row["class"], &row["outcome"]), (&"node_local".into(), &"failed".into()), "it does: {row}");
        let _ = std::fs::remove_dir_all(place.path("store"));
    }
    let unasked = place.run(&["explain", &image, "--runtime", "cri", "--runtime-endpoint", "unix:///nope"]).expect(1);
    assert!(unasked.stdout.contains("it would fail with ImageInspectError: "), "{unasked}");
    assert!(unasked.stderr.contains("hint: nothing answers on /nope: start the container runtime"), "{unasked}");
    // Settings that a pull would not use do not matter.
    let never = place.run(&["explain", &image, "--policy", "Never", "--store", "store", "--authfile", "gone.json"]).expect(0);
    assert!(never.stdout.contains("ErrImageNeverPull"), "{never}");
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let _ = place.run(&["pull", "-q", "--store", "store", &image]).expect(0);
    let present = place.run(&["explain", &image, "--store", "store", "--authfile", "gone.json"]).expect(0);
    assert!(present.stdout.contains("nothing would be pulled"), "{present}");
    let always = place.run(&["explain", &image, "--policy", "Always", "--store", "store", "--authfile", "gone.json"]).expect(1);
    assert!(always.stdout.contains("it would fail before any registry is asked"), "{always}");
}

#[test]
fn explain_refuses_an_unreadable_reference_with_the_correct_form() {
    let place = Workplace::new();
    for (image, text) in [("https://busybox", "busybox"), ("Team/App", "team/app"), ("a@sha256:12", "")] {
        let done = place.run(&["explain", image]).expect(1);
        assert!(done.stdout.contains("couldn't parse image name"), "{done}");
        assert!(text.is_empty() || done.stderr.contains(&format!("lower case: {text}")), "{done}");
        let refused = place.run(&["explain", "-o", "json", image]).expect(1).object();
        assert!(refused["error"].as_str().unwrap().contains("couldn't parse image name"), "{refused}");
    }
    let nothing_named = place.run(&["explain"]).expect(2);
    assert!(nothing_named.stderr.contains("  fleetpull status  ") && !nothing_named.stderr.contains("Usage:"), "{nothing_named}");
    assert!(place.run(&["explain", "busybox", "--node", "n1"]).expect(2).stderr.contains("give --nats URL"));
    let alone = place.run(&["explain", "-o", "json", "busybox", "--nats", "nats://127.0.0.1:1"]).expect(1).object();
    assert_eq!(alone["repository"], "docker.io/library/busybox", "how it is read is known without a bus");
    assert!(alone["pull_error"].as_str().unwrap().contains("127.0.0.1:1"), "{alone}");
}
