//! A node for the tests, and the decisions that it gets.

use std::sync::Arc;
use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::core::knowledge::{
    AttemptFailure, BackoffKey, Decision, Effect, FailureDetails, Finding, Input, KeyInView, Knowledge, LeaseAnswer, Outcome, Refusal,
    Reply, Report, RequestId, Target, View,
};
use clock::Random;
use contract::messages::backoff_tracker::{AttemptReported, BackoffAnswer, CheckBackoff, LocalKey, ReportAttempt};
use contract::{AttemptId, FailureClass};

pub(crate) const REQUEST: RequestId = RequestId(7);

/// A node's core, with a bus and time that the test controls.
pub(crate) struct Node {
    pub(crate) core: Knowledge,
    pub(crate) random: Random,
    pub(crate) now: Duration,
    /// The last decision on a request.
    pub(crate) decision: Option<Decision>,
    /// The last reply to an input.
    pub(crate) reply: Option<Reply>,
    pub(crate) published: Vec<Arc<Report>>,
    /// The age of each published report.
    pub(crate) ages: Vec<Duration>,
    /// Whether the bus grants every lease, or answers nothing.
    pub(crate) bus_answers: bool,
    /// How often an attempt was abandoned, or clearance lapsed.
    pub(crate) abandoned: usize,
}

impl Node {
    pub(crate) fn of(alive: usize) -> Self {
        let mut core = Knowledge::new("me".parse().unwrap(), BackoffPolicy::default());
        core.step(Duration::ZERO, Input::Fleet { alive, rank: Some(0), in_zone: None });
        let (random, now) = (Random::seeded(1), Duration::ZERO);
        Self { core, random, now, decision: None, reply: None, published: vec![], ages: vec![], bus_answers: true, abandoned: 0 }
    }

    pub(crate) fn give(&mut self, input: Input) {
        let mut asked = Vec::new();
        for effect in self.core.step(self.now, input) {
            match effect {
                Effect::Answer(_, decision) => self.decision = Some(decision),
                Effect::Reply(reply) => self.reply = Some(reply),
                Effect::Publish(report, age) => {
                    self.published.push(report);
                    self.ages.push(age);
                }
                Effect::AcquireLease(name) => asked.push(name),
                Effect::Abandon(_) => self.abandoned += 1,
                Effect::ReleaseLease(_) | Effect::Announce(_) => {}
            }
        }
        if !self.bus_answers {
            return;
        }
        for name in asked {
            self.give(Input::Lease(name, LeaseAnswer::Won));
        }
    }

    /// Lets time pass, with a tick each time that the core is due.
    pub(crate) fn until(&mut self, seconds: f64) {
        let end = Duration::from_secs_f64(seconds);
        while let Some(wake) = self.core.next_wake().filter(|wake| *wake <= end) {
            self.now = wake.max(self.now);
            self.give(Input::Tick);
        }
        self.now = end;
    }

    /// The reply to a check.
    pub(crate) fn check(&mut self, key: LocalKey, peek: bool) -> BackoffAnswer {
        self.give(Input::Check(CheckBackoff { key, peek, target: Some(target()) }));
        match self.reply.take() {
            Some(Reply::Checked(answer)) => answer,
            other => panic!("not checked but {other:?}"),
        }
    }

    /// The reply to the report of a whole pull.
    pub(crate) fn report(&mut self, report: ReportAttempt) -> AttemptReported {
        self.give(Input::PullEnded(report));
        match self.reply.take() {
            Some(Reply::Reported(reported)) => reported,
            other => panic!("not reported but {other:?}"),
        }
    }

    pub(crate) fn ask(&mut self) {
        self.give(Input::Request { request: REQUEST, key: key("r/a:1"), target: target() });
    }

    pub(crate) fn receive(&mut self, reporter: &str, in_view: KeyInView, finding: Finding) {
        self.receive_late(reporter, in_view, finding, Duration::ZERO);
    }

    /// Receives a report of this age.
    pub(crate) fn receive_late(&mut self, reporter: &str, in_view: KeyInView, finding: Finding, age: Duration) {
        let report = Report {
            reporter: reporter.parse().unwrap(),
            backoff_key: Arc::new(BackoffKey::new(view(), in_view)),
            attempt: AttemptId::random(&mut self.random),
            trace: None,
            finding,
        };
        self.give(Input::ReportReceived { report: Arc::new(report), age });
    }

    pub(crate) fn begin(&mut self) -> AttemptId {
        let attempt = AttemptId::random(&mut self.random);
        self.give(Input::AttemptPlanned { request: REQUEST, attempt, trace: None });
        attempt
    }

    pub(crate) fn end(&mut self, attempt: AttemptId, outcome: Outcome) {
        self.give(Input::AttemptResolved { request: REQUEST, attempt, outcome });
    }

    pub(crate) fn fail(&mut self, class: FailureClass) {
        let attempt = self.begin();
        self.end(attempt, Outcome::Failed(failure(class)));
    }

    pub(crate) fn held(&self) -> &Refusal {
        match self.decision.as_ref() {
            Some(Decision::Refused(held)) => held,
            other => panic!("not held but {other:?}"),
        }
    }

    pub(crate) fn is_clear(&self) -> bool {
        matches!(self.decision, Some(Decision::Granted { .. }))
    }
}

pub(crate) fn view() -> View {
    View { scope: "default".to_owned(), registry: "r".to_owned(), route: "direct".to_owned(), boot: String::new() }
}

pub(crate) fn target() -> Target {
    Target {
        view: view(),
        endpoint: "r:443".to_owned(),
        zone: "z".to_owned(),
        repository: "a".to_owned(),
        reference: "r/a:1".to_owned(),
        platform: "linux/amd64".to_owned(),
        scope: "anonymous".to_owned(),
        budget_owner: "o".to_owned(),
        ..Target::default()
    }
}

pub(crate) fn key(image: &str) -> LocalKey {
    LocalKey { pod: None, image: image.to_owned() }
}

pub(crate) fn endpoint() -> KeyInView {
    KeyInView::Endpoint { endpoint: "r:443".to_owned(), zone: "z".to_owned() }
}

pub(crate) fn image() -> KeyInView {
    KeyInView::Reference { reference: "r/a:1".to_owned(), scope: "anonymous".to_owned(), mirrored: false }
}

pub(crate) fn failed(step: u32) -> Finding {
    failed_for(step, Duration::ZERO)
}

/// A failure of a node that has had nothing but failures for this long.
pub(crate) fn failed_for(step: u32, failing_for: Duration) -> Finding {
    Finding::Failed(FailureDetails {
        message: "ErrImagePull: no".to_owned(),
        step,
        repository: "a".to_owned(),
        failing_for,
        ..FailureDetails::default()
    })
}

pub(crate) fn limited(seconds: u64) -> Finding {
    let retry_after = Some(Duration::from_secs(seconds));
    Finding::Failed(FailureDetails { message: "429".to_owned(), step: 1, retry_after, ..FailureDetails::default() })
}

pub(crate) fn failure(class: FailureClass) -> AttemptFailure {
    AttemptFailure { class, cause: "ErrImagePull: no".to_owned(), authoritative: true, ..AttemptFailure::default() }
}
