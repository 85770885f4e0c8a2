//! Callers: each asks one agent after the other, and records the answers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use clock::{Clock, Random};
use contract::TraceContext;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
use e2e::{ask_once, until_within};

use super::AgentSocket;

/// How many callers run at a time, for few pulls and for many. Most of them wait for a bus that is lost or for another node's probe.
const AT_ONCE_LEAST: usize = 8;
const AT_ONCE_MOST: usize = 40;
/// The longest time until the next answer of a fleet with faults.
const PROGRESS_WITHIN: Duration = Duration::from_secs(120);

/// One call to one agent.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) node: String,
    pub(super) image: String,
    /// The id of its trace, which no other call has.
    pub(super) trace_id: String,
    /// The position of the question in the order of all questions and answers.
    pub(super) asked: u64,
    /// The outcome, and the position of the answer; none: the connection ended without an answer.
    pub(super) answer: Option<(OutcomeKind, u64)>,
    /// The other node whose attempt failed, and the trace of that attempt, as the answer names them.
    pub(super) learned_by: Option<String>,
    pub(super) learned_trace_id: Option<String>,
    /// The message of the answer.
    pub(super) message: String,
    /// The times of the question, and of the answer or the end of the connection, since 1970.
    pub(super) lasted: (Duration, Duration),
}

/// All callers, and their progress.
pub(super) struct Callers {
    agent_sockets: Vec<AgentSocket>,
    images: Vec<String>,
    pulls: usize,
    answered: AtomicUsize,
    /// The next position in the order of all questions and answers.
    order: AtomicU64,
    clock: Clock,
}

impl Callers {
    pub(super) fn new(agent_sockets: Vec<AgentSocket>, images: Vec<String>, pulls: usize) -> Self {
        Self { agent_sockets, images, pulls, answered: AtomicUsize::new(0), order: AtomicU64::new(0), clock: Clock::host() }
    }

    /// Starts the callers, each on a thread of its own. They call until they have `pulls` answers in all.
    pub(super) fn begin<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        random: &mut Random,
    ) -> Vec<ScopedJoinHandle<'scope, Vec<Call>>> {
        let at_once = (self.pulls / 100).clamp(AT_ONCE_LEAST, AT_ONCE_MOST);
        (0..at_once).map(|_| Random::seeded(random.word())).map(|random| scope.spawn(move || self.call_all(random))).collect()
    }

    /// The number of answers so far.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    pub(super) fn are_done(&self) -> bool {
        self.answered() >= self.pulls
    }

    /// Waits until there are this many answers, or all of them.
    pub(super) fn until_answered(&self, wanted: usize) {
        let mut last = self.answered();
        while !self.are_done() && self.answered() < wanted {
            let next = || Some(self.answered()).filter(|answered| *answered > last);
            last = until_within(&format!("after {last} answers there is another"), PROGRESS_WITHIN, next);
        }
    }

    fn call_all(&self, mut random: Random) -> Vec<Call> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut calls = Vec::new();
        while !self.are_done() {
            let (agent_socket, image) =
                (&self.agent_sockets[below(&mut random, self.agent_sockets.len())], &self.images[below(&mut random, self.images.len())]);
            if let Some(call) = runtime.block_on(self.call(agent_socket, image, &mut random)) {
                self.answered.fetch_add(usize::from(call.answer.is_some()), Ordering::SeqCst);
                calls.push(call);
            }
        }
        calls
    }

    /// Makes one call; none: no agent listens.
    async fn call(&self, agent_socket: &AgentSocket, image: &str, random: &mut Random) -> Option<Call> {
        if tokio::net::UnixStream::connect(&agent_socket.socket).await.is_err() {
            // Give the thread that starts the agent time to run.
            tokio::task::yield_now().await;
            return None;
        }
        let trace = TraceContext::root(random);
        let began = self.clock.now().wall;
        let asked = self.order.fetch_add(1, Ordering::SeqCst);
        let body = EnsureImage { image: image.to_owned(), policy: Some(PullPolicy::Always), ..EnsureImage::default() };
        let answer = ask_once(&agent_socket.socket, &agent_socket.node, trace, &body).await.ok();
        let (position, lasted) = (answer.as_ref().map(|_| self.order.fetch_add(1, Ordering::SeqCst)), (began, self.clock.now().wall));
        let PullOutcome { outcome, learned_by, learned_trace_id, message, .. } = answer.unwrap_or_default();
        let (node, image, trace_id) = (agent_socket.node.clone(), image.to_owned(), trace.trace_id_hex());
        let answer = position.map(|at| (outcome, at));
        Some(Call { node, image, trace_id, asked, answer, learned_by, learned_trace_id, message, lasted })
    }
}

/// A number below `most`.
pub(super) fn below(random: &mut Random, most: usize) -> usize {
    usize::try_from(random.word() % most as u64).unwrap()
}
