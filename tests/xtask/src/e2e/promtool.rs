//! `e2e promtool`: runs Prometheus' own checker on `deploy/prometheus`, and on the metrics of a running agent.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::command;

/// The tool module: go.mod and go.sum fix the version and all dependencies.
const MODULE: &str = "tests/xtask/promtool";
const PACKAGE: &str = "github.com/prometheus/prometheus/cmd/promtool";
/// The folder that is checked.
const RULES: &str = "deploy/prometheus";
/// The least number of series of a working agent; fewer mean that something else was scraped.
const SERIES_LEAST: usize = 100;
/// A limit that no answer of an agent reaches.
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let promtool = ensure(root)?;
    let folder = root.join(RULES);
    command::run(Command::new(&promtool).current_dir(&folder).args(["check", "config", "prometheus.yaml"]))?;
    command::run(Command::new(&promtool).current_dir(&folder).args(["check", "rules", "rules.yaml"]))?;
    command::run(Command::new(&promtool).current_dir(&folder).args(["test", "rules", "rules-test.yaml"]))?;
    command::run(command::cargo(root).args(["build", "--locked", "-p", "fleetpull"]))?;
    let (text, series) = scrape(root)?;
    check_metrics(&promtool, &text)?;
    println!("promtool: the configuration, the rules and their tests, and {series} series of a running agent are as they should be");
    Ok(())
}

/// The path of promtool; it is built first if it is missing, which takes minutes and needs the Go proxy.
fn ensure(root: &Path) -> anyhow::Result<PathBuf> {
    let (tools, module) = (root.join(".tools"), root.join(MODULE));
    let promtool = tools.join("promtool");
    if !promtool.is_file() {
        std::fs::create_dir_all(&tools)?;
        let mut build = Command::new("go");
        build.current_dir(&module).args(["build", "-mod=readonly", "-trimpath", "-o"]).arg(&promtool).arg(PACKAGE);
        command::run(&mut build).context("promtool cannot be built: it takes Go 1.26 and the Go proxy, once")?;
    }
    Ok(promtool)
}

/// An agent without a bus, killed when dropped.
struct Agent {
    process: Child,
    _place: Place,
}

/// A temporary folder.
struct Place(PathBuf);

impl Drop for Agent {
    fn drop(&mut self) {
        // This fails only if the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Agent {
    /// Starts the agent with metrics on a free port; returns their address.
    fn start(root: &Path) -> anyhow::Result<(Self, SocketAddr)> {
        let place = Place(root.join(format!("target/promtool-{}", std::process::id())));
        std::fs::create_dir_all(&place.0)?;
        let mut command = Command::new(root.join("target/debug/fleetpull"));
        command
            .args(["run", "--node", "n1", "--store"])
            .arg(&place.0)
            .env("FLEETPULL_METRICS_ADDRESS", "127.0.0.1:0")
            .env("HOME", &place.0);
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("the agent does not start")?;
        let log = process.stderr.take().context("the agent has a log")?;
        let agent = Self { process, _place: place };
        let mut log_text = String::new();
        for line in BufReader::new(log).lines() {
            let line = line?;
            if let Some(address) = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()) {
                return Ok((agent, address.parse().context("the agent logs its address")?));
            }
            log_text.push_str(&line);
        }
        bail!("the agent does not log where its metrics are: {log_text}")
    }
}

/// The metrics of a running agent in Prometheus' text format, and the number of series.
fn scrape(root: &Path) -> anyhow::Result<(String, usize)> {
    let (_agent, address) = Agent::start(root)?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, text) = answer.split_once("\r\n\r\n").context("the agent answers HTTP")?;
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    anyhow::ensure!(series >= SERIES_LEAST, "only {series} series: {text}");
    Ok((text.to_owned(), series))
}

fn check_metrics(promtool: &Path, text: &str) -> anyhow::Result<()> {
    let mut check = Command::new(promtool);
    let mut check = check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    check.stdin.take().context("promtool reads")?.write_all(text.as_bytes())?;
    let done = check.wait_with_output()?;
    let output = [done.stdout, done.stderr].concat();
    anyhow::ensure!(done.status.success(), "promtool check metrics: {}", String::from_utf8_lossy(&output));
    Ok(())
}
