//! `pull --output json`: exactly one line with an object for each image and node, in every case, and nothing else on stdout.

use e2e::{Registry, Signal, Workplace, until};
use memory_registry::{Auth, Fault, FaultAction, MadeImage, Options};
use serde_json::{Value, json};

use super::common::{NOBODY, check_row, small};

fn row(place: &Workplace, arguments: &[&str], status: i32) -> Value {
    let arguments = [&["pull", "-o", "json", "--store", "store"], arguments].concat();
    let row = place.run(&arguments).expect(status).object();
    check_row(&row);
    row
}

#[test]
fn a_name_that_is_empty_keeps_no_other_image_from_its_row() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let rows = place.run(&["pull", "", &image, "-o", "json", "--store", "store"]).expect(3).objects();
    let mut outcomes: Vec<(&str, String)> = rows.iter().map(|row| (row["image"].as_str().unwrap_or_default(), check_row(row))).collect();
    outcomes.sort();
    assert_eq!(outcomes[0].0, "", "an image without a name is null: {rows:?}");
    assert!(outcomes[0].1.starts_with("failed InvalidImageName"), "{rows:?}");
    assert_eq!(outcomes[1], (image.as_str(), "pulled".to_owned()), "{rows:?}");
}

#[test]
fn a_pull_answers_with_everything_about_the_image() {
    let (registry, place) = (Registry::new(), Workplace::new().with("FLEETPULL_NODE_NAME", "n1"));
    let added = registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let row = row(&place, &[&image], 0);
    let repository = registry.image("shop/web");
    let expected = json!({
        "image": image, "node": "n1", "outcome": "pulled", "reason": null, "message": null, "class": null,
        "image_ref": format!("{repository}@{}", added.digest), "digest": added.digest, "size_bytes": added.manifests[0].size(),
        "platform": added.manifests[0].platform, "next_attempt_ms": null, "auth": "anonymous",
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&row[field], value, "{field} of {row}");
    }
}

#[test]
fn a_present_image_costs_the_registry_nothing() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    row(&place, &[&image], 0);
    registry.reset_counts();
    let again = row(&place, &[&image], 0);
    assert_eq!(again["outcome"], "present");
    assert_eq!(again["message"], format!("Container image \"{image}\" already present on machine"));
    assert_eq!(registry.counts().requests, 0);
}

/// Each failure has kubelet's reason and Fleetpull's class; `times` requests reach the registry.
#[test]
fn each_failure_has_its_reason_and_class_and_costs_one_request() {
    let answer = |status, headers: &[(&str, &str)], body| Some(Fault::answer("/manifests/", status, headers, body));
    let toomany = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}"#;
    let denied = r#"{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}"#;
    let table = [
        (None, "ErrImagePull not_found", "MANIFEST_UNKNOWN"),
        (answer(429, &[("retry-after", "7")], toomany), "ErrImagePull rate_limited", "slow down) for manifest v2, Retry-After 7s; "),
        (answer(403, &[], denied), "ErrImagePull denied", "DENIED"),
        (answer(503, &[], "<html><body>down</body></html>"), "RegistryUnavailable registry_unavailable", "503"),
        (answer(200, &[], "<html><body>Welcome to the hotel</body></html>"), "ErrImagePull unknown", "web page"),
        (Some(Fault::new("/manifests/", FaultAction::Close)), "RegistryUnavailable registry_unavailable", ""),
    ];
    for (fault, expected, text) in table {
        let (registry, place) = (Registry::new(), Workplace::new());
        registry.add_image("shop/web", "v1", &small());
        fault.clone().into_iter().for_each(|fault| registry.faults().add(fault));
        let image = registry.image("shop/web:v2");
        let row = row(&place, &[&image], 1);
        assert_eq!(check_row(&row), format!("failed {expected}"), "{fault:?}: {row}");
        let message = row["message"].as_str().unwrap();
        assert!(message.contains(text) && message.contains(registry.host()), "{fault:?}: {row}");
        assert!(row["next_attempt_ms"].is_u64(), "{row}");
        assert_eq!(registry.counts().requests, 1, "{fault:?}");
    }
}

#[test]
fn failures_that_never_reach_a_registry_have_a_row_too() {
    let place = Workplace::new();
    let nobody = format!("{NOBODY}/shop/web:v1");
    let table: [(&[&str], &str, &str); 5] = [
        (&[&nobody, "--policy", "Never"], "ErrImageNeverPull node_local", "is not present with pull policy of Never"),
        (&["Shop/Web"], "InvalidImageName unknown", "repository name (Web) must be lowercase"),
        (&["ftp://busybox"], "InvalidImageName unknown", "Failed to apply default image tag \"ftp://busybox\": "),
        (&["https://registry.example/busybox:1"], "InvalidImageName unknown", "invalid reference format"),
        (&[&nobody], "RegistryUnavailable registry_unavailable", "connection refused"),
    ];
    for (arguments, expected, text) in table {
        let row = row(&place, arguments, 1);
        assert_eq!(check_row(&row), format!("failed {expected}"), "{arguments:?}");
        assert!(row["message"].as_str().unwrap().contains(text), "{row}");
        assert_eq!(row["image"], arguments[0]);
    }
}

#[test]
fn a_time_out_has_a_row_and_an_end() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    registry.faults().add(Fault::new("/manifests/", FaultAction::Hang));
    let image = registry.image("shop/web:v1");
    let row = row(&place, &[&image, "--timeout", "300ms"], 5);
    assert_eq!((&row["outcome"], &row["timed_out"]), (&json!("failed"), &json!(true)), "{row}");
    assert!(row["message"].as_str().unwrap().contains("300ms"), "{row}");
}

#[test]
fn a_store_that_cannot_be_used_has_a_row_for_each_image() {
    let place = Workplace::new();
    place.write("file", "no folder");
    place.write("old/oci-layout", r#"{"imageLayoutVersion":"9.9.9"}"#);
    place.write("damaged/index.json", "{\"schemaVersion\": 2, \"manif");
    for (store, text) in [("file", "file"), ("file/below", "file/below"), ("old", "1.0.0"), ("damaged", "index.json is damaged")] {
        let done = place.run(&["pull", "-o", "json", "--store", store, "one:v1", "two:v1", "--policy", "Never"]).expect(1);
        let mut rows = done.objects();
        assert_eq!(rows.len(), 2, "{done}");
        // A row comes when its pull has ended, and the pulls run at the same time.
        rows.sort_by_key(|row| row["image"].to_string());
        for (row, image) in rows.iter().zip(["one:v1", "two:v1"]) {
            assert!(check_row(row).ends_with("node_local"), "{row}");
            assert_eq!(row["image"], image);
            let message = row["message"].as_str().unwrap();
            assert!(message.contains(text), "{row}");
            assert_eq!(message.matches("os error").count().max(1), 1, "a cause is given once: {row}");
        }
    }
}

#[test]
fn an_agent_that_cannot_be_asked_has_a_row_for_each_image() {
    let place = Workplace::new();
    // A socket that never accepts a connection, as that of a stopped agent.
    let _silent = std::os::unix::net::UnixListener::bind(place.path("silent.sock")).unwrap();
    let (missing, silent) = (format!("unix://{}", place.text_path("gone.sock")), format!("unix://{}", place.text_path("silent.sock")));
    let table: [(&[&str], i32, Option<&str>, &str); 6] = [
        (&["--agent", &missing], 1, None, "no agent keeps its socket there: start one, or correct the path"),
        (&["--agent", &missing, "--node", "n1"], 1, Some("n1"), "no agent keeps its socket there: start one, or correct the path"),
        (&["--agent", &missing, "--timeout", "1m"], 1, None, "no agent keeps its socket there: start one, or correct the path"),
        (&["--agent", &silent], 1, None, "is silent for 3s: is it stopped, or very busy?"),
        (&["--agent", &silent, "--wait", "1s"], 5, None, "is silent for 3s: is it stopped, or very busy?"),
        (&["--agent", &silent, "--node", "n1", "--timeout", "1s"], 5, Some("n1"), "is silent for 3s: is it stopped, or very busy?"),
    ];
    for (arguments, status, node, text) in table {
        let done = place.run(&[&["pull", "a:1", "b:1", "-o", "json"], arguments].concat()).expect(status);
        let rows = done.objects();
        assert_eq!(rows.iter().map(|row| &row["image"]).collect::<Vec<_>>(), [&json!("a:1"), &json!("b:1")], "{done}");
        for row in rows {
            assert_eq!((check_row(&row).as_str(), &row["node"]), ("failed  unknown", &json!(node)), "{row}");
            assert!(row["message"].as_str().unwrap().contains(text) && row["timed_out"] == (status == 5), "{row}");
        }
        let people = place.run(&[&["pull", "a:1", "b:1"], arguments].concat()).expect(status);
        assert!(people.stdout.is_empty() && people.stderr.contains(text), "one error describes it: {people}");
    }
    let dry = place.run(&["pull", "a:1", "b:1", "-o", "json", "--agent", &missing, "--dry-run"]).expect(1).objects();
    assert_eq!(dry.len(), 2);
    for row in dry {
        assert!(row["node"].is_null() && row["present"].is_null() && row["error"].as_str().unwrap().contains("start one"), "{row}");
    }
}

#[test]
fn a_server_that_does_not_answer_is_out_of_time_on_each_node_that_was_named() {
    let place = Workplace::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", silent.local_addr().unwrap());
    let named = ["--node", "n1", "--node", "n2", "--nats", &url, "--timeout", "300ms", "-o", "json"];
    let rows = place.run(&[&["pull", "a:1", "b:1"], named.as_slice()].concat()).expect(5).objects();
    let keys: Vec<(&str, &str)> = rows.iter().map(|row| (row["node"].as_str().unwrap(), row["image"].as_str().unwrap())).collect();
    assert_eq!(keys, [("n1", "a:1"), ("n1", "b:1"), ("n2", "a:1"), ("n2", "b:1")]);
    for row in rows {
        assert_eq!((check_row(&row).as_str(), &row["timed_out"]), ("failed  unknown", &json!(true)), "{row}");
        assert!(row["message"].as_str().unwrap().contains("within 300ms"), "{row}");
    }
    let nobody_known = place.run(&["pull", "a:1", "--all-nodes", "--nats", &format!("nats://{NOBODY}"), "-o", "json"]).expect(1);
    assert!(nobody_known.stdout.is_empty() && nobody_known.stderr.contains("refused"), "{nobody_known}");
}

#[test]
fn an_image_named_twice_has_one_row() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    registry.add_image("shop/web", "v2", &small());
    let (one, two) = (registry.image("shop/web:v1"), registry.image("shop/web:v2"));
    let done = place.run(&["pull", "-o", "json", "--store", "store", &one, &two, &one]).expect(0);
    let mut images: Vec<Value> = done.objects().iter().map(|row| row["image"].clone()).collect();
    images.sort_by_key(ToString::to_string);
    assert_eq!(images, [one.as_str(), two.as_str()]);
}

#[test]
fn the_source_of_the_login_is_shown() {
    let auth = Auth::Basic { user: "deploy".to_owned(), password: "geheim-7".to_owned() };
    let registry = Registry::with(Options { auth, ..Options::default() });
    let place = Workplace::new();
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let image = registry.image("shop/web:v1");
    let refused = row(&place, &[&image], 1);
    assert_eq!(check_row(&refused), "failed ErrImagePull denied");
    assert_eq!(refused["auth"], "anonymous");
    // deploy:geheim-7
    let login = json!({"auths": {registry.host(): {"auth": "ZGVwbG95OmdlaGVpbS03"}}});
    let authfile = place.write("auth.json", login.to_string());
    let let_in = row(&place, &[&image, "--authfile", &authfile], 0);
    assert_eq!(let_in["auth"], format!("login for {} in {authfile}", registry.host()), "{let_in}");
}

#[test]
fn a_row_is_printed_when_it_is_known_not_at_the_end() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    registry.faults().add(Fault::new("/shop/slow/", FaultAction::Hang));
    let (fast, slow) = (registry.image("shop/web:v1"), registry.image("shop/slow:v1"));
    let started = place.start(&["pull", "-o", "json", "--store", "store", &slow, &fast]);
    let line = until("the row of the fast one", || started.stdout().lines().next().map(str::to_owned));
    let row: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&row["image"], &row["outcome"]), (&json!(fast), &json!("pulled")));
    started.signal(Signal::Kill);
    assert_eq!(started.wait().1.lines().count(), 1, "the other was still under way");
}
