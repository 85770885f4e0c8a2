//! `collector`: an agent whose collector is absent or hangs, at 1,000 pulls of a present image per second: the duration of a pull and the
//! agent's memory, compared with an agent whose collector accepts everything.

use std::convert::Infallible;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::Result;
use clock::Clock;
use futures::future::try_join_all;
use support::otlp::Collector;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::agent::RunningAgent;
use crate::alternate::{median, microseconds, timed};
use crate::figure::{Bar, Figure, Unit};
use crate::node::IMAGE;
use crate::present_cri::AnsweringAtOnce;
use crate::process;

/// The time between two pulls.
const EVERY: Duration = Duration::from_millis(1);
/// Three agents: the first has a collector, that of the second is absent, and that of the third hangs.
const AGENTS: usize = 3;
/// The orders in which the agents are called.
const ORDERS: [[usize; AGENTS]; 6] = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [1, 0, 2]];
/// How often memory is read.
const LOOKS: u32 = 10;
/// The bars: a pull is no slower, apart from the difference between two runs; memory does not grow in the second half, apart from the
/// allocator's noise.
const SLOWER_MOST: f64 = 1.1;
const GROWTH_MOST_MEBIBYTES: f64 = 2.0;
/// The queue holds 2,048 spans of about 1 KiB, and a batch is on its way.
const MORE_MOST_MEBIBYTES: f64 = 8.0;

/// The measured values of one agent.
struct Seen {
    median_us: f64,
    p99_us: f64,
    resident: Vec<u64>,
}

impl Seen {
    fn end(&self) -> f64 {
        process::mebibytes(self.resident.last().copied().unwrap_or_default())
    }

    /// The growth of memory since the middle of the run.
    fn growth(&self) -> f64 {
        self.end() - process::mebibytes(self.resident.get(self.resident.len() / 2).copied().unwrap_or_default())
    }
}

/// Runs three agents at once and calls all of them at each tick, so that other load of the machine affects all. On two cores the agent that
/// is called first is about 5 % quicker than the next, so each is called first, second and third equally often.
pub(crate) async fn measure(lasts: Duration) -> Result<Vec<Figure>> {
    let service = AnsweringAtOnce::start()?;
    let (collector, there) = Collector::http().await;
    let (silent, closed) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    let url = |listener: &TcpListener| -> Result<String> { Ok(format!("http://{}", listener.local_addr()?)) };
    let (hangs, absent) = (url(&silent)?, url(&closed)?);
    drop(closed);
    let start = |url| Watched::start(&service.endpoint, url);
    let mut watched: [Watched; AGENTS] = [start(&there).await?, start(&absent).await?, start(&hangs).await?];
    let a_second = tokio::select! {
        done = watch(&mut watched, lasts) => done?,
        never = forget_each_second(&collector) => match never {},
    };
    let mut seen = watched.into_iter().map(Watched::seen);
    let Some(reference) = seen.next() else { return Ok(Vec::new()) };
    let mut figures = vec![Figure::new(format!("pulls of each agent, {} s", lasts.as_secs()), Unit::PerSecond, a_second)];
    for (what, seen) in ["absent", "hanging"].into_iter().zip(seen) {
        let named = |of: &str| format!("collector {what}, {} s: {of}", lasts.as_secs());
        figures.extend([
            Figure::new(named("median of a pull"), Unit::Microseconds, seen.median_us)
                .compared_with("collector there", reference.median_us)
                .with_bar(Bar::Ratio(SLOWER_MOST)),
            Figure::new(named("p99 of a pull"), Unit::Microseconds, seen.p99_us).compared_with("collector there", reference.p99_us),
            Figure::new(named("resident"), Unit::Mebibytes, seen.end())
                .compared_with("collector there", reference.end())
                .with_bar(Bar::Value(reference.end() + MORE_MOST_MEBIBYTES)),
            Figure::new(named("growth in the second half"), Unit::Mebibytes, seen.growth()).with_bar(Bar::Value(GROWTH_MOST_MEBIBYTES)),
        ]);
    }
    Ok(figures)
}

/// Calls all agents at each tick; returns the calls per second.
async fn watch(watched: &mut [Watched; AGENTS], lasts: Duration) -> Result<f64> {
    let clock = Clock::host();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (began, mut looks) = (clock.monotonic(), 0);
    for order in ORDERS.iter().cycle() {
        ticks.tick().await;
        let since = clock.monotonic().saturating_sub(began);
        if since >= lasts * (looks + 1) / LOOKS {
            looks += 1;
            for one in watched.iter_mut() {
                one.resident.push(process::resident_bytes(one.agent.id())?);
            }
        }
        if looks == LOOKS {
            return Ok(watched[0].latencies.len() as f64 / since.as_secs_f64());
        }
        let pull = async |which: usize| timed(&clock, &mut async || watched[which].agent.pull_present(IMAGE).await).await;
        let latencies = try_join_all(order.map(pull)).await?;
        for (which, latency) in order.iter().zip(latencies) {
            watched[*which].latencies.push(latency);
        }
    }
    Ok(0.0)
}

/// Deletes the spans that the collector has received.
async fn forget_each_second(collector: &Collector) -> Infallible {
    loop {
        sleep(Duration::from_secs(1)).await;
        collector.clear();
    }
}

/// An agent, and its measured values so far.
struct Watched {
    agent: RunningAgent,
    latencies: Vec<Duration>,
    /// In bytes.
    resident: Vec<u64>,
}

impl Watched {
    async fn start(endpoint: &str, collector: &str) -> Result<Self> {
        let cri = ["--runtime", "cri", "--runtime-endpoint", endpoint];
        let agent = RunningAgent::start(&cri, &[("OTEL_EXPORTER_OTLP_ENDPOINT", collector)]).await?;
        Ok(Self { agent, latencies: Vec::new(), resident: Vec::new() })
    }

    fn seen(mut self) -> Seen {
        self.latencies.sort_unstable();
        let p99_us = microseconds(self.latencies[self.latencies.len() * 99 / 100]);
        Seen { median_us: microseconds(median(&self.latencies)), p99_us, resident: self.resident }
    }
}
