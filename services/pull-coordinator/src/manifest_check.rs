//! What a registry is asked beside a runtime that shows little of a pull: for the manifest's head, to learn of its limits and that it
//! answers at all. That this fails is no knowledge, as the runtime may fare better.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use clock::Clock;
use contract::PermitId;
use contract::messages::backoff_tracker::BeginAttempt;
use contract::messages::throttler::ReportLimits;
use futures::FutureExt as _;
use futures::future::{LocalBoxFuture, Shared, pending};
use runtimes::{Probe, Progress, PullRequest, RuntimeRef};

use crate::contained::contained;
use crate::outbound::Outbound;

/// So long a pull runs before a registry is asked for its limits: one that refuses has mostly done so by then, and is not asked twice.
const LIMITS_AFTER: Duration = Duration::from_millis(200);
/// So long a runtime that does not show the manifest's coming has to show a layer, before a registry is asked beside it: longer than
/// one that is well takes, and half of the time after which the tracker says that there is no answer.
const HEAD_AFTER: Duration = Duration::from_secs(1);
/// The same where nobody waits for word of the manifest: a pull whose layers are there already shows none while it unpacks them.
const SILENT_AFTER: Duration = Duration::from_secs(5);
/// So long a registry may take to answer before the tracker is told of the attempt, which then waits as long again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// The owner of a budget is asked for one purpose once in this time, by one node.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Questions remembered, for far more owners than a node pulls from in a minute; beyond it nothing more is asked.
const QUESTIONS_MAX: usize = 1_024;

/// What a registry is asked for beside a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    Limits,
    Silence,
}

/// What was asked lately beside pulls of this node, and on whose budget.
#[derive(Clone, Debug, Default)]
pub(crate) struct Questions(Rc<RefCell<BTreeMap<(Purpose, String), Duration>>>);

impl Questions {
    /// Whether it may be asked now; then it counts as asked.
    fn may_ask(&self, now: Duration, purpose: Purpose, owner: &str) -> bool {
        let mut asked = self.0.borrow_mut();
        asked.retain(|_, at| now < *at + ASKED_AGAIN_AFTER);
        let key = (purpose, owner.to_owned());
        let may = asked.len() < QUESTIONS_MAX && !asked.contains_key(&key);
        if may {
            asked.insert(key, now);
        }
        may
    }
}

/// Whether a registry has given the manifest's head.
type Head = Shared<LocalBoxFuture<'static, bool>>;

/// A pull, and what it takes to ask a registry beside it.
#[derive(Clone)]
pub(crate) struct ManifestCheck {
    pub(crate) runtime: RuntimeRef,
    pub(crate) outbound: Outbound,
    pub(crate) clock: Clock,
    pub(crate) questions: Questions,
    pub(crate) request: PullRequest,
    pub(crate) permit: PermitId,
    pub(crate) progress: Progress,
    /// On whose budget it is, where the way to the registry is known.
    pub(crate) owner: Option<String>,
    /// What the tracker is told when the registry is silent.
    pub(crate) begin: Option<BeginAttempt>,
    /// The tracker knows of the attempt, and the fleet waits for word of the manifest.
    pub(crate) in_haste: bool,
}

impl ManifestCheck {
    /// Asks once for the manifest's head when it is first awaited, and tells what the registry said of its limits.
    pub(crate) fn head(&self) -> Head {
        let Self { runtime, outbound, request, permit, .. } = self.clone();
        let asking = async move {
            let probe = contained("manifest_check", runtime.probe(&request.reference, &request.trace)).await.flatten();
            let Some(Probe { resolved: true, limits, .. }) = probe else { return false };
            tasks::spawn_local("limits-report", outbound.limits(request.trace, ReportLimits { permit, limits }));
            true
        };
        asking.boxed_local().shared()
    }

    /// Learns of the registry's limits where the runtime does not show them, unless this node asked lately.
    pub(crate) async fn learn_limits(self, head: Head) {
        tokio::time::sleep(LIMITS_AFTER).await;
        self.until_opaque().await;
        if self.progress.limits().is_none() && self.may_ask(Purpose::Limits) {
            head.await;
        }
    }

    /// Ends when it was seen that the registry has given the manifest.
    pub(crate) async fn until_seen(self, head: Head) {
        let (progress, permit, trace) = (self.progress.clone(), self.permit, self.request.trace);
        tokio::select! {
            biased;
            () = progress.when_resolved() => {}
            () = self.until_answered(head) => return,
        }
        if let Some(limits) = progress.limits() {
            tasks::spawn_local("limits-report", self.outbound.limits(trace, ReportLimits { permit, limits }));
        }
    }

    /// Ends when a registry has answered for a runtime that shows nothing, if the tracker waits for that.
    async fn until_answered(&self, head: Head) {
        tokio::time::sleep(if self.in_haste { HEAD_AFTER } else { SILENT_AFTER }).await;
        self.until_opaque().await;
        let answers = if self.in_haste {
            head.await
        } else if self.may_ask(Purpose::Silence) {
            // What answered seconds ago may be silent now.
            let head = if head.peek().is_some() { self.head() } else { head };
            self.answers_late(head).await
        } else {
            false
        };
        if !answers {
            pending::<()>().await;
        }
    }

    /// Whether a registry answers that was silent for so long that the tracker was told of the attempt.
    async fn answers_late(&self, head: Head) -> bool {
        if tokio::time::timeout(ANSWERS_WITHIN, head.clone()).await.is_ok() {
            return false;
        }
        let Some(begin) = self.begin else { return false };
        self.outbound.begin(self.request.trace, begin).await;
        head.await
    }

    /// Waits while the runtime is one that shows the manifest, which it does in its own time.
    async fn until_opaque(&self) {
        while !self.progress.snapshot().resolved {
            tokio::time::sleep(HEAD_AFTER).await;
        }
    }

    fn may_ask(&self, purpose: Purpose) -> bool {
        self.owner.as_ref().is_some_and(|owner| self.questions.may_ask(self.clock.now().monotonic, purpose, owner))
    }
}
