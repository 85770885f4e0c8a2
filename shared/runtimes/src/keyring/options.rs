//! Where logins are looked for.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The login file that kubelet reads for the whole node.
pub const KUBELET_LOGIN_FILE: &str = "/var/lib/kubelet/config.json";

/// Environment variables, taken once. Helpers are run with exactly these. Never printed: values may be secrets.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// The value of a variable; `None` also for an empty one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// A path in a variable.
    fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Environment({} variables)", self.0.len())
    }
}

/// Where a keyring looks.
#[derive(Clone, Debug)]
pub struct KeyringOptions {
    /// `--authfile`: this file and no other.
    pub authfile: Option<PathBuf>,
    /// Gives `REGISTRY_AUTH_FILE`, `DOCKER_CONFIG`, `XDG_RUNTIME_DIR`, `XDG_CONFIG_HOME`, `HOME` and, for helpers, `PATH`.
    pub environment: Environment,
    /// Kubelet's file, [`KUBELET_LOGIN_FILE`] but in tests.
    pub kubelet_file: PathBuf,
}

impl KeyringOptions {
    /// As this process is set up, with the file named by `--authfile`, if any.
    #[must_use]
    pub fn of_process(authfile: Option<PathBuf>) -> Self {
        Self { authfile, environment: Environment::of_process(), kubelet_file: PathBuf::from(KUBELET_LOGIN_FILE) }
    }
}

/// One place where a file of logins may lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) path: PathBuf,
    pub(super) need: Need,
}

/// What it means that a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Somebody named it: it must be there.
    Named(&'static str),
    /// A usual place: it may be missing, but what is there must be readable.
    Usual,
    /// Another program's file: left out when it is missing or not for us.
    Foreign,
}

impl KeyringOptions {
    /// The places in the order in which they are tried. A file named by flag or `REGISTRY_AUTH_FILE` stands alone, as in podman and skopeo.
    pub(super) fn locations(&self) -> Vec<Location> {
        if let Some(path) = &self.authfile {
            return vec![Location { path: path.clone(), need: Need::Named("--authfile") }];
        }
        if let Some(path) = self.environment.path("REGISTRY_AUTH_FILE") {
            return vec![Location { path, need: Need::Named("REGISTRY_AUTH_FILE") }];
        }
        let usual = |path: PathBuf| Location { path, need: Need::Usual };
        let home = self.environment.path("HOME");
        let in_home = |folder: &str| home.as_deref().map(|home| home.join(folder));
        let docker = self.environment.path("DOCKER_CONFIG").or_else(|| in_home(".docker"));
        let settings = self.environment.path("XDG_CONFIG_HOME").or_else(|| in_home(".config"));
        let mut locations = Vec::new();
        locations.extend(docker.map(|folder| usual(folder.join("config.json"))));
        locations.push(usual(self.runtime_folder().join("auth.json")));
        locations.extend(settings.map(|folder| usual(folder.join("containers/auth.json"))));
        locations.push(Location { path: self.kubelet_file.clone(), need: Need::Foreign });
        locations
    }

    /// Where podman, skopeo and buildah keep logins until the next boot.
    fn runtime_folder(&self) -> PathBuf {
        self.environment.path("XDG_RUNTIME_DIR").map_or_else(
            || {
                // Who owns this process, told without unsafe code; root where /proc is not mounted.
                let user = std::fs::metadata("/proc/self").map_or(0, |entry| entry.uid());
                Path::new("/run/containers").join(user.to_string())
            },
            |folder| folder.join("containers"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(authfile: Option<&str>, environment: &[(&str, &str)]) -> Vec<String> {
        let options = KeyringOptions {
            authfile: authfile.map(PathBuf::from),
            environment: environment.iter().copied().collect(),
            kubelet_file: PathBuf::from(KUBELET_LOGIN_FILE),
        };
        options.locations().into_iter().map(|location| location.path.display().to_string()).collect()
    }

    #[test]
    fn a_named_file_stands_alone() {
        let environment = [("REGISTRY_AUTH_FILE", "/b.json"), ("DOCKER_CONFIG", "/c"), ("HOME", "/home/u")];
        assert_eq!(paths(Some("/a.json"), &environment), ["/a.json"]);
        assert_eq!(paths(None, &environment), ["/b.json"]);
    }

    #[test]
    fn the_usual_places_in_order() {
        assert_eq!(
            paths(None, &[("HOME", "/home/u"), ("XDG_RUNTIME_DIR", "/run/user/7"), ("REGISTRY_AUTH_FILE", "")]),
            [
                "/home/u/.docker/config.json",
                "/run/user/7/containers/auth.json",
                "/home/u/.config/containers/auth.json",
                "/var/lib/kubelet/config.json"
            ]
        );
        assert_eq!(
            paths(None, &[("DOCKER_CONFIG", "/c"), ("HOME", "/h"), ("XDG_CONFIG_HOME", "/x"), ("XDG_RUNTIME_DIR", "/r")]),
            ["/c/config.json", "/r/containers/auth.json", "/x/containers/auth.json", "/var/lib/kubelet/config.json"]
        );
    }

    #[test]
    fn debug_shows_no_value() {
        let environment: Environment = [("TOKEN", "hunter2")].into_iter().collect();
        assert_eq!(format!("{environment:?}"), "Environment(1 variables)");
    }
}
