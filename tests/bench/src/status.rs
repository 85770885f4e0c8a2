//! `status`: what the screen of a large fleet costs, on a real nats-server: the command itself, and one more agent among the nodes that it
//! asks.
//!
//! One agent is real. Of the others this process answers what `status` asks, on a few connections, so that the command and the real agent
//! receive what a fleet of that size would send. Some of the nodes wait for an image of a registry that is down.

mod node;

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clock::Clock;
use serde_json::Value;
use support::nats::{NatsConfig, NatsServer, current_program};
use tempfile::TempDir;
use tokio::time::sleep;

use self::node::Answering;
use crate::alternate::median;
use crate::figure::{Bar, Figure, Unit};
use crate::report::remark;
use crate::{agent, process, program};

/// Nodes that wait for the registry that is down; fewer in a fleet of fewer nodes.
const WAITING: usize = 290;
/// How often the command runs.
const RUNS: usize = 5;
/// How long the agent is measured without a watched screen, and then with one.
const WATCHED: Duration = Duration::from_secs(20);
/// The pause after the start, until the work of the start is over.
const SETTLING: Duration = Duration::from_secs(5);
/// The bars: seconds, MiB, percent of a core.
const SECONDS_MOST: f64 = 2.0;
const MEBIBYTES_MOST: f64 = 100.0;
const MORE_PERCENT_MOST: f64 = 1.0;

pub(crate) async fn measure(nodes: u32) -> Result<Vec<Figure>> {
    let (binary, clock, folder) = (program::fleetpull()?, Clock::host(), TempDir::with_prefix("bench-")?);
    let server = NatsServer::start(NatsConfig::default().with_program(current_program().map_err(|why| anyhow!(why))?));
    let url = server.url();
    let mut agent = agent::started(&binary, folder.path(), "real", &["--nats", &url], &[]).await?;
    let id = agent.id().context("the agent has ended")?;
    remark(&format!("connecting {nodes} nodes"));
    let _answering = Answering::start(&url, nodes as usize, WAITING.min(nodes as usize)).await?;
    sleep(SETTLING).await;
    let status = |more: &[&str]| {
        let mut command = program::isolated(&binary, folder.path());
        command.args(["status", "--nats", &url]).args(more);
        command
    };
    let shown = status(&["-o", "json"]).output().await?;
    let shown: Value = serde_json::from_slice(&shown.stdout)
        .with_context(|| format!("the command shows no status: {}", String::from_utf8_lossy(&shown.stderr)))?;
    let total = &shown["nodes"]["total"];
    ensure!(*total == u64::from(nodes) + 1, "the screen has {total} nodes, not {nodes} and the agent's");
    let (mut walls, mut peak_bytes) = (Vec::new(), 0);
    for _ in 0..RUNS {
        let cost = process::run(&mut status(&[]), &clock).await?;
        walls.push(cost.wall);
        peak_bytes = peak_bytes.max(cost.peak_bytes);
    }
    let alone = percent_of_core(id, WATCHED).await?;
    let mut watching = status(&["--watch"]).stdout(std::process::Stdio::null()).spawn()?;
    let watched = percent_of_core(id, WATCHED).await?;
    ensure!(watching.try_wait()?.is_none(), "the watched screen has ended");
    watching.kill().await?;
    agent.kill().await?;
    Ok(vec![
        Figure::new(format!("status of {nodes} nodes"), Unit::Seconds, median(&walls).as_secs_f64()).with_bar(Bar::Value(SECONDS_MOST)),
        Figure::new("peak memory of the command", Unit::Mebibytes, process::mebibytes(peak_bytes)).with_bar(Bar::Value(MEBIBYTES_MOST)),
        Figure::new("an agent while nobody watches", Unit::PercentOfCore, alone),
        Figure::new("more on the agent while the screen is watched", Unit::PercentOfCore, watched - alone)
            .with_bar(Bar::Value(MORE_PERCENT_MOST)),
    ])
}

async fn percent_of_core(process: u32, within: Duration) -> Result<f64> {
    let before = process::cpu_time(process)?;
    sleep(within).await;
    Ok(process::cpu_time(process)?.saturating_sub(before).div_duration_f64(within) * 100.0)
}
