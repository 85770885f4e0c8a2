//! Checks that dashboards, alert rules and runbooks name instruments that exist, and that every instrument is on a dashboard.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use metrics::table::{self, ALL};
use regex::Regex;
use serde_json::Value;

/// The labels that Prometheus adds, and those that a histogram has besides.
const ADDED: [&str; 3] = ["instance", "job", "le"];

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(deploy(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Adds every value under the key `expr`, or under `definition` of a variable.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "expr" || key == "definition" => found.push(text.clone()),
                    value => expressions(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// The expressions of the dashboards by file.
fn dashboards() -> BTreeMap<&'static str, Vec<String>> {
    ["grafana/fleet.json", "grafana/node.json"]
        .into_iter()
        .map(|name| {
            let mut found = Vec::new();
            expressions(&serde_json::from_str(&read(name)).unwrap(), &mut found);
            assert!(found.len() > 20, "{name} has {} expressions", found.len());
            (name, found)
        })
        .collect()
}

/// The expressions of the rules, and of their tests.
fn rules() -> Vec<String> {
    let of = |name: &str, start: &str| {
        let lines = read(name);
        lines.lines().filter_map(|line| Some(line.trim().strip_prefix(start)?.to_owned())).collect::<Vec<_>>()
    };
    let (rules, tests) = (of("prometheus/rules.yaml", "expr: "), of("prometheus/rules-test.yaml", "- series: "));
    assert!(rules.len() >= 5 && tests.len() >= 5, "{rules:?} {tests:?}");
    [rules, tests].concat()
}

/// The unknown names and labels of an expression.
fn wrong(expression: &str) -> Vec<String> {
    let selector = Regex::new(r"(fleetpull_[a-z_]+)(?:\{([^}]*)\})?").unwrap();
    let matcher = Regex::new(r"([a-z_]+)\s*(?:=~|!~|!=|=)").unwrap();
    let mut wrong = Vec::new();
    for found in selector.captures_iter(expression) {
        let name = &found[1];
        let Some(instrument) = table::of_sample(name) else {
            wrong.push(format!("{name} is no instrument"));
            continue;
        };
        let labels = found.get(2).map_or("", |labels| labels.as_str());
        for label in matcher.captures_iter(labels).map(|found| found[1].to_owned()) {
            if !instrument.labels.contains(&label.as_str()) && !ADDED.contains(&label.as_str()) {
                wrong.push(format!("{name} has no label {label}"));
            }
        }
    }
    let grouped = Regex::new(r"(?:by|without) \(([^)]*)\)").unwrap();
    for label in
        grouped.captures_iter(expression).flat_map(|found| found[1].split(',').map(|label| label.trim().to_owned()).collect::<Vec<_>>())
    {
        let known = ADDED.contains(&label.as_str()) || ALL.iter().any(|instrument| instrument.labels.contains(&label.as_str()));
        if !known {
            wrong.push(format!("no instrument has the label {label}"));
        }
    }
    wrong
}

#[test]
fn dashboards_and_rules_name_instruments_and_labels_that_exist() {
    assert_eq!(wrong("sum by (registry, le) (rate(fleetpull_wait_duration_seconds_bucket{cause=\"slot\",instance=\"x\"}[5m]))"), [""; 0]);
    assert_eq!(
        wrong("sum by (pod) (fleetpull_pulls_total{image=\"x\"}) / fleetpull_pulls"),
        ["fleetpull_pulls_total has no label image", "fleetpull_pulls is no instrument", "no instrument has the label pod"],
        "this test finds what it looks for"
    );
    for (name, expressions) in dashboards() {
        for expression in expressions {
            assert_eq!(wrong(&expression), [""; 0], "{name}: {expression}");
        }
    }
    for expression in rules() {
        assert_eq!(wrong(&expression), [""; 0], "{expression}");
    }
    for runbook in std::fs::read_dir(deploy("runbooks")).unwrap().map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&runbook).unwrap();
        assert_eq!(wrong(&text), [""; 0], "{}", runbook.display());
    }
}

#[test]
fn every_instrument_is_on_a_dashboard() {
    let all: String = dashboards().into_values().flatten().collect::<Vec<_>>().join("\n");
    let names = Regex::new(r"fleetpull_[a-z_]+").unwrap();
    let shown: BTreeSet<&str> = names.find_iter(&all).filter_map(|name| Some(table::of_sample(name.as_str())?.name)).collect();
    let missing: Vec<&str> = ALL.iter().map(|instrument| instrument.name).filter(|name| !shown.contains(name)).collect();
    assert_eq!(missing, [""; 0], "nobody would look at these");
}

#[test]
fn each_alert_has_its_runbook_and_its_test() {
    let (rules, tests) = (read("prometheus/rules.yaml"), read("prometheus/rules-test.yaml"));
    let values = |text: &str, key: &str| -> Vec<String> {
        text.lines().filter_map(|line| Some(line.trim().trim_start_matches("- ").strip_prefix(key)?.trim().to_owned())).collect()
    };
    let (alerts, runbooks) = (values(&rules, "alert:"), values(&rules, "runbook_url:"));
    assert_eq!((alerts.len(), runbooks.len()), (8, 8), "{alerts:?} {runbooks:?}");
    for (alert, runbook) in alerts.iter().zip(&runbooks) {
        let file = runbook.strip_prefix("RUNBOOKS/").unwrap_or_else(|| panic!("{alert}: {runbook}"));
        assert!(read(&format!("runbooks/{file}")).starts_with(&format!("# {alert}\n")), "{file} is of {alert}");
        let fires = Regex::new(&format!(r"alertname: {alert}\n\s+exp_alerts:\n")).unwrap();
        assert!(
            fires.is_match(&tests) && tests.contains(&format!("alertname: {alert}, exp_alerts: []")),
            "{alert} is seen to fire, and not to fire"
        );
    }
    let files = std::fs::read_dir(deploy("runbooks")).unwrap().count();
    assert_eq!(files, runbooks.len(), "no runbook is without its alert");
}
