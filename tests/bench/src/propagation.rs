//! `propagation`: how soon all nodes learn of a failure, on a real nats-server: from the end of the failing attempt that confirms another
//! node's failure to the refusal on all other nodes, compared with a bare message of the same size to the same subscribers over the same
//! connections. A failure of one node alone delays the others and refuses no pull, so two nodes fail.
#![allow(clippy::disallowed_methods, reason = "tasks of a measurement")]

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::{Actor as _, Addr, Arbiter};
use actors::Ask;
use anyhow::{Context as _, Error, Result, anyhow, bail, ensure};
use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::{BackoffTracker, Share, SharedBus, TrackerParts};
use bus::nats::{NatsBus, NatsOptions};
use bus::{BusRef, Message};
use clock::{Clock, Random};
use contract::know::REPORTS;
use contract::messages::backoff_tracker::{
    AttemptFailure, Clearance, CountBackoffs, LocalKey, RequestClearance, ResolveAttempt, SeeFleet, WithdrawClearance,
};
use contract::messages::registrar::{FleetSeen, Place};
use contract::subject::Fleet;
use contract::{AttemptId, ClearanceId, Command, Envelope, FailureClass, Meta, NodeName, Stage, Target, View};
use futures::StreamExt as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use support::nats::{NatsConfig, NatsServer, current_program};
use tokio::sync::{Notify, broadcast};

use crate::alternate::{median, milliseconds};
use crate::figure::{Bar, Figure, Unit};
use crate::report::remark;

/// Nodes that fail, one after the other.
const FINDERS: usize = 2;
/// How many replicas there are besides the finders, each with a connection of its own.
const SUBSCRIBERS: usize = 1_000 - FINDERS;
/// The threads that serve them, each bound to a core.
const THREADS: usize = 2;
const RUNS: usize = 5;
/// The subject of the bare message.
const FANOUT: &str = "bench.fanout";
/// A limit that nothing here reaches.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a replica waits for the result of another node's attempt.
const PATIENCE_MS: u64 = 30_000;
/// The duration of the failing attempt, and the pause before the bare message: earlier questions and returned leases are over by then.
/// Among them a bare message would seem to take up to twice as long.
const CALM: Duration = Duration::from_millis(250);
/// The bar.
const MOST: f64 = 2.0;

/// The result, as `--output json` writes it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Propagation {
    subscribers: usize,
    core_p99_ms: f64,
    ours_p99_ms: f64,
    ratio: f64,
}

impl Propagation {
    pub(crate) fn figure(&self) -> Figure {
        let what = format!("{} replicas refuse, p99", self.subscribers);
        let figure = Figure::new(what, Unit::Milliseconds, self.ours_p99_ms);
        figure.compared_with("bare fan-out", self.core_p99_ms).with_bar(Bar::Ratio(MOST))
    }
}

/// A task for the replicas.
#[derive(Clone, Debug)]
enum Order {
    /// Request clearance for this image, and report when it is refused.
    Await(String),
}

/// A step of a replica. All replicas report a step before any reports the next.
enum Step {
    /// It is connected, sharing and subscribed; or the error.
    Ready(Result<()>),
    /// It has asked, and the tracker has received the question.
    Asked,
    /// It was refused at this time.
    Refused(Duration),
    /// The bare message arrived at this time.
    Received(Duration),
    /// It got another answer.
    Unexpected(String),
}

/// The steps of all replicas. Only the last one wakes the listener, because a wake-up by each would cost more than the message.
#[derive(Default)]
struct Gathering {
    steps: Mutex<Vec<Step>>,
    full: Notify,
}

impl Gathering {
    fn report(&self, step: Step) {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps.push(step);
        if steps.len() == SUBSCRIBERS {
            self.full.notify_one();
        }
    }

    /// Waits until all replicas have reported, and returns their steps.
    async fn all<T>(&self, expected: impl Fn(Step) -> Result<T>) -> Result<Vec<T>> {
        let full = tokio::time::timeout(LIMIT, self.full.notified()).await;
        let steps = std::mem::take(&mut *self.steps.lock().unwrap_or_else(PoisonError::into_inner));
        ensure!(full.is_ok(), "{} of {SUBSCRIBERS} replicas reported nothing within {LIMIT:?}", SUBSCRIBERS - steps.len());
        steps.into_iter().map(expected).collect()
    }
}

impl Step {
    /// The error if another step was expected.
    fn unexpected(self) -> Error {
        match self {
            Self::Ready(Err(error)) => error,
            Self::Unexpected(answer) => anyhow!("a replica was answered {answer}"),
            _ => anyhow!("a replica reports another step than expected"),
        }
    }
}

pub(crate) async fn measure() -> Result<Propagation> {
    let program = current_program().map_err(|why| anyhow!(why))?;
    let server = NatsServer::start(NatsConfig::default().with_program(program));
    let clock = Clock::host();
    let (orders, _) = broadcast::channel(RUNS + 1);
    let replicas = Arc::new(Gathering::default());
    remark(&format!("connecting {SUBSCRIBERS} replicas"));
    let arbiters: Vec<Arbiter> = (0..THREADS).map(|_| Arbiter::new()).collect();
    for (number, arbiter) in arbiters.iter().enumerate() {
        arbiter.spawn_fn(move || {
            if let Err(error) = keep_to_core(number) {
                remark(&format!("replicas are served on any core, which may be one for all: {error}"));
            }
        });
    }
    for number in 0..SUBSCRIBERS {
        let (url, clock, orders, replicas) = (server.url(), clock.clone(), orders.subscribe(), replicas.clone());
        arbiters[number % THREADS].spawn(replica(number + FINDERS, url, clock, orders, replicas));
    }
    let finder = Replica::start(0, &server.url(), &clock).await?;
    let second = Replica::start(1, &server.url(), &clock).await?;
    replicas.all(|step| if let Step::Ready(Ok(())) = step { Ok(()) } else { Err(step.unexpected()) }).await?;
    let (mut core, mut ours) = (vec![], vec![]);
    // The first run warms both sides up, and shows the size of a finder's report.
    let mut reports = finder.bus.subscribe(&format!("{}.>", Fleet::default().knowledge(REPORTS)), None).await?;
    find_out([&finder, &second], 0, &clock, &orders, &replicas).await?;
    let report = tokio::time::timeout(LIMIT, reports.next()).await.ok().flatten().context("no report is republished")?;
    drop(reports);
    remark(&format!("a report takes {} bytes", report.payload.len()));
    finder.fan_out(&report, &clock, &replicas).await?;
    for run in 1..=RUNS {
        let bare = finder.fan_out(&report, &clock, &replicas).await?;
        let refused = find_out([&finder, &second], run, &clock, &orders, &replicas).await?;
        remark(&format!("run {run}: p99 bare {:.2} ms, ours {:.2} ms", milliseconds(bare), milliseconds(refused)));
        core.push(bare);
        ours.push(refused);
    }
    arbiters.iter().for_each(|arbiter| {
        arbiter.stop();
    });
    let (core, ours) = (milliseconds(median(&core)), milliseconds(median(&ours)));
    Ok(Propagation { subscribers: SUBSCRIBERS, core_p99_ms: core, ours_p99_ms: ours, ratio: ours / core })
}

/// A node's tracker on a connection of its own.
struct Replica {
    bus: BusRef,
    tracker: Addr<BackoffTracker>,
}

impl Replica {
    async fn start(number: usize, url: &str, clock: &Clock) -> Result<Self> {
        let bus = NatsBus::connect(NatsOptions { urls: Some(url.to_owned()), ..NatsOptions::default() }).await?;
        bus.wait_connected(LIMIT).await?;
        let bus: BusRef = Arc::new(bus);
        let panic_guard = actors::PanicGuard::of;
        let node: NodeName = format!("n{number}").parse()?;
        let tracker = BackoffTracker::sharing(TrackerParts {
            node,
            policy: BackoffPolicy::default(),
            clock: clock.clone(),
            random: Random::seeded(number as u64),
            panic_guard: panic_guard("backoff-tracker"),
            share: Share::Enforce,
            shared: SharedBus { bus: bus.clone(), fleet: Fleet::default() },
            planted_bug: None,
        });
        let replica = Self { bus, tracker: tracker.start() };
        replica.until_it_shares().await?;
        let alive = (SUBSCRIBERS + FINDERS) as u64;
        let place = Place { alive, alive_in_zone: alive, rank: Some(number as u64) };
        replica.put(SeeFleet(FleetSeen { place, digest: None })).await?;
        Ok(replica)
    }

    async fn put<C: Command>(&self, body: C) -> Result<C::Reply>
    where
        BackoffTracker: actix::Handler<Ask<C>>,
    {
        let meta = Meta::root(&mut Random::from_system());
        Ok(self.tracker.send(Ask(Envelope { meta, body })).await??)
    }

    async fn until_it_shares(&self) -> Result<()> {
        let shares = async {
            while self.put(CountBackoffs {}).await?.shared.alone {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(LIMIT, shares).await.context("a tracker does not begin to share")?
    }

    /// Sends the same bytes to all replicas as a bare message.
    async fn fan_out(&self, report: &Message, clock: &Clock, replicas: &Gathering) -> Result<Duration> {
        tokio::time::sleep(CALM).await;
        let began = clock.now().monotonic;
        self.bus.publish(Message::new(FANOUT.to_owned(), report.payload.clone())).await?;
        let received = replicas.all(|step| if let Step::Received(at) = step { Ok(at) } else { Err(step.unexpected()) }).await?;
        Ok(p99(received, began))
    }

    /// Waits for clearance for an image. A node gets it if no other node asks for the image, or if the others got no answer.
    async fn begin(&self, image: &str) -> Result<Attempt> {
        let (clearance, attempt) = (ClearanceId::random(&mut Random::from_system()), AttemptId::random(&mut Random::from_system()));
        match self.put(request(clearance, attempt, image)).await? {
            Clearance::Granted { .. } => Ok(Attempt { clearance, attempt }),
            other => bail!("a finder does not get clearance: {other:?}"),
        }
    }

    /// Ends an attempt: the image does not exist.
    async fn fail(&self, attempt: &Attempt) -> Result<()> {
        let failure = AttemptFailure {
            class: FailureClass::NotFound,
            cause: "ErrImagePull: registry.example: 404 Not Found (MANIFEST_UNKNOWN: manifest unknown)".to_owned(),
            authoritative: true,
            ..AttemptFailure::default()
        };
        let Attempt { clearance, attempt } = *attempt;
        self.put(ResolveAttempt { clearance, attempt, failure: Some(failure), stage: Stage::Manifest }).await?;
        Ok(())
    }
}

/// An attempt of a finder that has clearance.
struct Attempt {
    clearance: ClearanceId,
    attempt: AttemptId,
}

/// All nodes want an image that does not exist. The first finder is the leader; it gets no answer for 2 s, so the second gets clearance
/// too. The failure of the first delays all nodes, that of the second refuses all.
async fn find_out(
    finders: [&Replica; FINDERS],
    run: usize,
    clock: &Clock,
    orders: &broadcast::Sender<Order>,
    replicas: &Gathering,
) -> Result<Duration> {
    let image = format!("registry.example/team/app:v{run}");
    let [first, second] = finders;
    let leads = first.begin(&image).await?;
    let confirms = second.begin(&image).await?;
    orders.send(Order::Await(image)).map_err(|_| anyhow!("the replicas have ended"))?;
    replicas.all(|step| if let Step::Asked = step { Ok(()) } else { Err(step.unexpected()) }).await?;
    first.fail(&leads).await?;
    tokio::time::sleep(CALM).await;
    let began = clock.now().monotonic;
    second.fail(&confirms).await?;
    let refused = replicas.all(|step| if let Step::Refused(at) = step { Ok(at) } else { Err(step.unexpected()) }).await?;
    first.put(WithdrawClearance { clearance: leads.clearance }).await?;
    second.put(WithdrawClearance { clearance: confirms.clearance }).await?;
    Ok(p99(refused, began))
}

/// Runs one replica: it reports when the message arrives, and when it is refused.
async fn replica(number: usize, url: String, clock: Clock, mut orders: broadcast::Receiver<Order>, all: Arc<Gathering>) {
    let replica = match Replica::start(number, &url, &clock).await {
        Ok(replica) => replica,
        Err(error) => return all.report(Step::Ready(Err(error))),
    };
    let mut bare = match replica.bus.subscribe(FANOUT, None).await {
        Ok(bare) => bare,
        Err(error) => return all.report(Step::Ready(Err(error.into()))),
    };
    all.report(Step::Ready(Ok(())));
    loop {
        tokio::select! {
            biased;
            message = bare.next() => {
                let at = clock.now().monotonic;
                if message.is_none() {
                    return;
                }
                all.report(Step::Received(at));
            }
            order = orders.recv() => {
                let Ok(Order::Await(image)) = order else { return };
                let step = refusal(&replica, &image, &clock, &all).await;
                all.report(step);
            }
        }
    }
}

/// A caller that is refused has no request any more, so nothing must be withdrawn.
async fn refusal(replica: &Replica, image: &str, clock: &Clock, all: &Gathering) -> Step {
    let (clearance, attempt) = (ClearanceId::random(&mut Random::from_system()), AttemptId::random(&mut Random::from_system()));
    let asked = replica.put(request(clearance, attempt, image));
    let taken = async {
        // The mailbox is in order: when this is answered, the tracker has received the earlier request.
        let _ = replica.put(CountBackoffs {}).await;
        all.report(Step::Asked);
    };
    let watched = async {
        let answer = asked.await;
        (clock.now().monotonic, answer)
    };
    let ((at, answer), ()) = futures::join!(watched, taken);
    match answer {
        Ok(Clearance::Refused(_)) => Step::Refused(at),
        other => Step::Unexpected(format!("{other:?}")),
    }
}

fn request(clearance: ClearanceId, attempt: AttemptId, image: &str) -> RequestClearance {
    let target = Target {
        view: View {
            scope: "default".to_owned(),
            registry: "registry.example".to_owned(),
            route: "direct".to_owned(),
            boot: String::new(),
        },
        endpoint: "registry.example:443".to_owned(),
        zone: "default".to_owned(),
        repository: "registry.example/team/app".to_owned(),
        reference: image.to_owned(),
        platform: "linux/amd64".to_owned(),
        scope: "anonymous".to_owned(),
        budget_owner: "anonymous".to_owned(),
        ..Target::default()
    };
    let key = LocalKey { pod: None, image: image.to_owned() };
    RequestClearance {
        clearance,
        attempt,
        attempt_span: None,
        key,
        other_keys: Vec::new(),
        target,
        standing: false,
        patience_ms: PATIENCE_MS,
    }
}

/// Binds the thread to one of the cores that it may use. Otherwise the kernel sometimes lets two busy threads share a core while another is
/// idle, even for a whole run.
fn keep_to_core(number: usize) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let core = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).cycle().nth(number);
    let mut kept = CpuSet::new();
    core.into_iter().for_each(|core| kept.set(core));
    Ok(sched_setaffinity(None, &kept)?)
}

fn p99(mut at: Vec<Duration>, began: Duration) -> Duration {
    at.sort_unstable();
    at.get(at.len() * 99 / 100).copied().unwrap_or_default().saturating_sub(began)
}
