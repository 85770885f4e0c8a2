//! The unit for systemd.

use std::path::PathBuf;
use std::process::Command;

use support::requirement::met;
use tempfile::TempDir;

use super::read;

/// Whether systemd's own checker is installed.
fn systemd_analyze() -> Result<(), String> {
    let version = Command::new("systemd-analyze").arg("--version").output();
    version.map(drop).map_err(|error| format!("systemd-analyze cannot be run: {error}; cargo xtask tools gets it"))
}

/// Copies the unit to a folder. systemd requires that the unit's program exists.
fn unit_in(folder: &TempDir) -> PathBuf {
    let unit = folder.path().join("fleetpull.service");
    std::fs::write(&unit, read("systemd/fleetpull.service").replace("/usr/local/bin/fleetpull", "/bin/true")).unwrap();
    unit
}

#[test]
fn systemd_accepts_the_unit_without_a_warning() {
    if met(systemd_analyze()).is_none() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg(unit_in(&folder)).output().unwrap();
    let warnings = String::from_utf8_lossy(&verified.stderr);
    // It also reads the units that ours names, and reports their errors too.
    let of_ours: Vec<&str> = warnings.lines().filter(|line| line.contains("fleetpull")).collect();
    assert!(of_ours.is_empty(), "{warnings}");
}

#[test]
fn systemd_rates_the_unit_no_more_exposed_than_documented() {
    if met(systemd_analyze()).is_none() {
        return;
    }
    let readme = read("README.md");
    let (_, rest) = readme.split_once("rates the unit's exposure ").expect("the README states the rating");
    let stated: f64 = rest.split(' ').next().unwrap().parse().unwrap();
    let folder = TempDir::new().unwrap();
    let exceeds = |threshold: f64| {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--no-pager", "--offline=yes"]).arg(format!("--threshold={:.0}", threshold * 10.0));
        let rated = command.arg(unit_in(&folder)).output().unwrap();
        (!rated.status.success()).then(|| String::from_utf8_lossy(&rated.stdout).into_owned())
    };
    assert_eq!(exceeds(stated), None);
    assert!(exceeds(stated - 0.2).is_some(), "the unit is better than the README states");
}

#[test]
fn the_documented_limits_are_those_of_the_unit() {
    let (unit, readme) = (read("systemd/fleetpull.service"), read("README.md"));
    for setting in ["TimeoutStartSec", "WatchdogSec", "MemoryHigh", "MemoryMax", "TasksMax", "OOMScoreAdjust"] {
        let value = unit.lines().find_map(|line| line.strip_prefix(&format!("{setting}="))).unwrap_or_else(|| panic!("{setting}"));
        let row = format!("| `{setting}` | {value} |");
        assert!(readme.contains(&row), "{row} is missing in deploy/README.md");
    }
}
