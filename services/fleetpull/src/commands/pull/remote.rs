//! Pulls images on other nodes: when each begins, the results, and what goes on after an interrupt.

use std::time::Duration;

use anyhow::{Result, bail};
use clock::Clock;
use contract::messages::agent::NodeDescription;
use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome, StandingPullState};
use contract::{FailureClass, NodeName};
use futures::StreamExt as _;
use futures::future::{LocalBoxFuture, OptionFuture};
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::late::Late;
use super::node_pull::{self, Job, News};
use super::plan::Plan;
use super::quotas::{Quotas, SpentQuotas};
use super::{NotBegun, digests, dry_run, withdraw};
use crate::cli::{OutputFormat, Parallelism, PullArgs};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::fleet::{FleetClient, Members, connect, connect_here};
use crate::node::shown_bus;
use crate::output;
use crate::output::outcome::Row;
use crate::output::screen::Screen;
use crate::output::tally::Tally;
use crate::tracing_of_command::CommandTrace;

/// Nodes that pull at the same time for one command. Each holds a request open and is asked for its progress.
const AT_A_TIME: Parallelism = Parallelism::Nodes(100);
/// News items that are queued. When the queue is full, the nodes' tasks wait.
const NEWS_KEPT: usize = 100;
/// How often the screen is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(200);

pub(super) fn pull(args: &PullArgs, configuration: &Configuration, trace: &CommandTrace) -> Result<Exit> {
    actix::System::new().block_on(async {
        let clock = Clock::host();
        let began = clock.now().monotonic;
        let reached = async {
            let client = reach(args, configuration).await?;
            let (nodes, late) = nodes_and_late(args, &client).await?;
            Ok((client, nodes, late))
        };
        let (client, nodes, late) = match reached.await {
            Ok(reached) => reached,
            Err(error) => {
                let timed_out = args.timeout.or(args.wait).is_some_and(|limit| clock.now().monotonic.saturating_sub(began) >= limit);
                return super::not_begun(args, &certainly_selected(args), NotBegun { class: FailureClass::Unknown, timed_out, error });
            }
        };
        if args.many.dry_run {
            return dry_run::carry_out(args, &client, nodes, late).await;
        }
        let job = Job::new(args, &client, trace);
        let mut pull_command = PullCommand::new(&job, nodes, late);
        let ended = tokio::select! {
            biased;
            () = pull_command.carry_out() => true,
            _ = tokio::signal::ctrl_c() => false,
        };
        if !ended {
            pull_command.screen.clear();
            pull_command.print_silent_nodes();
            withdraw::interrupted(&job, &pull_command.plan, &pull_command.rows).await;
        }
        Ok(pull_command.conclude())
    })
}

/// Connects, within the command's own time.
async fn reach(args: &PullArgs, configuration: &Configuration) -> Result<FleetClient> {
    let connected = async {
        // One agent behind a socket does not stand for all nodes, nor for all nodes with some labels.
        let found = if args.nodes.is_empty() { None } else { connect_here(&args.fleet, configuration, args.output.quiet).await? };
        match found {
            Some(client) => Ok(client),
            None => connect(&args.fleet, configuration).await,
        }
    };
    let Some(limit) = args.timeout.or(args.wait) else { return connected.await };
    tokio::time::timeout(limit, connected).await.unwrap_or_else(|_| {
        let place = args.fleet.agent.clone().unwrap_or_else(|| shown_bus(configuration.settings()));
        bail!("the fleet behind {place} is not reached within {limit:?}: check what answers there, or give it more time")
    })
}

/// The nodes that are certainly selected if no node has answered: the given ones, else the one behind a socket, whose name is unknown.
fn certainly_selected(args: &PullArgs) -> Vec<Option<NodeName>> {
    let behind_socket = args.fleet.agent.is_some() && args.fleet.selector.is_none();
    if args.nodes.is_empty() && behind_socket { vec![None] } else { args.nodes.iter().cloned().map(Some).collect() }
}

/// The nodes to ask, and those that are known but silent.
async fn nodes_and_late(args: &PullArgs, client: &FleetClient) -> Result<(Vec<NodeName>, Late)> {
    let selector = args.fleet.selector.as_ref();
    if !args.nodes.is_empty() {
        return Ok((client.named_or_answering(&args.nodes, None).await?, Late::new(Vec::new(), None)));
    }
    let Members { answering, silent, .. } = client.members(selector).await?;
    Ok((answering.into_iter().map(|node| node.node).collect(), Late::new(silent, selector)))
}

/// The state of one running command.
struct PullCommand<'a> {
    job: &'a Job<'a>,
    plan: Plan,
    tally: Tally,
    screen: Screen,
    quotas: Quotas,
    rows: Vec<Row>,
    /// The number of selected nodes that have answered.
    answering: usize,
    late: Late,
}

impl<'a> PullCommand<'a> {
    fn new(job: &'a Job<'a>, nodes: Vec<NodeName>, late: Late) -> Self {
        let args = job.args;
        // A silent node may answer later, and a percentage is one of all selected nodes.
        let at_a_time = args.many.parallelism.unwrap_or(AT_A_TIME).of(nodes.len() + late.selected_count());
        let reached_through = if job.client.bus().is_some() { "NATS" } else { "the agent" };
        let (answering, tally) = (nodes.len(), Tally::of(nodes.len() + late.selected_count(), args.images.len(), reached_through));
        let plan = Plan::new(nodes, at_a_time, usize::from(args.many.canary.unwrap_or_default()), args.wait.is_some());
        let (screen, quotas) = (Screen::new(!args.output.quiet), Quotas::default());
        Self { job, plan, tally, screen, quotas, rows: Vec::new(), answering, late }
    }

    async fn carry_out(&mut self) {
        let (news_sender, mut news) = mpsc::channel(NEWS_KEPT);
        let mut work: FuturesUnordered<LocalBoxFuture<'_, NodeName>> = FuturesUnordered::new();
        let mut draw = tokio::time::interval(DRAW_EVERY);
        let mut look = self.late.look(self.job.client);
        let mut quota_look: Option<LocalBoxFuture<'_, SpentQuotas>> = None;
        let mut links = self.job.client.messaging().health_changes();
        loop {
            self.begin_more(&mut work, &news_sender);
            let over = work.is_empty() && !self.is_held_open();
            tokio::select! {
                biased;
                Some(arrived) = news.recv(), if !over || !news.is_empty() => self.on_news(arrived),
                Some(node) = work.next(), if !work.is_empty() => {
                    // The node's last news may still be queued.
                    while let Ok(arrived) = news.try_recv() {
                        self.on_news(arrived);
                    }
                    self.plan.end(&node);
                    self.tally.forget(&node);
                }
                Some(answers) = OptionFuture::from(look.as_mut()), if look.is_some() && !over => {
                    self.add_answered_nodes(answers);
                    look = self.late.look(self.job.client);
                }
                Some(health) = links.next(), if !over => self.tally.see_bus(&health, self.job.lasts()),
                Some(spent) = OptionFuture::from(quota_look.as_mut()), if quota_look.is_some() && !over => {
                    self.tally.see_quotas(spent, self.job.client.clock().now().wall_ms());
                    quota_look = None;
                }
                _ = draw.tick(), if !over => {
                    self.draw();
                    if quota_look.is_none() && !self.job.args.output.quiet {
                        quota_look = self.quotas.look(self.job.client, &self.tally, self.job.lasts());
                    }
                }
                else => break,
            }
        }
        self.print_nodes_not_begun();
        self.print_silent_nodes();
        self.screen.clear();
    }

    /// True if the command has to wait although no node is pulling.
    fn is_held_open(&self) -> bool {
        let time_left = self.job.left().is_none_or(|left| !left.is_zero());
        // The command goes on waiting for silent nodes only with `--wait` and without `--detach`.
        let stays = self.job.args.wait.is_some() && !self.job.args.many.detach;
        time_left && (self.plan.is_paused() || self.late.is_awaited(self.job.lasts(), stays))
    }

    /// Adds the silent nodes that have answered.
    fn add_answered_nodes(&mut self, answers: Vec<(NodeName, NodeDescription)>) {
        for node in self.late.take_answers(answers) {
            self.answering += 1;
            self.plan.join(node);
        }
        self.tally.see_nodes(self.answering + self.late.selected_count());
    }

    fn begin_more(&mut self, work: &mut FuturesUnordered<LocalBoxFuture<'a, NodeName>>, news_sender: &mpsc::Sender<News>) {
        if self.job.left().is_some_and(|left| left.is_zero()) {
            return;
        }
        while let Some(begin) = self.plan.begin(&self.job.args.images) {
            for image in self.job.args.images.iter().filter(|image| !begin.images.contains(image)) {
                let outcome = self.not_begun_outcome(image);
                self.print_not_begun(image, &begin.node, outcome);
            }
            work.push(Box::pin(node_pull::pull(self.job, begin, news_sender.clone())));
        }
    }

    fn on_news(&mut self, news: News) {
        match news {
            News::Row(row) => {
                self.plan.see(&row);
                self.print(*row);
            }
            News::Progress(node, pulls, standing_pulls) => {
                for status in &standing_pulls {
                    let held_by = status.class.filter(|_| status.state != StandingPullState::Pulling);
                    self.plan.see_standing_pull(&node, &status.image, held_by);
                }
                self.tally.see_node(&node, &pulls, &standing_pulls, self.job.client.clock().now().wall_ms());
            }
            News::NoAnswer(node) => {
                self.plan.see_no_answer(&node);
                self.tally.see_no_answer(&node);
            }
        }
    }

    fn draw(&mut self) {
        let now = self.job.lasts();
        self.tally.see_time(now, self.job.client.clock().now().wall_ms());
        self.tally.see_plan(self.plan.not_begun(), self.plan.is_paused());
        self.tally.see_silent(self.late.selected_names());
        self.screen.show(&self.tally, now);
    }

    fn print(&mut self, row: Row) {
        self.tally.see_row(&row);
        row.print(self.job.args.output.format);
        self.rows.push(row);
    }

    fn print_not_begun(&mut self, image: &str, node: &NodeName, outcome: PullOutcome) {
        self.print(Row { not_begun: true, ..self.job.row(image, node, outcome) });
    }

    /// Prints a row for each image on each selected node that has not answered until the end.
    fn print_silent_nodes(&mut self) {
        let timed_out = self.job.left().is_some_and(|left| left.is_zero());
        for (node, message) in self.late.silent_with_reasons(self.job.lasts()) {
            let outcome = PullOutcome { timed_out, ..super::unanswered(message, FailureClass::Unknown) };
            for image in &self.job.args.images {
                self.print(self.job.row(image, &node, outcome.clone()));
            }
        }
    }

    fn print_nodes_not_begun(&mut self) {
        for node in self.plan.left_over() {
            for image in &self.job.args.images {
                let outcome = self.not_begun_outcome(image);
                self.print_not_begun(image, &node, outcome);
            }
        }
    }

    /// The outcome of an image that was not requested: it names the row that explains why.
    fn not_begun_outcome(&self, image: &str) -> PullOutcome {
        let Some(why) = self.plan.why_not(image) else {
            let message = "not begun: the time was over before its turn came".to_owned();
            return PullOutcome { timed_out: true, ..super::unanswered(message, FailureClass::Unknown) };
        };
        let class = why.outcome.class.unwrap_or(FailureClass::Unknown);
        PullOutcome {
            outcome: OutcomeKind::Backoff,
            learned_by: Some(why.node.to_string()),
            learned_ms_ago: Some(self.job.client.clock().now().wall_ms().saturating_sub(why.at_ms)),
            learned_trace_id: Some(why.outcome.trace_id.clone()),
            ..super::unanswered(format!("not begun: {} got {}", why.node, output::one_line(&why.outcome.message)), class)
        }
    }

    /// Prints the summary to stderr, and returns the exit status.
    fn conclude(self) -> Exit {
        let Self { job, rows, late, .. } = self;
        late.name_unsure(job.args.output.quiet);
        super::advice::give(job.args, &rows);
        digests::of_rows(&rows).iter().for_each(|warning| output::warn(warning));
        sum_up(job.args, &rows);
        super::exit_of(&rows, job.args.many.success_threshold)
    }
}

/// Says on stderr how many pulls had each outcome, and how to explain the image.
fn sum_up(args: &PullArgs, rows: &[Row]) {
    if args.output.quiet || args.output.format != OutputFormat::Text {
        return;
    }
    let asked = |row: &&Row| !row.outcome.stands && !row.not_begun;
    let count = |kind: OutcomeKind| rows.iter().filter(asked).filter(|row| row.outcome.outcome == kind).count();
    let not_begun = rows.iter().filter(|row| row.not_begun).count();
    let (pulled, present) = (count(OutcomeKind::Pulled), count(OutcomeKind::Present));
    let (failed, backoff) = (count(OutcomeKind::Failed), count(OutcomeKind::Backoff));
    let standing = rows.iter().filter(|row| row.outcome.stands).count();
    let mut more = String::new();
    if not_begun > 0 {
        let were = if not_begun == 1 { "was" } else { "were" };
        more.push_str(&format!(" {not_begun} {were} not begun."));
    }
    if standing > 0 {
        let (pulls, them) = if standing == 1 { ("pull goes on", "it") } else { ("pulls go on", "them") };
        more.push_str(&format!(
            " {standing} standing {pulls} in the agents: `fleetpull pulls` lists {them}, `fleetpull cancel` ends {them}."
        ));
    }
    output::remark(&format!(
        "{} of {} are there ({pulled} pulled, {present} present before), {failed} failed, {backoff} in back-off.{more}",
        pulled + present,
        rows.len()
    ));
    if let Some(row) = rows.iter().find(|row| row.is_there()) {
        let bus = if args.fleet.nats.nats.is_some() { " --nats ..." } else { "" };
        let agent = args.fleet.agent.as_ref().map(|agent| format!(" --agent {agent}")).unwrap_or_default();
        output::remark("The images lie on the nodes, where each agent's runtime keeps them. To ask about one:");
        output::remark(&format!("  fleetpull explain {} --node {}{bus}{agent}", row.image, row.node));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bus::memory::MemoryBus;
    use clap::Parser as _;
    use contract::subject::Fleet;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::output::silent::Silent;

    #[tokio::test(start_paused = true)]
    async fn percentage_is_one_of_all_selected_nodes() {
        let line = ["fleetpull", "pull", "registry.example/a:1", "--all-nodes", "--parallelism", "50%"];
        let Command::Pull(args) = Cli::try_parse_from(line).expect("a command line").command else { panic!("another command") };
        let clock = Clock::simulated(Duration::from_secs(1_700_000_000));
        let (client, trace) =
            (FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock), CommandTrace::begin("fleetpull pull"));
        let job = Job::new(&args, &client, &trace);
        let node = |name: &str| name.parse::<NodeName>().expect("a name");
        let silent = |name| Silent { node: node(name), ago: Duration::ZERO, labels: None, known_for: Duration::from_secs(600) };
        for (late, expected) in [(vec![], 1), (vec![silent("n3"), silent("n4")], 2)] {
            let mut command = PullCommand::new(&job, vec![node("n1"), node("n2")], Late::new(late, None));
            let begun = std::iter::from_fn(|| command.plan.begin(&args.images)).count();
            assert_eq!(begun, expected);
        }
    }
}
