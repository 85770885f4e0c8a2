//! `idle`: the cost of an agent that has nothing to do, on a real nats-server, and the size of the program.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use support::nats::{NatsConfig, NatsServer, current_program};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::figure::{Bar, Figure, Unit};
use crate::{agent, process, program};

/// How long the agent is measured.
const WATCHED: Duration = Duration::from_secs(30);
/// The pause after the start, until the work of the start is over.
const SETTLING: Duration = Duration::from_secs(5);
/// The bars: percent of a core, MiB, MB.
const MOST_PERCENT: f64 = 0.2;
const MOST_MEBIBYTES: f64 = 25.0;
const MOST_MEGABYTES: f64 = 30.0;

pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let binary = program::fleetpull()?;
    let bytes = std::fs::metadata(&binary)?.len();
    let server = NatsServer::start(NatsConfig::default().with_program(current_program().map_err(|why| anyhow!(why))?));
    let folder = TempDir::with_prefix("bench-")?;
    let mut agent = agent::started(&binary, folder.path(), "idle", &["--nats", &server.url()], &[]).await?;
    let id = agent.id().context("the agent has ended")?;
    sleep(SETTLING).await;
    let before = process::cpu_time(id)?;
    sleep(WATCHED).await;
    let spent = process::cpu_time(id)?.saturating_sub(before);
    let resident = process::resident_bytes(id)?;
    agent.kill().await?;
    Ok(vec![
        Figure::new(format!("agent over {} s", WATCHED.as_secs()), Unit::PercentOfCore, spent.div_duration_f64(WATCHED) * 100.0)
            .with_bar(Bar::Value(MOST_PERCENT)),
        Figure::new("agent, resident", Unit::Mebibytes, process::mebibytes(resident)).with_bar(Bar::Value(MOST_MEBIBYTES)),
        Figure::new("program, stripped", Unit::Megabytes, bytes as f64 / 1e6).with_bar(Bar::Value(MOST_MEGABYTES)),
    ])
}
