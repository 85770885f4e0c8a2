//! `traces`: the cost of exporting traces, in processor time for each pull of a present image through the `cri` runtime.

use std::time::Duration;

use anyhow::Result;
use support::containerd;
use support::otlp::Collector;

use crate::agent::RunningAgent;
use crate::alternate::median;
use crate::figure::{Bar, Figure, Unit};
use crate::node::IMAGE;
use crate::present_cri::{AnsweringAtOnce, containerd_with_an_image};
use crate::process;
use crate::report::remark;

/// The orders in which agents are started and called. The order matters: two agents without traces differed by 7 %, so each agent comes
/// first, second and third equally often, and right after each of the others.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [1, 0, 2]];
/// How often all orders are run. Two agents of one executable differ by up to 4 % until they end, so many are started.
const REPEATS: usize = 2;
/// Rounds of each agent in each order; a first round is ignored.
const ROUNDS: usize = 1;
/// Pulls of a round. With 1,000 the fixed cost of one export in each round added 1 to 2 % to a pull.
const PULLS: usize = 5_000;
/// The time between exports: a tenth of the default, so that a round is shorter, with one or two exports. With the default a batch is full
/// before its delay is over at this rate.
const DELAY_MS: &str = "500";
/// The end of each round, in which its last spans are exported. An idle agent costs almost nothing meanwhile.
const SETTLE: Duration = Duration::from_millis(650);
/// The sampled share of traces, its name, and the bar.
const SAMPLED: [(&str, &str, f64); 2] = [("0.1", "10 % sampled", 1.05), ("1", "all sampled", 1.25)];

pub(crate) async fn measure() -> Result<Vec<Figure>> {
    match containerd::available() {
        Ok(()) => {
            let (containerd, image) = containerd_with_an_image().await?;
            compare_with_traces_off(&containerd.endpoint(), &image).await
        }
        Err(why) => {
            remark(&format!("there is no containerd ({why}): a service that answers at once stands for it"));
            let service = AnsweringAtOnce::start()?;
            compare_with_traces_off(&service.endpoint, IMAGE).await
        }
    }
}

async fn compare_with_traces_off(endpoint: &str, image: &str) -> Result<Vec<Figure>> {
    let (_collector, url) = Collector::http().await;
    let mut spent: [Vec<Duration>; 3] = Default::default();
    for order in ORDERS.repeat(REPEATS) {
        let mut agents = Vec::new();
        for which in order {
            agents.push((which, start(which, endpoint, &url).await?));
        }
        for round in 0..=ROUNDS {
            for (which, agent) in &agents {
                let took = cpu_time_of_a_round(agent, image).await?;
                if round > 0 {
                    spent[*which].push(took);
                }
            }
        }
    }
    let of_a_pull = |spent: &[Duration]| median(spent).as_secs_f64() * 1e6 / PULLS as f64;
    let off = of_a_pull(&spent[0]);
    let figure = |(spent, (_, what, most)): (&Vec<Duration>, (&str, &str, f64))| {
        let figure = Figure::new(format!("CPU of a present pull, {what}"), Unit::Microseconds, of_a_pull(spent));
        figure.compared_with("traces off", off).with_bar(Bar::Ratio(most))
    };
    Ok(spent[1..].iter().zip(SAMPLED).map(figure).collect())
}

/// Starts an agent: number 0 without traces, the others as in [`SAMPLED`].
async fn start(which: usize, endpoint: &str, url: &str) -> Result<RunningAgent> {
    let cri = ["--runtime", "cri", "--runtime-endpoint", endpoint];
    let ratio = which.checked_sub(1).map(|sampled| SAMPLED[sampled].0);
    let environment = ratio.map(|ratio| {
        [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
            ("OTEL_BSP_SCHEDULE_DELAY", DELAY_MS),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", ratio),
        ]
    });
    RunningAgent::start(&cri, environment.as_ref().map(<[_; 4]>::as_slice).unwrap_or_default()).await
}

async fn cpu_time_of_a_round(agent: &RunningAgent, image: &str) -> Result<Duration> {
    let before = process::cpu_time(agent.id())?;
    for _ in 0..PULLS {
        agent.pull_present(image).await?;
    }
    tokio::time::sleep(SETTLE).await;
    Ok(process::cpu_time(agent.id())?.saturating_sub(before))
}
