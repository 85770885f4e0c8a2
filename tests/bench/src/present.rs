//! `present`: a present image pulled through the four actors of a node, on the memory bus with a runtime in memory.

use std::sync::Arc;

use actors::Delivery;
use anyhow::Result;
use bus::memory::MemoryBus;
use clock::Clock;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::alternate::{median, microseconds, timed};
use crate::figure::{Bar, Figure, Unit};
use crate::node::{AskedNode, IMAGE, runtime_in_memory};

const PULLS: usize = 200_000;
const WARM_UP_PULLS: usize = 20_000;
/// How many callers run at a time to measure the pulls per second.
const CALLERS: usize = 64;
/// The median of kubelet's own `EnsureImageExists` of a present image (no bus, no actors, a runtime in memory), measured once with
/// kubelet's code on a machine with two cores. It is not measured here, because it needs Go and kubelet's source.
const KUBELET_US: f64 = 3.2;
/// The bar, in microseconds.
const MOST_US: f64 = 10.0;

pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let clock = Clock::host();
    let bus = Arc::new(MemoryBus::new(clock.clone()));
    let node = AskedNode::start(runtime_in_memory(), bus, clock.clone(), Delivery::Local).await?;
    let mut pull = async || node.pull_present(IMAGE).await;
    for _ in 0..WARM_UP_PULLS {
        pull().await?;
    }
    let mut latencies = Vec::with_capacity(PULLS);
    let start = clock.now().monotonic;
    for _ in 0..PULLS {
        latencies.push(timed(&clock, &mut pull).await?);
    }
    let one_by_one = clock.now().monotonic.saturating_sub(start);
    let start = clock.now().monotonic;
    stream::iter(0..PULLS).map(|_| node.pull_present(IMAGE)).buffer_unordered(CALLERS).try_collect::<Vec<()>>().await?;
    let together = clock.now().monotonic.saturating_sub(start);
    Ok(vec![
        Figure::new("median of a pull", Unit::Microseconds, microseconds(median(&latencies)))
            .compared_with("kubelet (stated)", KUBELET_US)
            .with_bar(Bar::Value(MOST_US)),
        Figure::new("pulls, one caller", Unit::PerSecond, PULLS as f64 / one_by_one.as_secs_f64()),
        Figure::new(format!("pulls, {CALLERS} callers"), Unit::PerSecond, PULLS as f64 / together.as_secs_f64()),
    ])
}
