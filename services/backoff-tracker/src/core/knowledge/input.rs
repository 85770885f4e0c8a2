//! What the core is told and what it wants done.

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::LocalKey;
use contract::{AttemptId, FailureClass, NodeName, Stage, TraceContext};

use super::backoff_key::BackoffKeyId;
use super::lease::{LeaseName, RequestId};
use super::openings::EntryNews;
use super::report::Report;
use super::target::Failure;
use contract::Target;

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// An image is wanted, until [`Input::AttemptResolved`] with success or [`Input::Withdraw`].
    Request {
        /// Chosen by the caller, never twice.
        request: RequestId,
        /// For the local rule.
        key: LocalKey,
        /// What is wanted.
        target: Target,
    },
    /// Those who want it now: the local rule holds the request only while it holds all their keys.
    LocalKeys {
        /// Which request.
        request: RequestId,
        /// One key.
        key: LocalKey,
        /// The others.
        other_keys: Vec<LocalKey>,
    },
    /// It is not wanted any more.
    Withdraw(RequestId),
    /// The attempt that [`Decision::Granted`] allowed has begun.
    AttemptPlanned {
        /// Of which request.
        request: RequestId,
        /// Its id.
        attempt: AttemptId,
        /// Its span.
        trace: Option<TraceContext>,
    },
    /// The attempt asks the registry from now on: what it did before was wait in a queue.
    AttemptStarted {
        /// Of which request.
        request: RequestId,
        /// Its id.
        attempt: AttemptId,
        /// Its span.
        trace: Option<TraceContext>,
    },
    /// A stage has answered the attempt, or it has failed. What is said twice is ignored.
    AttemptResolved {
        /// Of which request.
        request: RequestId,
        /// Which attempt.
        attempt: AttemptId,
        /// How.
        outcome: Outcome,
    },
    /// A report came, this old by the server's time.
    ReportReceived {
        /// The report. Its reporter is who the bus says wrote it.
        report: Arc<Report>,
        /// Age of what it tells.
        age: Duration,
    },
    /// The bus has stored what this node says of a back-off key: in its place among the reports of [`Input::ReportReceived`].
    ReportStored(BackoffKeyId),
    /// The bus has answered something that this node asked then, however late: how slow it is.
    BusAnswered {
        /// When it was asked.
        asked: Duration,
    },
    /// The bus answers [`Effect::AcquireLease`].
    Lease(LeaseName, LeaseAnswer),
    /// Somebody holds a lease, for this long at most.
    LeaseTaken {
        /// Which.
        name: LeaseName,
        /// Who.
        holder: NodeName,
        /// How long at most.
        left: Duration,
    },
    /// A lease was given back or ran out.
    LeaseFreed(LeaseName),
    /// The presence digest.
    Fleet {
        /// Nodes alive.
        alive: usize,
        /// This node's place among them, from 0, if the registrar says.
        rank: Option<usize>,
    },
    /// Nodes alive in the node's own zone, where that is not all of them. After [`Input::Fleet`].
    Zone(usize),
    /// An operator has cleared something, so long ago.
    Cleared {
        /// The image, normalised.
        image: Option<String>,
        /// Back-off keys by their ids.
        backoff_keys: Vec<BackoffKeyId>,
        /// How long ago.
        age: Duration,
    },
    /// Nobody is refused by what is shared, for so long from now; zero ends it.
    Pause {
        /// Of which registry; none: all.
        registry: Option<String>,
        /// How long.
        left: Duration,
        /// Who paused.
        by: String,
    },
    /// The fleet policy says whether nodes only observe: what is shared refuses nothing then.
    Observe(bool),
    /// The bus cannot be reached.
    BusGone,
    /// The bus is there, and says that it gives no leases.
    NoLeases,
    /// It can again.
    BusBack,
    /// All that it has stored was heard.
    CaughtUp,
    /// Time has passed: see [`super::Knowledge::next_wake`].
    Tick,
}

/// The answer to a question for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// It is this node's.
    Won,
    /// It is somebody else's for this long at most.
    Lost(Duration),
}

/// How an attempt went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This stage has answered; from the manifest on, the manifest too.
    Reached(Stage),
    /// It failed.
    Failed(Failure),
}

/// What shall be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A request stands differently.
    Answer(RequestId, Decision),
    /// End the attempt of this request without a word: it hangs, and others are answered; or it waits for a permit, and others have failed
    /// meanwhile. What it comes to is ignored.
    Abandon(RequestId),
    /// Write this under this node's name, and say that it was so this long ago.
    Publish(Arc<Report>, Duration),
    /// Ask for a lease by compare-and-set, to run out by itself after this long.
    AcquireLease(LeaseName, Duration),
    /// Give a lease back.
    ReleaseLease(LeaseName),
    /// Tell people what became of an entry: of all nodes this one alone does.
    Announce(Box<EntryNews>),
}

/// How a request stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Go ahead.
    Granted {
        /// On whose behalf.
        duty: Duty,
        /// Without an answer of `until` by then the attempt is to be ended and reported as failed; none: no haste.
        answer_by: Option<Duration>,
        /// What the attempt holds for all it holds until this stage has answered.
        until: Stage,
    },
    /// Not before the next attempt.
    Refused(Refusal),
    /// Somebody else is finding out, or the bus is being asked.
    Wait,
}

/// On whose behalf an attempt is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Only the node's own.
    None,
    /// For all that want an image nobody has resolved lately.
    Lead,
    /// For all that an entry holds.
    Probe(BackoffKeyId),
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of the failure.
    pub class: FailureClass,
    /// `<reason>: <message>` as its reporter saw it.
    pub cause: String,
    /// Who found out.
    pub learned_by: NodeName,
    /// How long ago.
    pub learned_ago: Duration,
    /// The span of the attempt that failed.
    pub trace: Option<TraceContext>,
    /// When somebody tries next, on this node's clock.
    pub next_attempt: Duration,
    /// One other node alone reports the failure: it delays an attempt and refuses nobody.
    pub unconfirmed: bool,
    /// The shared entry; none: it is this node's own rule.
    pub entry: Option<BackoffKeyId>,
}
