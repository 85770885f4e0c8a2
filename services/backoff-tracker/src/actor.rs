//! The actix shell: a mailbox, a clock and the core.

use std::time::Duration;

use actix::{Actor, Context, Handler, MessageResult, SpawnHandle};
use actors::{Ask, MAILBOX_CAPACITY, PanicGuard, Sender};
use clock::{Clock, Random};
use contract::NodeName;
use contract::messages::backoff_tracker::{CheckBackoff, CountBackoffs, FleetNoted, ReportAttempt, SeeFleet};
use contract::messages::event_recorder::RecordEvent;
use metrics::Instruments;

use crate::core::knowledge::{Input, Knowledge, PlantedBug};
use crate::core::{BackoffPolicy, Tracker};
use crate::dating::Dating;
use crate::reader::Reader;
use crate::shell::{Recording, Requests, SharedBus, Sharing};

/// The actor that answers whether an image may be tried.
pub struct BackoffTracker {
    pub(crate) core: Core,
    pub(crate) clock: Dating,
    /// By the node's own settings.
    pub(crate) share: Share,
    pub(crate) sharing: Option<Sharing>,
    pub(crate) requests: Requests,
    pub(crate) alarm: Option<(SpawnHandle, Duration)>,
    pub(crate) recording: Option<Recording>,
    pub(crate) instruments: Instruments,
    _panic_guard: PanicGuard,
}

/// What the actor goes by.
pub(crate) enum Core {
    /// Kubelet's rule, and nobody to share with.
    Alone(Tracker),
    /// What the fleet knows, and kubelet's rule for the rest.
    Sharing(Box<Knowledge>),
}

/// How a node takes part in what the fleet knows (`fleet.share`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// It says what it learns, and goes by what others say.
    #[default]
    Enforce,
    /// It says what it learns, and counts what it would have refused by what others say, but refuses nothing.
    Observe,
    /// It neither says nor hears anything.
    Off,
}

impl Share {
    /// As it is set.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
            Self::Off => "off",
        }
    }
}

/// What a tracker that shares is made of.
pub struct TrackerParts {
    /// The node's name.
    pub node: NodeName,
    /// How long a failed image is left alone by the node's own rule.
    pub policy: BackoffPolicy,
    /// Its clock.
    pub clock: Clock,
    /// Chance, for spreading.
    pub random: Random,
    /// Tells of its death.
    pub panic_guard: PanicGuard,
    /// How it takes part.
    pub share: Share,
    /// With whom.
    pub shared: SharedBus,
    /// A rule broken on purpose, for tests of tests.
    pub planted_bug: Option<PlantedBug>,
}

impl BackoffTracker {
    /// Ready to be started, on its own: kubelet's rule, and nobody to share with.
    #[must_use]
    pub fn new(policy: BackoffPolicy, clock: Clock, panic_guard: PanicGuard) -> Self {
        let (core, share, clock) = (Core::Alone(Tracker::new(policy)), Share::Off, Dating::by(clock));
        Self {
            core,
            clock,
            share,
            sharing: None,
            requests: Requests::default(),
            alarm: None,
            recording: None,
            instruments: Instruments::default(),
            _panic_guard: panic_guard,
        }
    }

    /// What operators do to it becomes an event of this node. To be said before it is started.
    #[must_use]
    pub fn recording(mut self, node: NodeName, record: Sender<RecordEvent>) -> Self {
        self.recording = Some(Recording::new(node, record));
        self
    }

    /// Ready to be started, as one of a fleet. Sharing [`Share::Off`] it is on its own.
    #[must_use]
    pub fn sharing(parts: TrackerParts) -> Self {
        let TrackerParts { node, policy, clock, random, panic_guard, share, shared, planted_bug } = parts;
        if share == Share::Off {
            return Self::new(policy, clock, panic_guard);
        }
        let sharing = Some(Sharing::new(node.clone(), shared, random, clock.clone()));
        let (mut knowledge, clock) = (Knowledge::new(node, policy), Dating::by(clock));
        if share == Share::Observe {
            knowledge = knowledge.observing();
        }
        if let Some(planted_bug) = planted_bug {
            knowledge = knowledge.with_planted_bug(planted_bug);
        }
        // Until the bus has answered.
        knowledge.step(clock.now().monotonic, Input::BusGone);
        let core = Core::Sharing(Box::new(knowledge));
        Self {
            core,
            clock,
            share,
            sharing,
            requests: Requests::default(),
            alarm: None,
            recording: None,
            instruments: Instruments::default(),
            _panic_guard: panic_guard,
        }
    }

    /// Counts for these metrics. To be said before it is started.
    #[must_use]
    pub fn counting(self, instruments: Instruments) -> Self {
        Self { instruments, ..self }
    }

    /// Reads what others say with this. To be said before it is started.
    #[must_use]
    pub fn reading(mut self, reader: Reader) -> Self {
        if let Some(sharing) = &mut self.sharing {
            sharing.reader = reader;
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

    fn handle(&mut self, Ask(check): Ask<CheckBackoff>, _: &mut Self::Context) -> Self::Result {
        let now = self.clock.now().monotonic;
        MessageResult(Ok(match &mut self.core {
            Core::Alone(tracker) => tracker.check(now, &check.body),
            Core::Sharing(knowledge) => knowledge.check(now, check.body),
        }))
    }
}

impl Handler<Ask<ReportAttempt>> for BackoffTracker {
    type Result = MessageResult<Ask<ReportAttempt>>;

    fn handle(&mut self, Ask(report): Ask<ReportAttempt>, context: &mut Self::Context) -> Self::Result {
        let now = self.clock.now().monotonic;
        MessageResult(Ok(match &mut self.core {
            Core::Alone(tracker) => tracker.report(now, report.body),
            Core::Sharing(knowledge) => {
                let (reported, effects) = knowledge.report(now, report.body);
                self.carry_out(now, effects, context);
                self.set_alarm(context);
                reported
            }
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
