//! Skopeo, to fill registries and to read what was pulled.

use std::process::Command;

/// Runs skopeo; returns its stdout. `support::docker_registry::available` tells whether it is installed.
///
/// # Panics
/// If it fails; the message shows its output.
pub fn skopeo(arguments: &[&str]) -> String {
    let done = Command::new("skopeo").args(arguments).output().expect("skopeo can be run");
    assert!(done.status.success(), "skopeo {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("skopeo writes UTF-8")
}
