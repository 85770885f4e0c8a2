//! Pulls images on one other node, through its agent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bus::BusHealth;
use clock::Random;
use contract::messages::backoff_tracker::{BackoffEntry, ListBackoffs};
use contract::messages::pull_coordinator::{EnsureImage, ListPulls, ListStandingPulls, PullOutcome, PullStatus, StandingPullStatus};
use contract::{CallError, FailureClass, NodeName, StandingPullId};
use futures::StreamExt as _;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::plan::Begin;
use crate::cli::PullArgs;
use crate::fleet::{ANSWER_WITHIN, FleetClient};
use crate::node::STANDING;
use crate::output::known_failures::same_image;
use crate::output::outcome::Row;
use crate::tracing_of_command::CommandTrace;

/// How often a pulling node is asked for its progress. This also detects a silent node.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After this many unanswered requests a node counts as silent. As many wait for their answers at the same time.
const SILENT_AFTER: u32 = 3;
/// An image that is missing from the agent's pulls in this many checks in a row is lost: the agent restarted.
const LOST_AFTER: u32 = 2;
/// The extra time for a node to report its own time-out.
const GRACE: Duration = Duration::from_secs(2);

/// The pull command and its nodes.
pub(super) struct Job<'a> {
    pub(super) args: &'a PullArgs,
    pub(super) client: &'a FleetClient,
    /// The standing pull of each image, with the same id on all nodes so that one id cancels it. Empty without `--wait`.
    pub(super) standing_pulls: BTreeMap<String, StandingPullId>,
    began: Duration,
    trace: &'a CommandTrace,
}

/// The news from nodes while they pull.
pub(super) enum News {
    Row(Box<Row>),
    Progress(NodeName, Vec<PullStatus>, Vec<StandingPullStatus>),
    /// The node has stopped answering, and is asked again.
    NoAnswer(NodeName),
}

/// The answer to the request for an image.
type Answer = (String, Result<PullOutcome, CallError>);

/// The answer to the request for progress: the node's pulls, and the job's standing pulls among its own. None if a list is late or not
/// complete.
type Looked = Result<(Vec<PullStatus>, Option<Vec<StandingPullStatus>>), CallError>;

impl<'a> Job<'a> {
    /// A job that starts now.
    pub(super) fn new(args: &'a PullArgs, client: &'a FleetClient, trace: &'a CommandTrace) -> Self {
        let mut random = Random::from_system();
        let images = args.images.iter().filter(|_| args.wait.is_some());
        let standing_pulls = images.map(|image| (image.clone(), StandingPullId::random(&mut random))).collect();
        Self { args, client, standing_pulls, began: client.clock().now().monotonic, trace }
    }

    /// The time since the job's start.
    pub(super) fn lasts(&self) -> Duration {
        self.client.clock().now().monotonic.saturating_sub(self.began)
    }

    /// The remaining time of `--wait`. None without it.
    pub(super) fn left(&self) -> Option<Duration> {
        self.args.wait.map(|wait| wait.saturating_sub(self.lasts()))
    }

    /// A row with the current time.
    pub(super) fn row(&self, image: &str, node: &NodeName, outcome: PullOutcome) -> Row {
        Row {
            image: image.to_owned(),
            node: node.clone(),
            outcome,
            at_ms: self.client.clock().now().wall_ms(),
            under_way: None,
            not_begun: false,
        }
    }

    fn ask(&self, node: &NodeName, image: String) -> LocalBoxFuture<'a, Answer> {
        let mut command: EnsureImage = super::ask(self.args, &image);
        let left = self.left();
        // A later request gets only the remaining time.
        command.wait_ms = left.map(|left| super::milliseconds(left).max(1));
        command.standing_pull = self.standing_pulls.get(&image).copied();
        command.detach = self.args.many.detach;
        let limit = match (left, self.args.many.detach) {
            (_, true) => ANSWER_WITHIN,
            (Some(left), false) => left + GRACE,
            (None, false) => self.args.timeout.map_or(STANDING, |timeout| timeout + GRACE),
        };
        let (client, node) = (self.client, node.clone());
        let (envelope, span) = self.trace.request(command);
        span.set("fleetpull.node", node.to_string());
        Box::pin(async move {
            let answered = client.ask_as(&node, envelope, limit).await;
            if let Err(error) = &answered {
                span.fail("no_answer", &error.to_string());
                span.keep();
            }
            (image, answered)
        })
    }

    /// The outcome for a node that gave no answer, so that no row is missing.
    async fn unanswered(&self, node: &NodeName, error: &CallError) -> PullOutcome {
        let out_of_time = self.left().is_some_and(|left| left.is_zero());
        // A node that is found silent sooner has not used up the time-out of the command.
        let is_late = |limit: Duration| matches!(error, CallError::TimedOut { timeout } if *timeout >= limit);
        let timed_out = out_of_time || self.args.timeout.is_some_and(is_late);
        PullOutcome { timed_out, ..super::unanswered(self.client.explain_silence(node, error).await, FailureClass::Unknown) }
    }
}

/// The part of the job on one node.
struct NodePull<'a> {
    job: &'a Job<'a>,
    node: NodeName,
    news: mpsc::Sender<News>,
    /// Images without an outcome.
    open: BTreeSet<String>,
    /// Images to request.
    queue: VecDeque<String>,
    asked: FuturesUnordered<LocalBoxFuture<'a, Answer>>,
    looks: FuturesUnordered<LocalBoxFuture<'a, Looked>>,
    /// Standing pulls whose answer was lost with the agent or the connection. They continue on the node, and are requested again.
    again: Vec<String>,
    /// In how many checks in a row each image was missing from the agent's pulls.
    missed: BTreeMap<String, u32>,
    /// True if the agent has answered once, so it exists and may come back.
    seen: bool,
    unanswered: u32,
}

/// Requests the images from one node concurrently. Sends each outcome when it arrives, or the outcome of a silent node.
pub(super) async fn pull<'a>(job: &'a Job<'a>, begin: Begin, news: mpsc::Sender<News>) -> NodeName {
    let open: BTreeSet<String> = begin.images.iter().cloned().collect();
    let queue = begin.images.into();
    let (asked, looks, again) = (FuturesUnordered::new(), FuturesUnordered::new(), Vec::new());
    let missed = BTreeMap::new();
    let mut pull = NodePull { job, node: begin.node, news, open, queue, asked, looks, again, missed, seen: false, unanswered: 0 };
    pull.carry_out().await;
    pull.node
}

impl<'a> NodePull<'a> {
    async fn carry_out(&mut self) {
        let mut look = tokio::time::interval(LOOK_EVERY);
        // The first item is the current state of the bus. Each later `Connected` means that the connection was lost before.
        let mut links = self.job.client.messaging().health_changes().skip(1);
        while !self.open.is_empty() {
            while self.asked.len() < super::IMAGES_AT_ONCE
                && let Some(image) = self.queue.pop_front()
            {
                self.asked.push(self.job.ask(&self.node, image));
            }
            tokio::select! {
                biased;
                Some(BusHealth::Connected | BusHealth::Degraded { .. }) = links.next() => {
                    // A request or its answer may have been lost with the connection. A repeated request joins the running pull.
                    self.asked.clear();
                    self.looks.clear();
                    self.again.clear();
                    self.queue = self.open.iter().cloned().collect();
                }
                Some((image, answer)) = self.asked.next() => self.on_answer(image, answer).await,
                Some(looked) = self.looks.next() => self.on_look(looked).await,
                _ = look.tick(), if self.looks.len() < SILENT_AFTER as usize => {
                    let looking = self.look();
                    self.looks.push(looking);
                }
            }
        }
    }

    async fn on_answer(&mut self, image: String, answer: Result<PullOutcome, CallError>) {
        // A repeated request gets two answers.
        if !self.open.contains(&image) {
            return;
        }
        match answer {
            Ok(outcome) => self.end(image, outcome).await,
            Err(error) if self.may_ask_again(&error) => self.again.push(image),
            Err(error) => {
                let outcome = self.job.unanswered(&self.node, &error).await;
                self.end(image, outcome).await;
            }
        }
    }

    /// A standing pull continues when its agent restarts, so an agent that has answered before is asked again.
    fn may_ask_again(&self, error: &CallError) -> bool {
        let left = self.job.left().is_some_and(|left| !left.is_zero());
        left && self.seen && !self.job.args.many.detach && !matches!(error, CallError::Refused { .. })
    }

    fn look(&self) -> LocalBoxFuture<'a, Looked> {
        let (job, node) = (self.job, self.node.clone());
        Box::pin(async move {
            let list = job.client.ask(&node, ListPulls {}, ANSWER_WITHIN).await?;
            if job.standing_pulls.is_empty() {
                // What the list leaves out is not lost.
                return Ok((list.pulls, (list.left_out == 0).then(Vec::new)));
            }
            let is_of_job = |status: &StandingPullStatus| job.standing_pulls.get(&status.image) == Some(&status.standing_pull);
            let standing_pulls = match job.client.ask(&node, ListStandingPulls {}, ANSWER_WITHIN).await {
                Ok(listed) if listed.left_out > 0 => None,
                Ok(listed) => Some(listed.standing_pulls.into_iter().filter(is_of_job).collect::<Vec<_>>()),
                Err(CallError::TimedOut { .. } | CallError::Bus { .. }) => None,
                // An agent of an older version has no standing pulls.
                Err(_) => Some(Vec::new()),
            };
            Ok((list.pulls, standing_pulls))
        })
    }

    async fn on_look(&mut self, looked: Looked) {
        match looked {
            Ok((pulls, standing_pulls)) => {
                (self.seen, self.unanswered) = (true, 0);
                self.queue.extend(self.again.drain(..));
                if let Some(standing_pulls) = &standing_pulls {
                    self.ask_again_for_what_is_lost(&pulls, standing_pulls);
                }
                if !self.queue.is_empty() {
                    // Answers to earlier requests do not show what is requested now.
                    self.looks.clear();
                }
                let Some(standing_pulls) = standing_pulls else { return };
                let pulls = pulls.into_iter().filter(|pull| self.open.contains(&pull.image)).collect();
                // Progress that is not read in time is outdated, so it may be dropped.
                let _ = self.news.try_send(News::Progress(self.node.clone(), pulls, standing_pulls));
            }
            Err(error) => {
                self.unanswered += 1;
                if self.unanswered < SILENT_AFTER {
                    return;
                }
                if !self.may_ask_again(&error) {
                    let outcome = self.job.unanswered(&self.node, &error).await;
                    for image in std::mem::take(&mut self.open) {
                        self.send(&image, outcome.clone()).await;
                    }
                } else if matches!(error, CallError::TimedOut { .. } | CallError::NoResponders { .. }) {
                    // The screen reports a lost bus itself. A dropped report is repeated after the next check.
                    let _ = self.news.try_send(News::NoAnswer(self.node.clone()));
                }
            }
        }
    }

    /// Requests lost images again, because a killed agent cannot tell its callers that no answer comes. A repeated request joins the
    /// running pull.
    fn ask_again_for_what_is_lost(&mut self, pulls: &[PullStatus], standing_pulls: &[StandingPullStatus]) {
        for image in &self.open {
            let is_known = match self.job.standing_pulls.get(image) {
                Some(_) => standing_pulls.iter().any(|status| status.image == *image && status.callers > 0),
                None => pulls.iter().any(|pull| same_image(&pull.image, image)),
            };
            let missed = self.missed.entry(image.clone()).or_default();
            *missed = if is_known || self.queue.contains(image) { 0 } else { *missed + 1 };
            if *missed >= LOST_AFTER {
                *missed = 0;
                self.queue.push_back(image.clone());
            }
        }
    }

    async fn end(&mut self, image: String, outcome: PullOutcome) {
        self.open.remove(&image);
        self.send(&image, outcome).await;
    }

    async fn send(&self, image: &str, outcome: PullOutcome) {
        let mut row = self.job.row(image, &self.node, outcome);
        if row.may_be_under_way() {
            row.under_way = self.entry_being_probed(image).await.map(Box::new);
        }
        // The receiver reads until every sender is dropped.
        let _ = self.news.send(News::Row(Box::new(row))).await;
    }

    /// The entry that another node is probing for this image, as the asked node knows it.
    async fn entry_being_probed(&self, image: &str) -> Option<BackoffEntry> {
        let named = ListBackoffs { what: Some(image.to_owned()), ..ListBackoffs::default() };
        let list = self.job.client.ask(&self.node, named, ANSWER_WITHIN).await.ok()?;
        list.entries.into_iter().find(|entry| entry.probed_by.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, MessageResult};
    use actors::Ask;
    use bus::Messaging as _;
    use bus::memory::MemoryBus;
    use clap::Parser as _;
    use clock::Clock;
    use contract::Command as _;
    use contract::messages::pull_coordinator::PullList;
    use contract::subject::Fleet;
    use futures::FutureExt as _;
    use tokio::time::timeout;

    use super::*;
    use crate::cli::{Cli, Command};

    /// An agent without pulls.
    struct Idle;

    impl Actor for Idle {
        type Context = Context<Self>;
    }

    impl Handler<Ask<ListPulls>> for Idle {
        type Result = MessageResult<Ask<ListPulls>>;

        fn handle(&mut self, _: Ask<ListPulls>, _: &mut Self::Context) -> Self::Result {
            MessageResult(Ok(PullList::default()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_of_a_node_is_noticed_after_five_seconds() {
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let hub = MemoryBus::new(clock.clone());
        let node: NodeName = "n1".parse().expect("a name");
        // The node receives all commands and answers none.
        let _silent = hub.subscribe(&Fleet::default().commands_to(&node), None).await.expect("the bus is open");
        let line = ["fleetpull", "pull", "registry.example/a:1", "--node", "n1", "--timeout", "10m"];
        let cli = Cli::try_parse_from(line).expect("a command line");
        let Command::Pull(args) = cli.command else { panic!("another command") };
        let (client, trace) = (FleetClient::new(Arc::new(hub), Fleet::default(), clock), CommandTrace::begin("fleetpull pull"));
        let job = Job::new(&args, &client, &trace);
        let (sender, mut news) = mpsc::channel(10);
        pull(&job, Begin { node, images: args.images.clone() }, sender).await;
        let Some(News::Row(row)) = news.recv().await else { panic!("a row") };
        assert!(row.outcome.message.contains("the agent of n1 is silent"), "{}", row.outcome.message);
        // The three requests begin after 0, 1 and 2 s.
        assert_eq!((job.lasts().as_secs(), row.outcome.timed_out), (5, false), "the ten minutes of the command are not over");
    }

    #[test]
    fn late_list_of_standing_pulls_repeats_no_request_and_silence_is_reported() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        actix::System::with_tokio_rt(runtime).block_on(async {
            let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
            let hub = MemoryBus::new(clock.clone());
            let node: NodeName = "n1".parse().expect("a name");
            // The node receives all commands, and answers only which pulls it has.
            let mut commands = hub.subscribe(&Fleet::default().commands_to(&node), None).await.expect("the bus is open");
            let client = FleetClient::new(Arc::new(hub), Fleet::default(), clock);
            let serving = actors::serve::<ListPulls>(&client.wiring(&node), Idle.start().recipient()).await.expect("the bus is open");
            let line = ["fleetpull", "pull", "registry.example/a:1", "--node", "n1", "--wait", "5m"];
            let Command::Pull(args) = Cli::try_parse_from(line).expect("a command line").command else { panic!("another command") };
            let trace = CommandTrace::begin("fleetpull pull");
            let job = Job::new(&args, &client, &trace);
            let (sender, mut news) = mpsc::channel(100);
            let mut pulling = std::pin::pin!(pull(&job, Begin { node: node.clone(), images: args.images.clone() }, sender));
            assert!(timeout(Duration::from_secs(20), &mut pulling).await.is_err(), "it waits");
            let subject = Fleet::default().command(&node, EnsureImage::SERVICE, EnsureImage::VERB);
            let mut requests = 0;
            while let Some(Some(message)) = commands.next().now_or_never() {
                requests += usize::from(message.subject == subject);
            }
            assert_eq!(requests, 1, "the standing pull is not lost because its list is late");
            assert!(news.try_recv().is_err(), "what the standing pull waits for is unknown");
            drop(serving);
            assert!(timeout(Duration::from_secs(20), &mut pulling).await.is_err(), "it waits on");
            let reported = news.try_recv();
            assert!(matches!(reported, Ok(News::NoAnswer(silent)) if silent == node), "the node is silent");
        });
    }
}
