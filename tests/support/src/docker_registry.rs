//! Real docker-registries on free ports, each with its own folder, removed when the test ends.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tempfile::TempDir;

/// The longest a start may take: it usually takes milliseconds, and longer on a machine under load.
const START_LIMIT: Duration = Duration::from_secs(20);
/// The text before the address in the log line that reports it.
const LISTENING: &str = "listening on ";

/// The user of a registry with a login.
pub const USER: &str = "deploy";
/// The password of [`USER`].
pub const PASSWORD: &str = "open sesame";
/// The bcrypt hash of [`PASSWORD`] for the registry's file of users.
const PASSWORD_HASH: &str = "$2y$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW";

/// Checks whether docker-registry is installed, and skopeo, which fills it.
///
/// # Errors
/// Names what is missing and how to install it.
pub fn available() -> Result<(), String> {
    for program in ["docker-registry", "skopeo"] {
        let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(format!("{program} is not installed: apt-get install {program}"));
        }
    }
    Ok(())
}

/// A running docker-registry; killed when dropped.
pub struct DockerRegistry {
    child: Child,
    host: String,
    login: bool,
    _folder: TempDir,
}

impl DockerRegistry {
    /// Starts a registry without a login.
    #[must_use]
    pub fn start() -> Self {
        Self::launch(false)
    }

    /// Starts a registry that only [`USER`] can use.
    #[must_use]
    pub fn start_with_login() -> Self {
        Self::launch(true)
    }

    /// The address, as `host:port`.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Copies an image from another registry on this machine (`host:port/name:tag`), as `name` (`path:tag`), with all its platforms.
    ///
    /// # Panics
    /// When skopeo cannot copy it; the text is skopeo's.
    pub async fn copy_in(&self, image: &str, name: &str) {
        let mut command = tokio::process::Command::new("skopeo");
        command.args(["copy", "--all", "--src-tls-verify=false", "--dest-tls-verify=false"]);
        if self.login {
            command.args(["--dest-creds", &format!("{USER}:{PASSWORD}")]);
        }
        command.args([format!("docker://{image}"), format!("docker://{}/{name}", self.host)]);
        let copied = command.output().await.expect("skopeo can be started");
        assert!(copied.status.success(), "skopeo cannot copy {image}: {}", String::from_utf8_lossy(&copied.stderr));
    }

    fn launch(login: bool) -> Self {
        let folder = TempDir::with_prefix("registry-").expect("a folder for the registry can be made");
        let path = |name: &str| format!("{:?}", folder.path().join(name).display().to_string());
        let mut settings =
            format!("version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n", path("root"));
        if login {
            std::fs::write(folder.path().join("users"), format!("{USER}:{PASSWORD_HASH}\n")).expect("the folder can be written");
            settings += &format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", path("users"));
        }
        let file = folder.path().join("config.yml");
        std::fs::write(&file, settings).expect("the folder can be written");
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        die_with_the_test(&mut command);
        let mut child = command.spawn().expect("docker-registry can be started");
        let lines = lines_of(child.stderr.take().expect("stderr is piped"));
        let mut registry = Self { child, host: String::new(), login, _folder: folder };
        registry.host = wait_for_address(&lines);
        registry
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        // This fails only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the log until the registry ends, so that a full pipe never blocks the registry.
fn lines_of(log: ChildStderr) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            // After the start the receiver has been dropped.
            let _ = sender.send(line);
        }
    });
    receiver
}

fn wait_for_address(lines: &Receiver<String>) -> String {
    let mut log = String::new();
    while let Ok(line) = lines.recv_timeout(START_LIMIT) {
        if let Some((_, address)) = line.split_once(LISTENING) {
            return address.split('"').next().unwrap_or_default().to_owned();
        }
        log = log + &line + "\n";
    }
    panic!("docker-registry does not listen after {START_LIMIT:?}:\n{log}");
}

/// Makes the kernel kill the process when the test process is killed.
#[allow(unsafe_code, reason = "the standard library cannot ask the kernel for this")]
fn die_with_the_test(command: &mut Command) {
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe and allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}
