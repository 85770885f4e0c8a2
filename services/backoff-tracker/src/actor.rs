//! The actix shell: a mailbox, a clock and the core.

use std::time::Duration;

use actix::{Actor, Context, Handler, MessageResult, SpawnHandle};
use actors::{Ask, EventSender, MAILBOX_CAPACITY, PanicGuard, Sender};
use clock::{Clock, Random};
use contract::NodeName;
use contract::messages::backoff_tracker::{
    AttemptReported, BackoffAnswer, CheckBackoff, CountBackoffs, FleetNoted, ReportAttempt, SeeFleet,
};
use contract::messages::event_recorder::RecordEvent;
use metrics::Instruments;

use crate::core::BackoffPolicy;
use crate::core::knowledge::{Input, Knowledge, PlantedBug, Reply};
use crate::dating::Dating;
use crate::shell::{Requests, SharedBus, Sharing};
use crate::stored::ReadsReports;

/// The actor that answers whether a pull may be attempted.
pub struct BackoffTracker {
    pub(crate) core: Knowledge,
    pub(crate) clock: Dating,
    /// The node's own setting.
    pub(crate) share: Share,
    /// None: the node does not share, so its core gets no reports and no requests, and kubelet's rule alone decides.
    pub(crate) sharing: Option<Sharing>,
    pub(crate) requests: Requests,
    pub(crate) alarm: Option<(SpawnHandle, Duration)>,
    /// Where events are sent.
    pub(crate) events: Option<EventSender>,
    pub(crate) instruments: Instruments,
    _panic_guard: PanicGuard,
}

/// How a node shares failures (`fleet.share`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// It publishes reports, and other nodes' reports may refuse its pulls.
    #[default]
    Enforce,
    /// It publishes reports and counts what other nodes' reports would have refused, but refuses nothing because of them.
    Observe,
    /// It neither publishes nor reads reports.
    Off,
}

impl Share {
    /// The value in the settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
            Self::Off => "off",
        }
    }
}

/// The parts of a tracker that shares.
pub struct TrackerParts {
    /// The node's name.
    pub node: NodeName,
    /// The back-off of the node's own rule.
    pub policy: BackoffPolicy,
    /// Its clock.
    pub clock: Clock,
    /// Random numbers, for jitter.
    pub random: Random,
    /// Reports a panic of the actor.
    pub panic_guard: PanicGuard,
    /// How the node shares.
    pub share: Share,
    /// The fleet and its bus.
    pub shared: SharedBus,
    /// A planted bug, for tests only.
    pub planted_bug: Option<PlantedBug>,
}

impl BackoffTracker {
    /// A tracker that does not share: kubelet's rule alone.
    #[must_use]
    pub fn new(node: NodeName, policy: BackoffPolicy, clock: Clock, panic_guard: PanicGuard) -> Self {
        Self {
            core: Knowledge::new(node, policy),
            clock: Dating::by(clock),
            share: Share::Off,
            sharing: None,
            requests: Requests::default(),
            alarm: None,
            events: None,
            instruments: Instruments::default(),
            _panic_guard: panic_guard,
        }
    }

    /// Records what operators do as events of this node. Call it before the actor is started.
    #[must_use]
    pub fn recording(mut self, node: NodeName, record: Sender<RecordEvent>) -> Self {
        self.events = Some(EventSender::new(node, record));
        self
    }

    /// A tracker that shares with its fleet. With [`Share::Off`] it does not share.
    #[must_use]
    pub fn sharing(parts: TrackerParts) -> Self {
        let TrackerParts { node, policy, clock, random, panic_guard, share, shared, planted_bug } = parts;
        let mut tracker = Self::new(node.clone(), policy, clock.clone(), panic_guard);
        if share == Share::Off {
            return tracker;
        }
        if let Some(planted_bug) = planted_bug {
            tracker.core = tracker.core.with_planted_bug(planted_bug);
        }
        // The bus counts as lost until it has answered.
        tracker.core.step_all(tracker.clock.now().monotonic, [Input::Observe(share == Share::Observe), Input::BusLost]);
        Self { share, sharing: Some(Sharing::new(node, shared, random, clock)), ..tracker }
    }

    /// Counts for these metrics. Call it before the actor is started.
    #[must_use]
    pub fn counting(self, instruments: Instruments) -> Self {
        Self { instruments, ..self }
    }

    /// Reads reports with this function, so that many nodes of a simulation read each once. Call it before the actor is started.
    #[must_use]
    pub fn reading(mut self, read_report: ReadsReports) -> Self {
        if let Some(sharing) = &mut self.sharing {
            sharing.read_report = read_report;
        }
        self
    }
}

impl Actor for BackoffTracker {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
        self.begin_sharing(context);
        self.follow_policy(context);
    }
}

impl Handler<Ask<CheckBackoff>> for BackoffTracker {
    type Result = MessageResult<Ask<CheckBackoff>>;

    fn handle(&mut self, Ask(check): Ask<CheckBackoff>, context: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(match self.step(Input::Check(check.body), context) {
            Some(Reply::Checked(answer)) => answer,
            // Not reached: the core replies to each check.
            _ => BackoffAnswer::Allowed,
        }))
    }
}

impl Handler<Ask<ReportAttempt>> for BackoffTracker {
    type Result = MessageResult<Ask<ReportAttempt>>;

    fn handle(&mut self, Ask(report): Ask<ReportAttempt>, context: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(match self.step(Input::PullEnded(report.body), context) {
            Some(Reply::Reported(reported)) => reported,
            // Not reached: the core replies to each report.
            _ => AttemptReported::default(),
        }))
    }
}

impl Handler<Ask<CountBackoffs>> for BackoffTracker {
    type Result = MessageResult<Ask<CountBackoffs>>;

    fn handle(&mut self, _: Ask<CountBackoffs>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(self.counts()))
    }
}

impl Handler<Ask<SeeFleet>> for BackoffTracker {
    type Result = MessageResult<Ask<SeeFleet>>;

    fn handle(&mut self, Ask(seen): Ask<SeeFleet>, context: &mut Self::Context) -> Self::Result {
        self.see_fleet(&seen.body.0, context);
        MessageResult(Ok(FleetNoted {}))
    }
}
