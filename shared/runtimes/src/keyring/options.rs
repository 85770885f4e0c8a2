//! The places where logins are searched.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The login file that kubelet reads for the whole node.
pub const KUBELET_LOGIN_FILE: &str = "/var/lib/kubelet/config.json";

/// Environment variables, read once; helpers run with exactly these. Never printed: values may be secrets.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The variables of this process.
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

/// Where a keyring searches.
#[derive(Clone, Debug)]
pub struct KeyringOptions {
    /// `--authfile`: this file and no other.
    pub authfile: Option<PathBuf>,
    /// The source of `REGISTRY_AUTH_FILE`, `DOCKER_CONFIG`, `XDG_RUNTIME_DIR`, `XDG_CONFIG_HOME`, `HOME` and, for helpers, `PATH`.
    pub environment: Environment,
    /// Kubelet's file: [`KUBELET_LOGIN_FILE`], another one in tests.
    pub kubelet_file: PathBuf,
}

impl KeyringOptions {
    /// The options by this process's environment, with the file of `--authfile`, if any.
    #[must_use]
    pub fn of_process(authfile: Option<PathBuf>) -> Self {
        Self { authfile, environment: Environment::of_process(), kubelet_file: PathBuf::from(KUBELET_LOGIN_FILE) }
    }
}

/// A place where a file of logins may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) path: PathBuf,
    pub(super) need: Need,
}

impl Location {
    /// The path, and what named it, for people.
    pub(super) fn describe(&self) -> String {
        match self.need {
            Need::Named(by) => format!("{} ({by})", self.path.display()),
            Need::Usual | Need::Foreign => self.path.display().to_string(),
        }
    }
}

/// What follows if a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It was named explicitly: it must exist.
    Named(&'static str),
    /// A usual place: it may be missing, but must be readable if it exists.
    Usual,
    /// Another program's file: skipped if it is missing or not readable for us.
    Foreign,
}

impl KeyringOptions {
    /// The places in the order of use. A file named by the flag or `REGISTRY_AUTH_FILE` is the only one, as in podman and skopeo.
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

    /// The folder in which podman, skopeo and buildah keep logins until the next boot.
    fn runtime_folder(&self) -> PathBuf {
        self.environment.path("XDG_RUNTIME_DIR").map_or_else(
            || {
                // The user of this process, read without unsafe code; root if /proc is not mounted.
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
    fn named_file_is_the_only_place() {
        let environment = [("REGISTRY_AUTH_FILE", "/b.json"), ("DOCKER_CONFIG", "/c"), ("HOME", "/home/u")];
        assert_eq!(paths(Some("/a.json"), &environment), ["/a.json"]);
        assert_eq!(paths(None, &environment), ["/b.json"]);
    }

    #[test]
    fn usual_places_are_searched_in_order() {
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
    fn debug_prints_no_value() {
        let environment: Environment = [("TOKEN", "hunter2")].into_iter().collect();
        assert_eq!(format!("{environment:?}"), "Environment(1 variables)");
    }
}
