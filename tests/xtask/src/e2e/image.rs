//! Checks that Docker Engine builds the container image, and that the image behaves as its labels and the documentation state.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::command;

/// The user and group of the image.
const USER: &str = "65532:65532";
const TEMPORARY: &str = "/tmp";
/// The mode of /tmp: every user may write there, and delete their own files.
const TEMPORARY_MODE: u32 = 0o1777;
const IMAGE: &str = "fleetpull:e2e";
const CONTAINERFILE: &str = "deploy/Containerfile";
const COMPOSE: &str = "deploy/compose.yaml";
/// Debian's bundle of certificates, which is in the same place in distroless images.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The pause between two checks whether Docker Engine answers, and the number of checks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS: u32 = 300;
/// How far the size in the documentation may be from the real one, in MiB.
const SIZE_OFF_MIB: u64 = 2;

/// Builds the image, runs it, and prints its size.
pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    command::run(command::cargo(root).args(["build", "--release", "--locked", "-p", "fleetpull"]))?;
    let place = Place::new(root)?;
    let context = stage(root, &place.0)?;
    let engine = Engine::start(&place.0)?;
    let version = env!("CARGO_PKG_VERSION");
    let build = ["build", "--target", "prebuilt", "--build-arg", &format!("VERSION={version}"), "-t", IMAGE, "-f"];
    command::run(engine.docker(&build).arg(root.join(CONTAINERFILE)).arg(&context))?;
    let size = inspect(&engine, version)?;
    check_behaviour(&engine, version)?;
    documented(root, size)?;
    println!("image: {size} MiB, runs as {USER}, its labels are right; --version, the demo and an agent with a pull work in it");
    compose(root)
}

/// A temporary folder.
struct Place(PathBuf);

impl Place {
    fn new(root: &Path) -> anyhow::Result<Self> {
        let place = root.join(format!("target/image-{}", std::process::id()));
        std::fs::create_dir_all(&place)?;
        Ok(Self(place))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes the input of the image's build: `rootfs/system` belongs to root, `rootfs/owned` to the image's user.
fn stage(root: &Path, place: &Path) -> anyhow::Result<PathBuf> {
    let context = place.join("context");
    let (system, owned) = (context.join("rootfs/system"), context.join("rootfs/owned"));
    for folder in [
        system.join("usr/local/bin"),
        system.join("etc/ssl/certs"),
        system.join("usr/share/doc/fleetpull"),
        owned.join("var/lib/fleetpull"),
        system.join("tmp"),
    ] {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::set_permissions(system.join("tmp"), std::fs::Permissions::from_mode(TEMPORARY_MODE))?;
    let binary = root.join("target/release/fleetpull");
    std::fs::copy(&binary, system.join("usr/local/bin/fleetpull"))?;
    std::fs::copy(root.join("LICENSE"), system.join("usr/share/doc/fleetpull/LICENSE"))?;
    std::fs::copy(AUTHORITIES, system.join("etc/ssl/certs/ca-certificates.crt")).context("apt-get install ca-certificates")?;
    std::fs::write(
        system.join("etc/passwd"),
        "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/var/lib/fleetpull:/sbin/nologin\n",
    )?;
    std::fs::write(system.join("etc/group"), "root:x:0:\nnonroot:x:65532:\n")?;
    for library in libraries(&command::output(Command::new("ldd").arg(&binary))?) {
        // Libraries are below /usr, as in Debian since version 12; /lib and /lib64 are links to there.
        let target = system.join(Path::new("usr").join(library.trim_start_matches("/usr").trim_start_matches('/')));
        std::fs::create_dir_all(target.parent().context("a library lies in a folder")?)?;
        std::fs::copy(&library, &target).with_context(|| format!("{library} cannot be copied"))?;
    }
    for folder in ["lib", "lib64"] {
        if system.join("usr").join(folder).is_dir() {
            symlink(format!("usr/{folder}"), system.join(folder))?;
        }
    }
    Ok(context)
}

/// The files in the output of `ldd`.
fn libraries(ldd: &str) -> Vec<String> {
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    ldd.lines().filter_map(path).collect()
}

/// A Docker Engine with its own folder and without a network; stopped when dropped.
struct Engine {
    process: Child,
    socket: PathBuf,
}

impl Engine {
    fn start(place: &Path) -> anyhow::Result<Self> {
        // The path of a socket must be short.
        let run = std::env::temp_dir().join(format!("fleetpull-image-{}", std::process::id()));
        std::fs::create_dir_all(&run)?;
        let socket = run.join("docker.sock");
        let log = std::fs::File::create(place.join("dockerd.log"))?;
        let process = Command::new("dockerd")
            .args(["--bridge=none", "--iptables=false", "--storage-driver=vfs", "--exec-root"])
            .arg(run.join("exec"))
            .arg("--data-root")
            .arg(place.join("data"))
            .arg("--pidfile")
            .arg(run.join("pid"))
            .arg("-H")
            .arg(format!("unix://{}", socket.display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("dockerd does not start")?;
        let mut engine = Self { process, socket };
        for _ in 0..LOOKS {
            if engine.docker(&["info"]).stdout(Stdio::null()).stderr(Stdio::null()).status()?.success() {
                return Ok(engine);
            }
            if engine.process.try_wait()?.is_some() {
                break;
            }
            pause();
        }
        bail!("Docker Engine does not answer: {}", std::fs::read_to_string(place.join("dockerd.log")).unwrap_or_default())
    }

    fn docker(&self, arguments: &[&str]) -> Command {
        let mut docker = Command::new(docker());
        docker.env("DOCKER_BUILDKIT", "1").env("DOCKER_HOST", format!("unix://{}", self.socket.display())).args(arguments);
        docker
    }

    fn output(&self, arguments: &[&str]) -> anyhow::Result<String> {
        command::output(&mut self.docker(arguments))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Stop it in good order, so that nothing stays mounted.
        if let Some(id) = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let _ = self.process.wait();
        if let Some(run) = self.socket.parent() {
            let _ = std::fs::remove_dir_all(run);
        }
    }
}

/// The client of Debian's engine, if it is installed: another client earlier in PATH may lack the plugin that builds images.
fn docker() -> &'static str {
    if Path::new("/usr/bin/docker").is_file() { "/usr/bin/docker" } else { "docker" }
}

fn pause() {
    #[allow(clippy::disallowed_methods, reason = "there is no actor here, and no event to wait for")]
    std::thread::sleep(LOOK_EVERY);
}

/// Checks the image's user and labels; returns its size in MiB.
fn inspect(engine: &Engine, version: &str) -> anyhow::Result<u64> {
    let inspected: Value = serde_json::from_str(&engine.output(&["image", "inspect", IMAGE])?)?;
    let config = &inspected[0]["Config"];
    anyhow::ensure!(config["User"] == USER, "the image runs as {}", config["User"]);
    let label = |name: &str| config["Labels"][format!("org.opencontainers.image.{name}")].as_str().unwrap_or_default().to_owned();
    for (name, value) in [("title", "fleetpull"), ("licenses", "Apache-2.0"), ("version", version)] {
        anyhow::ensure!(label(name) == value, "the label {name} is {:?}", label(name));
    }
    anyhow::ensure!(!label("description").is_empty(), "it has no description");
    let bytes = inspected[0]["Size"].as_u64().context("an image has a size")?;
    Ok(bytes.div_ceil(1024 * 1024))
}

/// Checks a person's first commands, as the image's user and with only the volume and /tmp writable.
fn check_behaviour(engine: &Engine, version: &str) -> anyhow::Result<()> {
    let run = ["run", "--rm", "--network", "none", "--read-only", "--tmpfs", TEMPORARY, IMAGE];
    let version_text = engine.output(&[&run[..], &["--version"]].concat())?;
    anyhow::ensure!(version_text.trim() == format!("fleetpull {version}"), "--version prints {version_text:?}");
    let demo = engine.output(&[&run[..], &["demo", "-o", "json"]].concat())?;
    anyhow::ensure!(demo.contains("\"Pulled\""), "the demo has pulled nothing: {demo}");

    let agent =
        engine.output(&["run", "--detach", "--network", "none", "--read-only", "--tmpfs", TEMPORARY, IMAGE, "run", "--node", "n1"])?;
    let agent = agent.trim();
    let mut nodes = String::new();
    for _ in 0..LOOKS {
        let asked = engine.docker(&["exec", agent, "fleetpull", "nodes", "-o", "json"]).stderr(Stdio::null()).output()?;
        nodes = String::from_utf8_lossy(&asked.stdout).into_owned();
        if nodes.contains("\"ok\"") {
            break;
        }
        pause();
    }
    anyhow::ensure!(nodes.contains("\"ok\""), "the agent in the container is not well: {nodes}\n{}", engine.output(&["logs", agent])?);
    let uid = engine.output(&["top", agent, "-o", "pid,uid"])?;
    anyhow::ensure!(uid.lines().nth(1).is_some_and(|line| line.split_whitespace().nth(1) == Some("65532")), "it runs as {uid}");
    let refused = engine.docker(&["exec", agent, "fleetpull", "pull", "localhost:1/none:v1", "--node", "n1"]).output()?;
    let error = String::from_utf8_lossy(&refused.stderr);
    anyhow::ensure!(refused.status.code() == Some(1), "a pull without a registry ends otherwise: {error}");
    engine.output(&["stop", "--time", "20", agent])?;
    let status = engine.output(&["inspect", "--format", "{{.State.ExitCode}}", agent])?;
    anyhow::ensure!(status.trim() == "0", "SIGTERM ended it with {status}");
    Ok(())
}

/// Checks that the documentation has the image's size.
fn documented(root: &Path, size: u64) -> anyhow::Result<()> {
    let readme = std::fs::read_to_string(root.join("deploy/README.md"))?;
    let stated = readme.split("The image has ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    let stated = stated.context("deploy/README.md states no size: write `The image has N MiB`")?;
    anyhow::ensure!(stated.abs_diff(size) <= SIZE_OFF_MIB, "deploy/README.md states {stated} MiB, and the image has {size} MiB");
    Ok(())
}

/// Checks that Compose can read its file.
fn compose(root: &Path) -> anyhow::Result<()> {
    let version = command::output(Command::new("docker-compose").args(["version", "--short"]));
    let version = version.context("docker-compose cannot be run: apt-get install docker-compose")?;
    let (file, mut text) = (root.join(COMPOSE), std::fs::read_to_string(root.join(COMPOSE))?);
    if version.starts_with("1.") {
        // The first major version accepts everything except the name of the project, which it takes from an option.
        text = text.lines().filter(|line| !line.starts_with("name: ")).collect::<Vec<_>>().join("\n");
    }
    let mut check = Command::new("docker-compose");
    check.arg("--project-name").arg("fleetpull").arg("--project-directory").arg(file.parent().unwrap_or(root));
    let mut check = check.args(["-f", "-", "config", "--quiet"]).stdin(Stdio::piped()).spawn()?;
    std::io::Write::write_all(&mut check.stdin.take().context("docker-compose reads")?, text.as_bytes())?;
    let status = check.wait()?;
    anyhow::ensure!(status.success(), "docker-compose does not take {COMPOSE}: {status}");
    println!("compose: docker-compose {} takes {COMPOSE}", version.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::libraries;

    #[test]
    fn every_library_of_a_binary_is_found() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(libraries(text), ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert_eq!(libraries("\tstatically linked\n"), Vec::<String>::new());
    }
}
