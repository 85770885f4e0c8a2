//! The real registry, and skopeo to fill it and to read what was pulled.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::process::Started;
use crate::until::until;

/// User and password of a registry that wants a login.
pub const LOGIN: (&str, &str) = ("deploy", "correct-horse-battery");
/// The line of an htpasswd file for [`LOGIN`]: bcrypt, cost 4, since nothing is protected by it.
const HTPASSWD: &str = "deploy:$2y$04$KZTaV39DdQGVDjj.4/Jh2e3mHeL40/x0TAqM.G9wCbop.Bp.o284i\n";
/// Before the address in the line that tells it.
const LISTENING: &str = "listening on ";

/// Whether docker-registry and skopeo are installed; if not, what to do.
///
/// # Errors
/// What is missing.
pub fn docker_registry() -> Result<(), String> {
    for program in ["docker-registry", "skopeo"] {
        let found = Command::new(program).arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            return Err(format!("{program} is not installed: apt-get install {program}"));
        }
    }
    Ok(())
}

/// A running docker-registry; killed when dropped.
pub struct DockerRegistry {
    host: String,
    _process: Started,
    folder: TempDir,
}

impl DockerRegistry {
    /// Starts one that everybody may use.
    #[must_use]
    pub fn open() -> Self {
        Self::start("")
    }

    /// Starts one that only [`LOGIN`] may use.
    #[must_use]
    pub fn with_login() -> Self {
        Self::start("auth: {htpasswd: {realm: registry, path: @/htpasswd}}\n")
    }

    fn start(more: &str) -> Self {
        let folder = TempDir::with_prefix("docker-registry-").expect("a folder can be made");
        let place = folder.path().display().to_string();
        let settings = format!(
            "version: 0.1\nlog: {{level: info}}\nstorage: {{filesystem: {{rootdirectory: @/store}}}}\nhttp: {{addr: 127.0.0.1:0}}\n{more}"
        );
        std::fs::write(folder.path().join("config.yml"), settings.replace('@', &place)).expect("the folder can be written");
        std::fs::write(folder.path().join("htpasswd"), HTPASSWD).expect("the folder can be written");
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(folder.path().join("config.yml")).env("OTEL_TRACES_EXPORTER", "none");
        let process = Started::of(command);
        let host = until("docker-registry says where it listens", || {
            let log = process.stdout() + &process.stderr();
            let (_, rest) = log.split_once(LISTENING)?;
            rest.split(['"', ' ', '\n', ',']).next().map(str::to_owned)
        });
        Self { host, _process: process, folder }
    }

    /// `host:port`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// `host:port/name`.
    #[must_use]
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.host)
    }

    /// Where it keeps blobs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Runs skopeo; gives its stdout.
///
/// # Panics
/// When it fails; the text shows what it says.
pub fn skopeo(arguments: &[&str]) -> String {
    let done = Command::new("skopeo").args(arguments).output().expect("skopeo can be run");
    assert!(done.status.success(), "skopeo {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("skopeo writes UTF-8")
}
