//! The command `storm`: its output, plots and refusals.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, Output};

use serde_json::Value;

fn storm(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simulation")).arg("storm").args(arguments).output().unwrap()
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    let output = storm(&[arguments, &["--output", "json"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

const SIDE: [&str; 8] = [
    "failing_requests",
    "last_served_after_recovery_s",
    "last_served_s",
    "longest_pause_s",
    "peak_per_second",
    "refused_on_healthy_nodes",
    "requests",
    "served",
];

#[test]
fn json_output_is_one_object_per_scenario_with_fixed_keys() {
    let rows = rows(&["--scenario", "all", "--nodes", "20", "--minutes", "12"]);
    let names: Vec<&str> = rows.iter().map(|row| row["scenario"].as_str().unwrap()).collect();
    let troubles = ["bad-tag", "late-tag", "down", "black-hole", "rate-limit", "hub-quota"];
    let roll_outs = ["roll-out", "roll-out-down", "roll-out-errors", "roll-out-hang", "sick-node"];
    let degraded = ["overload", "overload-proxy", "brownout", "partial-limit", "slow"];
    let stages = ["blobs-down", "blobs-hang", "tokens-down", "tokens-hang"];
    assert_eq!(names, [troubles.as_slice(), roll_outs.as_slice(), degraded.as_slice(), stages.as_slice()].concat());
    for row in &rows {
        assert_eq!(keys(row), ["fleetpull", "kubelet", "minutes", "nodes", "scenario", "seed"]);
        assert_eq!((&row["nodes"], &row["minutes"], &row["seed"]), (&20.into(), &12.into(), &1.into()));
        for side in ["kubelet", "fleetpull"] {
            assert_eq!(keys(&row[side]), SIDE);
        }
    }
}

#[test]
fn hub_quota_has_its_own_default_number_of_nodes() {
    let nodes = |arguments: &[&str]| rows(&[&["--scenario", "hub-quota", "--minutes", "1"], arguments].concat())[0]["nodes"].clone();
    assert_eq!((nodes(&[]), nodes(&["--nodes", "30"])), (300.into(), 30.into()));
}

#[test]
fn figures_depend_on_the_settings() {
    let of = |nodes: &str, set: &[&str], figure: &str| {
        let set: Vec<&str> = set.iter().flat_map(|one| ["--set", *one]).collect();
        rows(&[&["--scenario", "down", "--nodes", nodes, "--minutes", "12"], set.as_slice()].concat())[0]["fleetpull"][figure]
            .as_u64()
            .unwrap()
    };
    let ours = |set: &[&str], figure: &str| of("60", set, figure);
    assert!(ours(&[], "failing_requests") <= 100);
    assert!(of("300", &[], "peak_per_second") > 100, "300 nodes wait for one release");
    let slow = of("300", &["budget.pulls_per_second=50"], "peak_per_second");
    assert!(slow <= 50, "{slow} in a second");
    // 60 nodes in 660 s with delays of 10, 20, 40, 80, 160 and 300 s: seven attempts each.
    for share in ["fleet.share=off", "fleet.share=observe"] {
        assert_eq!(ours(&[share], "failing_requests"), 420, "{share}");
    }
    // One attempt every 10 s and 50 ms, because an attempt takes 50 ms.
    assert_eq!(ours(&["fleet.share=off", "backoff.max=10s"], "failing_requests"), 60 * 66);
}

#[test]
fn without_sharing_figures_equal_those_of_kubelets_rule() {
    for scenario in ["bad-tag", "late-tag", "down", "black-hole", "blobs-down", "blobs-hang", "tokens-down", "tokens-hang"] {
        let row = rows(&["--scenario", scenario, "--nodes", "200", "--set", "fleet.share=off"]).remove(0);
        for figure in ["requests", "failing_requests", "peak_per_second", "served"] {
            let [ours, kubelet] = ["fleetpull", "kubelet"].map(|side| row[side][figure].as_f64().unwrap());
            assert!((ours - kubelet).abs() <= kubelet * 0.05, "{figure}: {row}");
        }
    }
}

#[test]
fn exit_status_shows_whether_the_bars_are_met() {
    let down = ["--scenario", "down", "--nodes", "60", "--minutes", "12"];
    let status = |more: &[&str]| storm(&[&down, more].concat()).status.code();
    assert_eq!(status(&[]), Some(0));
    // Without sharing more requests fail than the bar allows, but with --set no bar is judged.
    assert_eq!(status(&["--set", "fleet.share=off"]), Some(0));
    // The run is too short for the trouble to end, so the figures of the time after it are not judged.
    assert_eq!(storm(&["--scenario", "down", "--nodes", "5", "--minutes", "1"]).status.code(), Some(0));
}

#[test]
fn wrong_arguments_are_refused() {
    let table: [(&[&str], &str); 8] = [
        (&["--scenario", "flood"], "invalid value 'flood'"),
        (&["--nodes", "0"], "0 is not in 1..=100000"),
        (&["--minutes", "many"], "invalid value 'many'"),
        (&["--set", "fleet.share"], "a setting is given as key=value, such as fleet.share=off"),
        (&["--set", "fleet.shar=off"], "fleet.shar: is not a known key; did you mean fleet.share?"),
        (&["--set", "backoff.initial=soon"], "backoff.initial = \"soon\": must be a duration"),
        (&["--set", "a.b=1", "--set", "budget.pulls_at_once=-1"], "2 settings are wrong:"),
        (&["--output", "yaml"], "invalid value 'yaml'"),
    ];
    for (arguments, words) in table {
        let output = storm(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words) && output.stdout.is_empty(), "{arguments:?}: {stderr}");
    }
}

#[test]
fn setting_without_effect_in_the_simulation_is_refused() {
    let output = storm(&["--scenario", "roll-out", "--nodes", "5", "--minutes", "1", "--set", "log.level=debug"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("log.level makes no difference here"));
}

#[test]
fn plot_writes_one_picture_per_scenario() {
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("new/plots");
    let output = storm(&["--scenario", "down", "--nodes", "20", "--minutes", "12", "--plot", into.to_str().unwrap()]);
    assert!(output.status.success());
    let svg = std::fs::read_to_string(into.join("down.svg")).unwrap();
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    let opened = svg.matches('<').count() - svg.matches("</").count();
    assert_eq!(opened, svg.matches("/>").count() + svg.matches("</").count(), "every element is closed");
    for words in ["kubelet: ", "fleetpull: ", "the trouble lasts", "class=\"failing\" d=\"M", "class=\"all\" d=\"M"] {
        assert!(svg.contains(words), "{words}");
    }
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = storm(&["--scenario", "roll-out", "--nodes", "5", "--minutes", "1", "--plot", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("for --plot"));
}
