//! Paths that depend on the host, for settings that are empty.

use std::path::{Path, PathBuf};

use crate::model::{Runtime, State, Store};

/// The store of an agent that runs as root.
const STORE_OF_ROOT: &str = "/var/lib/fleetpull";
/// The directory below the store that has a state directory for each agent, named after its node.
const STATE_IN_STORE: &str = "state";
/// The default sockets of containerd and CRI-O.
const KNOWN_SOCKETS: [&str; 2] = ["/run/containerd/containerd.sock", "/run/crio/crio.sock"];

/// The properties of the host that the paths depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Whether the process runs as root.
    pub is_root: bool,
    /// `$XDG_DATA_HOME`, if it is an absolute path, as its specification demands.
    pub data_home: Option<PathBuf>,
    /// `$HOME`, if it is an absolute path.
    pub home: Option<PathBuf>,
}

/// A place that cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Neither `$XDG_DATA_HOME` nor `$HOME` gives a directory for the store.
    #[error("there is no directory for images: neither XDG_DATA_HOME nor HOME is an absolute path; give --store DIR or set store.dir")]
    NoStore,
    /// None of the known sockets exists.
    #[error("no container runtime was found: neither {} is there; give --runtime-endpoint unix://PATH or set runtime.endpoint", KNOWN_SOCKETS.join(" nor "))]
    NoRuntime,
}

impl Host {
    /// The properties of this host, read from the kernel and from `environment`.
    #[must_use]
    pub fn of(environment: &[(String, String)]) -> Self {
        let absolute = |name: &str| {
            let (_, value) = environment.iter().find(|(variable, _)| variable == name)?;
            Some(PathBuf::from(value)).filter(|path| path.is_absolute())
        };
        Self { is_root: runs_as_root(), data_home: absolute("XDG_DATA_HOME"), home: absolute("HOME") }
    }
}

/// Asks the kernel for the effective user.
fn runs_as_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    // The four numbers are the real, effective, saved and file-system user ids.
    users.and_then(|users| users.split_whitespace().nth(1)) == Some("0")
}

impl Store {
    /// The directory of the images on this host.
    ///
    /// # Errors
    /// [`PlaceError::NoStore`].
    pub fn dir_on(&self, host: &Host) -> Result<PathBuf, PlaceError> {
        if let Some(dir) = &self.dir {
            return Ok(dir.clone());
        }
        if host.is_root {
            return Ok(PathBuf::from(STORE_OF_ROOT));
        }
        let data = host.data_home.clone().or_else(|| Some(host.home.as_ref()?.join(".local/share")));
        data.map(|data| data.join("fleetpull")).ok_or(PlaceError::NoStore)
    }
}

impl State {
    /// The state directory of the agent of `node`. By default agents of different names have different directories.
    #[must_use]
    pub fn dir_on(&self, store: &Path, node: &str) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| store.join(STATE_IN_STORE).join(node))
    }

    /// The directory that has a state directory for each agent of this host; none if `state.dir` names one directory.
    #[must_use]
    pub fn parent_on(&self, store: &Path) -> Option<PathBuf> {
        self.dir.is_none().then(|| store.join(STATE_IN_STORE))
    }
}

impl Runtime {
    /// The socket of the runtime as a URL: as set, else the first known socket that `exists`.
    ///
    /// # Errors
    /// [`PlaceError::NoRuntime`].
    pub fn endpoint_on(&self, exists: impl Fn(&Path) -> bool) -> Result<String, PlaceError> {
        if let Some(endpoint) = &self.endpoint {
            return Ok(endpoint.clone());
        }
        let found = KNOWN_SOCKETS.iter().find(|socket| exists(Path::new(socket)));
        found.map(|socket| format!("unix://{socket}")).ok_or(PlaceError::NoRuntime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_store_is_a_directory_that_the_user_may_write() {
        let environment =
            |pairs: &[(&str, &str)]| -> Vec<(String, String)> { pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect() };
        let store = |is_root, pairs| {
            Store::default().dir_on(&Host { is_root, ..Host::of(&environment(pairs)) }).map(|dir| dir.display().to_string())
        };
        assert_eq!(store(true, &[("XDG_DATA_HOME", "/data")]).unwrap(), "/var/lib/fleetpull");
        assert_eq!(store(false, &[("XDG_DATA_HOME", "/data"), ("HOME", "/home/ann")]).unwrap(), "/data/fleetpull");
        assert_eq!(store(false, &[("XDG_DATA_HOME", "relative"), ("HOME", "/home/ann")]).unwrap(), "/home/ann/.local/share/fleetpull");
        assert_eq!(store(false, &[("HOME", "")]).unwrap_err(), PlaceError::NoStore);
        let given = Store { dir: Some("/srv".into()), ..Store::default() };
        assert_eq!(given.dir_on(&Host::default()).unwrap(), Path::new("/srv"));
    }

    #[test]
    fn default_state_directory_is_below_the_store_and_named_after_the_node() {
        assert_eq!(State::default().dir_on(Path::new("/s"), "n1"), Path::new("/s/state/n1"));
        assert_eq!(State { dir: Some("/own".into()) }.dir_on(Path::new("/s"), "n1"), Path::new("/own"));
        assert_eq!(State::default().parent_on(Path::new("/s")), Some(PathBuf::from("/s/state")));
        assert_eq!(State { dir: Some("/own".into()) }.parent_on(Path::new("/s")), None);
    }

    #[test]
    fn first_known_socket_that_exists_is_the_default_endpoint() {
        let runtime = Runtime::default();
        assert_eq!(runtime.endpoint_on(|_| true).unwrap(), "unix:///run/containerd/containerd.sock");
        assert_eq!(runtime.endpoint_on(|path| path.starts_with("/run/crio")).unwrap(), "unix:///run/crio/crio.sock");
        assert!(runtime.endpoint_on(|_| false).unwrap_err().to_string().contains("--runtime-endpoint"));
        let given = Runtime { endpoint: Some("unix:///x".into()), ..Runtime::default() };
        assert_eq!(given.endpoint_on(|_| false).unwrap(), "unix:///x");
    }
}
