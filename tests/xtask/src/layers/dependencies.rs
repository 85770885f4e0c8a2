//! Rules about dependencies between crates.

use super::Violation;
use super::workspace::{Package, Workspace};

/// The crate that composes the services.
const BINARY: &str = "fleetpull";

/// Crates that one crate alone may use. Test crates may use them too, because they call services from outside.
const HOMES: [(&str, &str); 10] = [
    ("async-nats", "shared/bus"),
    ("nats", "shared/bus"),
    ("reqwest", "shared/runtimes"),
    ("tonic", "shared/runtimes"),
    ("tonic-prost", "shared/runtimes"),
    ("oci-client", "shared/runtimes"),
    ("containerd-client", "shared/runtimes"),
    ("k8s-cri", "shared/runtimes"),
    ("opentelemetry-otlp", "shared/telemetry"),
    ("opentelemetry_sdk", "shared/telemetry"),
];

/// Checks that only the binary depends on services.
pub(super) fn services_apart(workspace: &Workspace) -> Vec<Violation> {
    let is_service =
        |name: &String| workspace.packages.iter().any(|package| package.name == *name && package.folder.starts_with("services/"));
    let others = workspace.shipped().filter(|package| package.name != BINARY);
    others.flat_map(|package| uses(package, is_service, "is a service: speak to it by subject and message")).collect()
}

/// Checks that no shipped crate depends on a crate under tests/.
pub(super) fn tests_outside(workspace: &Workspace) -> Vec<Violation> {
    let is_test = |name: &String| workspace.packages.iter().any(|package| package.name == *name && package.folder.starts_with("tests/"));
    workspace.shipped().flat_map(|package| uses(package, is_test, "is for tests: make it a dev-dependency")).collect()
}

/// Checks that crates with a home are used there only.
pub(super) fn homes(workspace: &Workspace) -> Vec<Violation> {
    let away = |package: &Package, name: &String| HOMES.iter().any(|(guest, home)| guest == name && *home != package.folder);
    let mut found = Vec::new();
    for package in workspace.shipped() {
        found.extend(uses(package, |name| away(package, name), "has its home in another crate: use that crate's port"));
    }
    found
}

fn uses(package: &Package, is_wrong: impl Fn(&String) -> bool, what: &str) -> Vec<Violation> {
    let wrong = package.dependencies.iter().filter(|name| is_wrong(name));
    wrong.map(|name| Violation::new(format!("{}/Cargo.toml", package.folder), format!("{name} {what}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::workspace::made_up::package;
    use super::*;

    fn places(violations: Vec<Violation>) -> Vec<String> {
        violations.into_iter().map(|violation| violation.place).collect()
    }

    #[test]
    fn a_service_that_depends_on_another_is_found() {
        let packages = vec![
            package("services/fleetpull", &["throttler", "clock"]),
            package("services/throttler", &["backoff-tracker", "clock"]),
            package("services/backoff-tracker", &["clock"]),
            package("shared/actors", &["throttler"]),
            package("tests/integration", &["throttler"]),
        ];
        let found = services_apart(&Workspace { packages, ..Workspace::default() });
        assert_eq!(places(found), ["services/throttler/Cargo.toml", "shared/actors/Cargo.toml"]);
    }

    #[test]
    fn a_test_crate_that_ships_is_found() {
        let packages = vec![package("tests/support", &[]), package("shared/bus", &["support"]), package("tests/e2e", &["support"])];
        assert_eq!(places(tests_outside(&Workspace { packages, ..Workspace::default() })), ["shared/bus/Cargo.toml"]);
    }

    #[test]
    fn restricted_dependency_outside_its_crate_is_found() {
        let packages = vec![
            package("shared/bus", &["async-nats"]),
            package("shared/runtimes", &["tonic", "reqwest"]),
            package("services/throttler", &["async-nats", "tonic"]),
            package("tests/e2e", &["async-nats"]),
        ];
        let found = homes(&Workspace { packages, ..Workspace::default() });
        assert_eq!(places(found), ["services/throttler/Cargo.toml", "services/throttler/Cargo.toml"]);
    }
}
