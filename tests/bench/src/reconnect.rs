//! `reconnect`: a registry is down and the bus is lost, so that each node of a fleet fails by itself; then all nodes reconnect to one real
//! nats-server. Measures the reports that they publish then, the number of messages, and when all nodes have the same entries.
//!
//! The trackers and their connections are real; the pulls of each node are a loop that requests clearance as the pull coordinator does, and
//! the registry refuses. No node reports that it is alive: each gets its place beforehand.
//!
//! The nodes begin to want the image when the bus is lost, so that no report of the outage was published before. By kubelet's rule each
//! node makes an attempt every 40 s after 1 min, and every 300 s after 10 min: after 1 min more nodes have a report that is still valid.

mod load;
mod node;
mod reports;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix::Arbiter;
use anyhow::{Result, anyhow, ensure};
use clock::Clock;
use rustix::process::{Resource, getrlimit};
use support::nats::{NatsConfig, NatsServer, current_program};
use tokio::sync::{Semaphore, watch};

use self::load::Load;
use self::node::node;
use self::reports::PublishedReports;
use crate::figure::{Bar, Figure, Unit};
use crate::report::remark;

/// Threads that serve the nodes.
const THREADS: usize = 2;
/// The most nodes that connect at the same time at the start.
const CONNECT_AT_ONCE: usize = 64;
/// Open files of this process and of the server, besides a connection for each node.
const OTHER_FILES: u64 = 200;
/// A limit that nothing here reaches.
const LIMIT: Duration = Duration::from_secs(180);
/// The pause between two reads of the progress.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The bars.
const PER_SECOND_MOST: f64 = 50_000.0;
const REPORTERS_MOST: f64 = 3.0;
const CONVERGED_WITHIN_S: f64 = 60.0;

/// The progress of all nodes.
#[derive(Debug, Default)]
struct Progress {
    connected: AtomicUsize,
    /// Nodes that have the shared entry of the registry's outage.
    know: AtomicUsize,
    /// Attempts that failed.
    failed: AtomicUsize,
}

/// The task of the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Connect,
    /// Want the image, from a random time within this many milliseconds on.
    Want {
        within_ms: u64,
    },
    /// Also report when the shared entry of the outage is known.
    Look,
}

#[allow(clippy::disallowed_methods, reason = "a panic ends what it serves, and the count of what is done never comes to its end")]
pub(crate) async fn measure(nodes: u32, lost_for: Duration) -> Result<Vec<Figure>> {
    let count = nodes as usize;
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    ensure!(files >= u64::from(nodes) + OTHER_FILES, "{nodes} nodes take more than the {files} files that may be open: see `ulimit -n`");
    let program = current_program().map_err(|why| anyhow!(why))?;
    let mut server = NatsServer::start(NatsConfig::default().with_program(program).with("http: \"127.0.0.1:-1\""));
    let (clock, progress) = (Clock::host(), Arc::new(Progress::default()));
    let (stages, stage) = watch::channel(Stage::Connect);
    let connecting = Arc::new(Semaphore::new(CONNECT_AT_ONCE));
    remark(&format!("connecting {nodes} nodes"));
    let arbiters: Vec<Arbiter> = (0..THREADS).map(|_| Arbiter::new()).collect();
    for number in 0..count {
        let parts = node::Parts {
            number,
            nodes: count,
            url: server.url(),
            clock: clock.clone(),
            connecting: Arc::clone(&connecting),
            progress: Arc::clone(&progress),
            stage: stage.clone(),
        };
        arbiters[number % THREADS].spawn(node(parts));
    }
    until(&clock, "connected", count, &progress.connected).await?;
    let published = PublishedReports::on(&server.url(), clock.clone()).await?;
    remark(&format!("the bus is lost for {} s, and the registry is down", lost_for.as_secs()));
    server.stop();
    stages.send_replace(Stage::Want { within_ms: u64::try_from(lost_for.as_millis() / 2).unwrap_or(u64::MAX) });
    tokio::time::sleep(lost_for).await;
    let failed_alone = progress.failed.load(Ordering::Relaxed);
    stages.send_replace(Stage::Look);
    server.restart();
    let back = clock.now().monotonic;
    let monitoring = server.monitoring().ok_or_else(|| anyhow!("the server has no monitoring endpoint"))?;
    let load = Load::watch(monitoring, clock.clone());
    let converged = until(&clock, "know that the registry is down", count, &progress.know).await?.saturating_sub(back);
    let (seen, published) = (load.end(), published.take());
    remark(&format!("all know it: {published:?}, {seen:?}"));
    let failed = progress.failed.load(Ordering::Relaxed) - failed_alone;
    arbiters.iter().for_each(|arbiter| {
        arbiter.stop();
    });
    Ok(vec![
        Figure::new(
            format!("{nodes} nodes come back after {} s, messages in and out", lost_for.as_secs()),
            Unit::PerSecond,
            seen.most_per_second,
        )
        .with_bar(Bar::Value(PER_SECOND_MOST)),
        Figure::new("messages in all", Unit::Count, seen.messages as f64),
        Figure::new("slow consumers", Unit::Count, seen.slow_consumers as f64).with_bar(Bar::Value(0.0)),
        Figure::new("nodes that report one failure met without the bus", Unit::Count, published.of_before as f64)
            .with_bar(Bar::Value(REPORTERS_MOST)),
        Figure::new("nodes that report one failure met since", Unit::Count, published.since as f64),
        Figure::new("reports until all know the same", Unit::Count, published.reports as f64),
        Figure::new("all know the same after", Unit::Seconds, converged.as_secs_f64()).with_bar(Bar::Value(CONVERGED_WITHIN_S)),
        Figure::new("failing attempts, alone", Unit::Count, failed_alone as f64),
        Figure::new("failing attempts, when the bus is back", Unit::Count, failed as f64),
    ])
}

/// Waits until `reached` has reached the number of nodes; returns when.
async fn until(clock: &Clock, what: &str, nodes: usize, reached: &AtomicUsize) -> Result<Duration> {
    let began = clock.now().monotonic;
    loop {
        let (now, count) = (clock.now().monotonic, reached.load(Ordering::Relaxed));
        if count >= nodes {
            return Ok(now);
        }
        ensure!(now < began + LIMIT, "{count} of {nodes} nodes are {what} after {LIMIT:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
