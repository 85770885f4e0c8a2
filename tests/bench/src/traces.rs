//! `traces`: what the export of traces costs an agent, in time of a core for each pull of a present image through the `cri` runtime.

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

/// Of each agent, in turn; the first is thrown away.
const ROUNDS: usize = 20;
const PULLS: usize = 1_000;
/// Between exports: a fiftieth of what is usual. Where there are few spans, an export costs more than what it carries.
const DELAY_MS: &str = "100";
/// Each round lasts until its last spans are exported. An idle agent costs next to nothing meanwhile.
const SETTLE: Duration = Duration::from_millis(250);
/// What is exported of the traces, how that is called, and the bar.
const SAMPLED: [(&str, &str, f64); 2] = [("0.1", "10 % sampled", 1.05), ("1", "all sampled", 1.25)];

pub(crate) async fn measure() -> Result<Vec<Figure>> {
    match containerd::available() {
        Ok(()) => {
            let (containerd, image) = containerd_with_an_image().await?;
            beside(&containerd.endpoint(), &image).await
        }
        Err(why) => {
            remark(&format!("there is no containerd ({why}): a service that answers at once stands for it"));
            let service = AnsweringAtOnce::start()?;
            beside(&service.endpoint, IMAGE).await
        }
    }
}

async fn beside(endpoint: &str, image: &str) -> Result<Vec<Figure>> {
    let (_collector, url) = Collector::http().await;
    let cri = ["--runtime", "cri", "--runtime-endpoint", endpoint];
    let mut agents = vec![RunningAgent::start(&cri, &[]).await?];
    for (ratio, ..) in SAMPLED {
        let environment = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_BSP_SCHEDULE_DELAY", DELAY_MS),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", ratio),
        ];
        agents.push(RunningAgent::start(&cri, &environment).await?);
    }
    let mut spent: Vec<Vec<Duration>> = vec![Vec::new(); agents.len()];
    for round in 0..=ROUNDS {
        for (agent, spent) in agents.iter().zip(&mut spent) {
            let before = process::cpu_time(agent.id())?;
            for _ in 0..PULLS {
                agent.pull_present(image).await?;
            }
            tokio::time::sleep(SETTLE).await;
            if round > 0 {
                spent.push(process::cpu_time(agent.id())?.saturating_sub(before));
            }
        }
    }
    let of_a_pull = |spent: &[Duration]| median(spent).as_secs_f64() * 1e6 / PULLS as f64;
    let off = of_a_pull(&spent[0]);
    let figure = |(spent, (_, what, most)): (&Vec<Duration>, (&str, &str, f64))| {
        let figure = Figure::new(format!("CPU of a present pull, {what}"), Unit::Microseconds, of_a_pull(spent));
        figure.beside("traces off", off).with_bar(Bar::Ratio(most))
    };
    Ok(spent[1..].iter().zip(SAMPLED).map(figure).collect())
}
