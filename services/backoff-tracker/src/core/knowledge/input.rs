//! The inputs and effects of the core.

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::{AttemptFailure, AttemptReported, BackoffAnswer, CheckBackoff, LocalKey, ReportAttempt};
use contract::{AttemptId, FailureClass, NodeName, Stage, TraceContext};

use super::backoff_key::BackoffKeyId;
use super::clears::Clearing;
use super::lease::{LeaseName, RequestId};
use super::openings::EntryNews;
use super::report::Report;
use contract::Target;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A caller asks whether a pull may be attempted now, before it requests clearance. Answered by [`Reply::Checked`].
    Check(CheckBackoff),
    /// A whole pull has ended, for one of its callers. Answered by [`Reply::Reported`]. The same report again changes nothing.
    PullEnded(ReportAttempt),
    /// An operator clears a key as listed, or an image, on this node. Answered by [`Reply::Cleared`].
    Clear(String),
    /// A flight requests clearance, until [`Input::AttemptResolved`] with success or [`Input::Withdraw`].
    Request {
        /// Its id, which the caller never uses twice.
        request: RequestId,
        /// The key for the own rule.
        key: LocalKey,
        /// The image.
        target: Target,
    },
    /// The keys of all callers of the flight. The own rule refuses the request only while it refuses all of them.
    LocalKeys {
        /// The request.
        request: RequestId,
        /// One key.
        key: LocalKey,
        /// The others.
        other_keys: Vec<LocalKey>,
    },
    /// The flight does not request clearance any more.
    Withdraw(RequestId),
    /// The attempt of a request that has clearance. It begins with the clearance, unless [`Input::AttemptStarted`] says when. This changes
    /// nothing if the attempt is known.
    AttemptPlanned {
        /// The request.
        request: RequestId,
        /// Its id.
        attempt: AttemptId,
        /// Its span.
        trace: Option<TraceContext>,
    },
    /// The attempt has its permit and asks the registry from now on.
    AttemptStarted {
        /// The request.
        request: RequestId,
        /// Its id.
        attempt: AttemptId,
        /// Its span.
        trace: Option<TraceContext>,
    },
    /// A stage has answered the attempt, or the attempt has failed. The same again is ignored.
    AttemptResolved {
        /// The request.
        request: RequestId,
        /// The attempt.
        attempt: AttemptId,
        /// The outcome.
        outcome: Outcome,
    },
    /// A report of another node, or a stored one of this node, was received.
    ReportReceived {
        /// The report. Its reporter is the node under whose name the bus stored it.
        report: Arc<Report>,
        /// The age of the attempt's result, by the server's time.
        age: Duration,
    },
    /// The bus has stored this node's report on a key, in the order of the reports of [`Input::ReportReceived`].
    ReportStored(BackoffKeyId),
    /// The bus has answered a request of this node, in time or late. The round trip sets how long answers are waited for.
    BusAnswered {
        /// When the node asked.
        asked: Duration,
    },
    /// The bus answers [`Effect::AcquireLease`].
    Lease(LeaseName, LeaseAnswer),
    /// A node holds a lease.
    LeaseTaken {
        /// The lease.
        name: LeaseName,
        /// The node.
        holder: NodeName,
        /// For how long at most from now.
        left: Duration,
    },
    /// A lease was released or has expired.
    LeaseFreed(LeaseName),
    /// The registrar's digest.
    Fleet {
        /// Nodes alive.
        alive: usize,
        /// This node's place among them, from 0, if the registrar says.
        rank: Option<usize>,
        /// Nodes alive in this node's zone; none: all.
        in_zone: Option<usize>,
    },
    /// The bus has stored an operator's clear.
    Cleared {
        /// The image, normalised.
        image: Option<String>,
        /// The back-off keys.
        backoff_keys: Vec<BackoffKeyId>,
        /// How long ago that was.
        age: Duration,
    },
    /// An operator pauses sharing: other nodes' reports refuse nothing.
    Pause {
        /// The registry; none: all.
        registry: Option<String>,
        /// For how long from now; zero ends a pause.
        left: Duration,
        /// The operator.
        by: String,
    },
    /// Whether the node only observes, by its own setting or the fleet policy. Then other nodes' reports refuse nothing.
    Observe(bool),
    /// The bus cannot be reached.
    BusLost,
    /// The bus can be reached, but it grants no leases.
    NoLeases,
    /// The bus can be reached again.
    BusBack,
    /// All reports that the bus has stored were received.
    CaughtUp,
    /// Time has passed: see [`super::Knowledge::next_wake`].
    Tick,
}

/// The bus's answer to a request for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// This node holds the lease.
    Won,
    /// Another node holds it, for this long at most.
    Lost(Duration),
}

/// What an attempt has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This stage of the registry has answered. A blob's answer implies the manifest's.
    Reached(Stage),
    /// The attempt failed.
    Failed(AttemptFailure),
}

/// Something that the shell has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Answer an input that asks for a reply: one for each, in the order of the inputs.
    Reply(Reply),
    /// Answer the caller of a request: the decision has changed.
    Answer(RequestId, Decision),
    /// End the attempt of this request and report nothing of it: it hangs while others are answered, or it waits for a permit while others
    /// fail. Its result is ignored.
    Abandon(RequestId),
    /// Publish this report under this node's name, with the age of the attempt's result.
    Publish(Arc<Report>, Duration),
    /// Acquire a lease by compare-and-set. It expires after `DEADLINES.attempt_lease`.
    AcquireLease(LeaseName),
    /// Release a lease, or one that this node may have acquired without an answer: else nobody would act until its end.
    ReleaseLease(LeaseName),
    /// Record an event about an entry. Only one node of the fleet does.
    Announce(Box<EntryNews>),
}

/// The reply to an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Input::Check`].
    Checked(BackoffAnswer),
    /// To [`Input::PullEnded`].
    Reported(AttemptReported),
    /// To [`Input::Clear`].
    Cleared {
        /// What was cleared on this node, as text.
        cleared: Vec<String>,
        /// What other nodes have to clear; none: the text is neither a known key nor an image.
        clearing: Option<Clearing>,
    },
}

/// The decision on a request for clearance.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The attempt may be made.
    Granted {
        /// Which nodes the attempt is made for.
        duty: Duty,
        /// If the stage `until` has not answered by then, the attempt is to be ended and reported as failed; none: no limit.
        answer_by: Option<Duration>,
        /// The attempt keeps its lease until this stage has answered.
        until: Stage,
    },
    /// Refused until the next attempt is due.
    Refused(Refusal),
    /// Another node makes the attempt, or the bus has not answered yet.
    Wait,
}

/// Which nodes an attempt is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duty {
    /// For this node alone.
    #[default]
    None,
    /// For all nodes, because none has resolved the image lately.
    Lead,
    /// For all nodes that an entry refuses.
    Probe(BackoffKeyId),
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The class of the failure.
    pub class: FailureClass,
    /// `<reason>: <message>` as its reporter saw it.
    pub cause: String,
    /// The node that made the attempt.
    pub learned_by: NodeName,
    /// How long ago it failed.
    pub learned_ago: Duration,
    /// The span of the attempt that failed.
    pub trace: Option<TraceContext>,
    /// When the next attempt is due, on this node's clock.
    pub next_attempt: Duration,
    /// One other node alone reports the failure: it delays an attempt and refuses no node.
    pub unconfirmed: bool,
    /// The shared entry; none: this node's own rule refuses.
    pub entry: Option<BackoffKeyId>,
}
