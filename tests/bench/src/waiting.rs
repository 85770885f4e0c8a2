//! `waiting`: the processor time of an agent for a pull while others wait on the node.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use contract::messages::pull_coordinator::OutcomeKind;
use futures::future::try_join_all;
use memory_registry::{MadeImage, MemoryRegistry, Options};
use support::nats::{NatsConfig, NatsServer, current_program};
use tokio::sync::Notify;

use crate::agent::{Caller, RunningAgent};
use crate::alternate::{median, milliseconds};
use crate::figure::{Bar, Figure, Unit};
use crate::process;
use crate::report::remark;

/// How many pulls wait, each for an image of its own. The last value is compared with the first.
pub(crate) const USUAL: [usize; 4] = [20, 100, 400, 2_000];
/// Pulls that end before the measurement begins.
const BEFORE: usize = 100;
/// Pulls whose cost is measured.
const MEASURED: u32 = 200;
/// How often each value is measured, in turn with the others; an odd number. The median counts: what else the machine does makes single
/// values differ by a third.
const TIMES: usize = 3;
/// Pulls that begin per second: the node's own work is then the same for each pull, however many wait.
const PER_SECOND: &str = "50";
/// The fleet's budget, of which a twentieth is enough: the rate rises only once images are served.
const FLEET_PER_SECOND: &str = "1200";
/// How many callers share one connection: a connection takes 1,024 requests at a time.
const OF_ONE_CONNECTION: usize = 500;
/// Bytes of a small image's only layer.
const LAYER_BYTES: u64 = 4_096;
/// Standing pulls of images that do not exist: the most that a node may have.
const STANDING: usize = 1_000;
/// How long they are measured, once each has failed.
const WATCHED: Duration = Duration::from_secs(30);
/// The pause between two checks whether each has failed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A limit that no wait reaches.
const CALL_LIMIT: Duration = Duration::from_secs(600);
const TAG: &str = "v1";
/// The bars: how much more a pull may cost while 2,000 wait than while 20 do; and processor time in milliseconds.
const MOST_GROWTH: f64 = 1.2;
const MOST_FAILING_MS: f64 = 2.0;
const MOST_NEW_MS: f64 = 4.0;

/// The kind of image.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// An image that does not exist: the registry answers 404.
    Missing,
    /// A small image that is absent on the node.
    New,
}

pub(crate) async fn measure(waiting: &[usize]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (what, called, most) in [(What::Missing, "failing pull", MOST_FAILING_MS), (What::New, "small new image", MOST_NEW_MS)] {
        let mut measured = vec![Vec::new(); waiting.len()];
        for time in 1..=TIMES {
            for (&waiting, measured) in waiting.iter().zip(&mut measured) {
                let spent = of_a_pull(what, waiting).await.with_context(|| format!("{called} while {waiting} wait"))?;
                remark(&format!("CPU of a {called}, {waiting} wait: {}, {time} of {TIMES}", Unit::Milliseconds.shown(milliseconds(spent))));
                measured.push(spent);
            }
        }
        let (mut first, mut last) = (None, None);
        for (&waiting, measured) in waiting.iter().zip(&measured) {
            let spent = milliseconds(median(measured));
            let figure = Figure::new(format!("CPU of a {called}, {waiting} wait"), Unit::Milliseconds, spent);
            figures.push(figure.with_bar(Bar::Value(most)));
            let (fewest, least) = *first.get_or_insert((waiting, spent));
            let grown = Figure::new(format!("the same compared with {fewest}"), Unit::Milliseconds, spent);
            last = Some(grown.compared_with(format!("{fewest} wait"), least).with_bar(Bar::Ratio(MOST_GROWTH)));
        }
        figures.extend(last);
    }
    figures.push(standing().await.context("an agent with standing pulls")?);
    Ok(figures)
}

/// The cost of standing pulls of images that do not exist, including their attempts.
async fn standing() -> Result<Figure> {
    let registry = MemoryRegistry::start(Options::default()).await.context("no port on loopback can be had for the registry")?;
    let server = NatsServer::start(NatsConfig::default().with_program(current_program().map_err(|why| anyhow!(why))?));
    let agent = RunningAgent::start(&["--nats", &server.url()], &[("FLEETPULL_THROTTLE_QPS", PER_SECOND)]).await?;
    let caller = agent.new_caller().await?;
    for number in 0..STANDING as u64 {
        caller.make_standing_pull(&image(registry.host(), number), CALL_LIMIT).await?;
    }
    tokio::time::timeout(CALL_LIMIT, async {
        while registry.counts().requests < STANDING as u64 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    })
    .await
    .context("some standing pulls do not begin")?;
    let (before, requests) = (process::cpu_time(agent.id())?, registry.counts().requests);
    tokio::time::sleep(WATCHED).await;
    let spent = process::cpu_time(agent.id())?.saturating_sub(before);
    remark(&format!("{} requests of {STANDING} standing pulls in {} s", registry.counts().requests - requests, WATCHED.as_secs()));
    let percent = spent.div_duration_f64(WATCHED) * 100.0;
    Ok(Figure::new(format!("agent with {STANDING} standing pulls (404)"), Unit::PercentOfCore, percent))
}

/// The processor time of an agent for a pull while this many pulls wait: each caller that is answered requests another
/// image.
async fn of_a_pull(what: What, waiting: usize) -> Result<Duration> {
    let registry = MemoryRegistry::start(Options::default()).await.context("no port on loopback can be had for the registry")?;
    if what == What::New {
        let images = 0..(waiting + BEFORE + MEASURED as usize) as u64;
        images.for_each(|number| drop(registry.add_image(&name(number), TAG, &MadeImage::of_layers([LAYER_BYTES]).seeded(number + 1))));
    }
    let server = NatsServer::start(NatsConfig::default().with_program(current_program().map_err(|why| anyhow!(why))?));
    let environment = [
        ("FLEETPULL_THROTTLE_QPS", PER_SECOND),
        ("FLEETPULL_BUDGET_PULLS_PER_SECOND", FLEET_PER_SECOND),
        ("FLEETPULL_PULL_QUEUE", "10000"),
        ("FLEETPULL_THROTTLE_MAX_WAIT", "1h"),
    ];
    let agent = RunningAgent::start(&["--nats", &server.url()], &environment).await?;
    let mut connections = Vec::new();
    for _ in 0..waiting.div_ceil(OF_ONE_CONNECTION) {
        connections.push(agent.new_caller().await?);
    }
    let (progress, host) = (Rc::new(Progress::default()), registry.host());
    let callers = (0..waiting).map(|caller| pull_again_and_again(&connections[caller % connections.len()], host, what, &progress));
    let measured = async {
        progress.until(BEFORE).await;
        let before = process::cpu_time(agent.id())?;
        progress.until(BEFORE + MEASURED as usize).await;
        let spent = process::cpu_time(agent.id())?.saturating_sub(before);
        anyhow::Ok(spent / MEASURED)
    };
    tokio::select! {
        biased;
        measured = measured => measured,
        failed = try_join_all(callers) => Err(failed.err().unwrap_or_else(|| anyhow!("the callers have ended"))),
    }
}

/// Pulls one image after the other.
async fn pull_again_and_again(caller: &Caller, host: &str, what: What, progress: &Progress) -> Result<()> {
    loop {
        let image = image(host, progress.next_image());
        let outcome = caller.pull(&image, CALL_LIMIT).await?;
        let expected = if what == What::New { OutcomeKind::Pulled } else { OutcomeKind::Failed };
        anyhow::ensure!(outcome.outcome == expected, "{image}: {:?} {}", outcome.outcome, outcome.message);
        progress.ended();
    }
}

/// The name of a repository; images of one repository would share blobs.
fn name(number: u64) -> String {
    format!("team/app{number}")
}

fn image(host: &str, number: u64) -> String {
    format!("{host}/{}:{TAG}", name(number))
}

/// How many pulls have begun and ended.
#[derive(Default)]
struct Progress {
    asked: Cell<u64>,
    ended: Cell<usize>,
    /// The count at which to notify a waiting task.
    awaited: RefCell<Option<(usize, Rc<Notify>)>>,
}

impl Progress {
    fn next_image(&self) -> u64 {
        self.asked.replace(self.asked.get() + 1)
    }

    fn ended(&self) {
        self.ended.set(self.ended.get() + 1);
        if let Some((count, reached)) = &*self.awaited.borrow()
            && self.ended.get() >= *count
        {
            reached.notify_one();
        }
    }

    /// Waits until this many pulls have ended.
    async fn until(&self, count: usize) {
        let reached = Rc::new(Notify::new());
        *self.awaited.borrow_mut() = Some((count, Rc::clone(&reached)));
        if self.ended.get() < count {
            reached.notified().await;
        }
    }
}
