//! `config print` and `config validate`: file < environment < flags, and all errors at once, by name.

use e2e::Workplace;
use serde_json::Value;

#[test]
fn everything_that_is_wrong_is_named_at_once_with_place_and_remedy() {
    let place = Workplace::new().with("FLEETPULL_STORE_FSYNC", "perhaps");
    let file = place.write(
        "node.toml",
        "[store]\nfsnc = true\n[pull]\nparallel = 0\ntimeout = 30\n[runtime]\nkind = \"docker\"\n[nonsense]\na = 1\n[log]\nlevel = \"loud\"\n",
    );
    let expected = [
        "node.toml:2: store.fsnc: is not a known key; did you mean store.fsync?",
        "node.toml:4: pull.parallel = 0: must be a whole number from 1 to 1000",
        "node.toml:5: pull.timeout = 30: must be a duration",
        "node.toml:7: runtime.kind = \"docker\": must be one of oci-layout, cri",
        "node.toml:9: nonsense.a: is not a known key",
        "node.toml:11: log.level = \"loud\": must be one of error, warn, info, debug, trace",
        "FLEETPULL_STORE_FSYNC: store.fsync = \"perhaps\": must be true or false",
    ];
    for (arguments, status) in [
        (["config", "validate", "--config", &file], 1),
        (["config", "print", "--config", &file], 2),
        (["run", "--node=n1", "--config", &file], 2),
        (["pull", "busybox", "--config", &file], 2),
    ] {
        let done = place.run(&arguments).expect(status);
        assert_eq!(done.stdout, "", "{done}");
        for problem in expected {
            assert!(done.stderr.contains(problem), "{problem}: {done}");
        }
    }
    let validated = place.run(&["config", "validate", "-o", "json", "--config", &file]).expect(1).object();
    assert!(
        validated["valid"] == false && expected.iter().all(|problem| validated["error"].as_str().unwrap().contains(problem)),
        "{validated}"
    );
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let place = Workplace::new();
    let file = place.write("node.toml", "[node]\nname = \"by-file\"\n[store]\ndir = \"by-file\"\n[pull]\nparallel = 7\n");
    let place = place.with("FLEETPULL_NODE_NAME", "by-environment").with("FLEETPULL_STORE_DIR", "by-environment");
    let printed = place.run(&["config", "print", "-o", "json", "--config", &file]).expect(0);
    let origin = |key: &str| {
        let row = printed.objects().into_iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key}: {printed}"));
        (row["value"].clone(), row["origin"].clone())
    };
    assert_eq!(origin("node.name"), (Value::from("by-environment"), Value::from("environment")));
    assert_eq!(origin("pull.parallel"), (Value::from(7), Value::from("file")));
    assert_eq!(origin("backoff.initial"), (Value::from("10s"), Value::from("default")));
    // The pull fails before any request. Its row names the node that counted, and the store's folder shows which setting counted.
    let row = place.run(&["pull", "-o", "json", "a:1", "--policy", "Never", "--config", &file, "--store", "by-flag"]).expect(1).object();
    assert_eq!(row["node"], "by-environment");
    assert!(place.path("by-flag/oci-layout").exists() && !place.path("by-environment").exists() && !place.path("by-file").exists());
}

#[test]
fn what_is_printed_is_a_file_with_the_same_settings() {
    let place = Workplace::new().with("FLEETPULL_PULL_PARALLEL", "7").with("FLEETPULL_NATS_URL", "nats://nats.example:4222");
    let printed = place.run(&["config", "print"]).expect(0).stdout;
    assert!(printed.contains("parallel = 7") && printed.contains("FLEETPULL_PULL_PARALLEL"), "{printed}");
    let other = Workplace::new();
    let file = other.write("printed.toml", &printed);
    let again = other.run(&["config", "print", "--config", &file]).expect(0).stdout;
    let values =
        |text: &str| -> Vec<String> { text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_owned()).collect() };
    assert_eq!(values(&again), values(&printed));
    let valid = other.run(&["config", "validate", "--config", &file]).expect(0);
    assert!(valid.stdout.contains("valid") && valid.stdout.contains("printed.toml"), "{valid}");
}

#[test]
fn validate_names_each_file_that_run_refuses() {
    let place = Workplace::new();
    let key = place.write("key", "abc");
    let file = place.write(
        "node.toml",
        format!("[fleet]\nkey_file = \"{key}\"\n[nats]\nurl = [\"nats://127.0.0.1:1\"]\ncreds = \"/nonexistent/node.creds\"\n"),
    );
    let expected = ["has 3 bytes", "/nonexistent/node.creds cannot be read"];
    let text = place.run(&["config", "validate", "--config", &file]).expect(1);
    let json = place.run(&["config", "validate", "-o", "json", "--config", &file]).expect(1).object();
    for problem in expected {
        assert!(text.stderr.contains(problem), "{problem}: {text}");
        assert!(json["error"].as_str().is_some_and(|error| error.contains(problem)), "{problem}: {json}");
    }
    let run = place.run(&["run", "--node=n1", "--store", "images", "--config", &file]).expect(1);
    assert!(run.stderr.contains(expected[0]), "{run}");
}
