//! The fleet of deploy/compose.yaml names only files, settings, options and services that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use e2e::Workplace;
use regex::Regex;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All matches of a pattern's group in a text.
fn all<'a>(text: &'a str, pattern: &str) -> BTreeSet<&'a str> {
    Regex::new(pattern).unwrap().captures_iter(text).map(|found| found.get(1).unwrap().as_str()).collect()
}

/// The names that are indented by one step within a part of the file.
fn names_in<'a>(text: &'a str, part: &str) -> BTreeSet<&'a str> {
    let lines = text.lines().skip_while(|line| *line != format!("{part}:")).skip(1);
    let within: Vec<&str> = lines.take_while(|line| line.is_empty() || line.starts_with(' ')).collect();
    let name = |line: &&'a str| line.strip_prefix("  ").filter(|line| !line.starts_with([' ', '#']))?.split(':').next();
    within.iter().filter_map(name).collect()
}

fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

#[test]
fn compose_file_has_all_services_and_its_mounts_exist() {
    let text = read("deploy/compose.yaml");
    let services = names_in(&text, "services");
    assert_eq!(services, ["grafana", "jaeger", "nats", "node-1", "node-2", "node-3", "prometheus", "registry"].into());
    let mounts = all(&text, r"(\./[^:\s]+):/");
    assert!(mounts.len() >= 6, "{mounts:?}");
    for path in mounts {
        assert!(repository("deploy").join(path).exists(), "{path} is mounted and is not there");
    }
    let named = all(&text, r#"(?:- |\[")([a-z0-9-]+):/"#);
    assert_eq!(named, names_in(&text, "volumes"), "volumes that are used, and that are declared");
    for image in all(&text, r"image: (\S+)").into_iter().filter(|image| *image != "fleetpull") {
        assert!(image.contains('/') && !image.ends_with(":latest") && image.rsplit('/').next().unwrap().contains(':'), "{image} has a tag");
    }
    assert!(text.contains("dockerfile: deploy/Containerfile"));
    // Services without a login are reachable from this machine alone.
    for port in all(&text, r#"ports: \["([^"]+)"\]"#) {
        assert!(port.starts_with("127.0.0.1:"), "{port}");
    }
}

#[test]
fn every_variable_that_it_gives_to_agents_is_one_that_they_read() {
    let text = without_comments(&read("deploy/compose.yaml"));
    let (settings, traces) = (read("config/fleetpull.toml"), read("shared/telemetry/src/traces/options.rs"));
    let variables = all(&text, r"\b((?:FLEETPULL|OTEL)_[A-Z_]+):");
    assert!(variables.len() >= 5, "{variables:?}");
    for variable in variables {
        let is_known = all(&settings, r"\b(FLEETPULL_[A-Z_]+)").contains(variable) || traces.contains(&format!("\"{variable}\""));
        assert!(is_known, "{variable} is read by nobody");
    }
    let image = read("deploy/Containerfile");
    for variable in all(&image, r"\b(FLEETPULL_[A-Z_]+)=") {
        assert!(all(&settings, r"\b(FLEETPULL_[A-Z_]+)").contains(variable), "{variable} is read by nobody");
    }
}

#[test]
fn the_commands_of_its_head_have_the_options_that_they_name() {
    let (text, place) = (read("deploy/compose.yaml"), Workplace::new());
    let services = names_in(&text, "services");
    let mut commands = 0;
    for line in text.lines().filter(|line| line.starts_with('#') && line.contains(" exec ")) {
        let (_, command) = line.split_once(" exec ").unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        assert!(services.contains(words[0]) && words[1] == "fleetpull", "{line}");
        let verbs: Vec<&str> = words[2..].iter().copied().take_while(|word| word.bytes().all(|byte| byte.is_ascii_lowercase())).collect();
        let help = place.run(&[verbs.as_slice(), &["--help"]].concat()).expect(0);
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.stdout.contains(option), "{line}: {option}");
        }
        commands += 1;
    }
    assert!(commands >= 4, "{commands}");
}

#[test]
fn prometheus_and_grafana_find_what_is_there() {
    let text = read("deploy/compose.yaml");
    let (services, metrics) = (names_in(&text, "services"), read("deploy/prometheus/prometheus.yaml"));
    let port = all(&text, r"FLEETPULL_METRICS_ADDRESS: 0\.0\.0\.0:(\d+)");
    let targets = all(&metrics, r#""([^"]+:\d+)""#);
    assert_eq!(targets.len(), 3, "{targets:?}");
    for target in targets {
        let (node, asked) = target.split_once(':').unwrap();
        assert!(services.contains(node) && port.contains(asked), "{target}");
    }
    let sources = read("deploy/grafana/provisioning/datasources/fleetpull.yaml");
    for host in all(&sources, r"url: http://([a-z]+):") {
        assert!(services.contains(host), "{host}");
    }
    let uids = all(&sources, r"\buid: (\S+)");
    assert!(all(&sources, r"datasourceUid: (\S+)").is_subset(&uids), "{uids:?}");
    let dashboards = read("deploy/grafana/provisioning/dashboards/fleetpull.yaml");
    let [folder] = all(&dashboards, r"path: (\S+)").into_iter().collect::<Vec<_>>()[..] else { panic!("one folder: {dashboards}") };
    for dashboard in ["fleet.json", "node.json"] {
        assert!(text.contains(&format!("./grafana/{dashboard}:{folder}/{dashboard}:ro")), "{dashboard}");
    }
    // The registry that has no certificate.
    let [host] = all(&text, r#"aliases: \["([^"]+)"\]"#).into_iter().collect::<Vec<_>>()[..] else { panic!("one alias") };
    assert!(text.contains(&format!("/etc/containerd/certs.d/{host}/hosts.toml:ro")));
    assert!(read("deploy/compose/hosts.toml").contains(&format!("server = \"http://{host}\"")));
}
