//! Real containerds, each with its own root, state and socket, removed when the test ends.
//!
//! They pull through CRI with the `native` snapshotter, which needs no overlay. No network plug-in is set up: images need none.

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clock::Clock;
use image::Reference;
use runtimes::ImageRuntime;
use runtimes::cri::{CriOptions, CriRuntime};
use runtimes::keyring::{Environment, Keyring, KeyringOptions};
use tempfile::TempDir;

/// The longest a start may take: it usually takes 1 s, and longer on a machine under load.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The time between two checks whether containerd has started.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How much of the end of the log is shown when a start fails.
const LOG_TAIL_BYTES: usize = 4_000;

/// The configuration of a containerd.
#[derive(Clone, Debug, Default)]
pub struct ContainerdConfig {
    disk_bytes: Option<u64>,
    hosts: Vec<(String, String)>,
    environment: Vec<(String, String)>,
}

impl ContainerdConfig {
    /// Adds a disk of this many bytes for everything that containerd stores.
    #[must_use]
    pub fn with_disk(mut self, bytes: u64) -> Self {
        self.disk_bytes = Some(bytes);
        self
    }

    /// Adds a `hosts.toml` for a registry.
    #[must_use]
    pub fn with_hosts(mut self, registry: &str, hosts_toml: &str) -> Self {
        self.hosts.push((registry.to_owned(), hosts_toml.to_owned()));
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Checks whether containerd can be started here.
///
/// # Errors
/// Names what is missing.
pub fn available() -> Result<(), String> {
    if !std::fs::metadata("/proc/self").is_ok_and(|entry| std::os::unix::fs::MetadataExt::uid(&entry) == 0) {
        return Err("containerd needs root".to_owned());
    }
    let found = Command::new("containerd").arg("--version").stdout(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        Ok(())
    } else {
        Err("containerd is not installed: apt-get install containerd".to_owned())
    }
}

/// A running containerd; killed when dropped.
pub struct Containerd {
    child: Child,
    folder: TempDir,
}

impl Containerd {
    /// Starts a containerd and waits until it answers. Call [`available`] first.
    ///
    /// # Panics
    /// When it does not start; the text shows the end of its log.
    pub async fn start(config: ContainerdConfig) -> Self {
        let folder = TempDir::with_prefix("containerd-").expect("a folder for containerd can be made");
        let kept = folder.path().join("root");
        for name in ["root", "tmp"] {
            std::fs::create_dir(folder.path().join(name)).expect("the folder can be written");
        }
        if let Some(bytes) = config.disk_bytes {
            let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(&kept).status();
            assert!(mounted.is_ok_and(|status| status.success()), "a disk of {bytes} bytes can be mounted");
        }
        for (registry, hosts_toml) in &config.hosts {
            let place = folder.path().join("certs.d").join(registry);
            std::fs::create_dir_all(&place).expect("the folder can be written");
            std::fs::write(place.join("hosts.toml"), hosts_toml).expect("the folder can be written");
        }
        let settings = folder.path().join("config.toml");
        std::fs::write(&settings, settings_in(folder.path())).expect("the folder can be written");
        let log = File::create(folder.path().join("log")).expect("the folder can be written");
        let mut command = Command::new("containerd");
        command.arg("--config").arg(&settings).envs(config.environment).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        die_with_the_test(&mut command);
        let child = command.spawn().expect("containerd can be started");
        let mut containerd = Self { child, folder };
        containerd.wait_until_ready().await;
        containerd
    }

    /// The socket, as `unix:///path`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", socket_in(self.folder.path()).display())
    }

    /// The folder of this containerd: `root` has its data, `log` its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills containerd, like a crash. Its folder remains.
    pub fn kill(&mut self) {
        // This fails only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    async fn wait_until_ready(&mut self) {
        let nothing = KeyringOptions { authfile: None, environment: Environment::default(), kubelet_file: PathBuf::from("/nonexistent") };
        let runtime =
            CriRuntime::new(CriOptions::new(self.endpoint(), Keyring::new(nothing), Clock::host())).expect("the endpoint is a socket");
        let unknown = Reference::parse("localhost/none").expect("the reference is valid");
        let ready = async {
            while runtime.image_status(&unknown, None).await.is_err() {
                assert!(self.child.try_wait().is_ok_and(|ended| ended.is_none()), "containerd has ended:\n{}", self.log());
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let in_time = tokio::time::timeout(START_LIMIT, ready).await.is_ok();
        assert!(in_time, "containerd is not ready after {START_LIMIT:?}:\n{}", self.log());
    }

    /// The end of the log.
    #[must_use]
    pub fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log[log.ceil_char_boundary(log.len().saturating_sub(LOG_TAIL_BYTES))..].to_owned()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.kill();
        // Unmounts layers that were being unpacked, and the small disk: a mounted folder cannot be removed.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let below = |line: &&str| line.split(' ').nth(1).is_some_and(|place| Path::new(place).starts_with(self.folder.path()));
        for line in mounts.lines().rev().filter(below) {
            let _ = Command::new("umount").arg("--lazy").arg(line.split(' ').nth(1).unwrap_or_default()).status();
        }
    }
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("containerd.sock")
}

/// The minimal settings for pulls, with every path inside the folder.
fn settings_in(folder: &Path) -> String {
    let path = |name: &str| format!("{:?}", folder.join(name).display().to_string());
    let mut text = String::from("version = 2\n");
    writeln!(text, "root = {}\nstate = {}\ntemp = {}", path("root"), path("state"), path("tmp")).expect("a string can be written");
    writeln!(text, "[grpc]\naddress = {:?}", socket_in(folder).display().to_string()).expect("a string can be written");
    writeln!(text, "[ttrpc]\naddress = {}", path("containerd.sock.ttrpc")).expect("a string can be written");
    writeln!(text, "[plugins.\"io.containerd.internal.v1.opt\"]\npath = {}", path("opt")).expect("a string can be written");
    text.push_str("[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"native\"\n");
    writeln!(text, "[plugins.\"io.containerd.grpc.v1.cri\".registry]\nconfig_path = {}", path("certs.d")).expect("a string can be written");
    text
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
