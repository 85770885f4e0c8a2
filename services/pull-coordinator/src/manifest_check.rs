//! Side-channel checks: a HEAD for the manifest during a pull, if the runtime shows little of the pull. The check shows the registry's
//! limits, and that the registry answers. A failed check is not reported, because the runtime's own request may succeed.

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

use crate::catch_panic::catch_panic;
use crate::outbound::Outbound;

/// A pull runs for this long before a check for limits: a registry that refuses has mostly done so by then, and is not asked twice.
const LIMITS_AFTER: Duration = Duration::from_millis(200);
/// A runtime that does not show the manifest has this long to show a layer before the check: longer than a healthy registry takes, and
/// half of the time after which the tracker counts the attempt as unanswered.
const HEAD_AFTER: Duration = Duration::from_secs(1);
/// As `HEAD_AFTER`, if no other node waits for this attempt: a pull whose layers are present shows none while it unpacks them.
const SILENT_AFTER: Duration = Duration::from_secs(5);
/// If the registry takes longer than this to answer, the tracker gets a report that the attempt began; it then waits as long again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// A node makes at most one check for each budget and purpose in this time.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// The most checks that are remembered: far more budgets than a node pulls from in a minute. Beyond it no check is made.
const QUESTIONS_MAX: usize = 1_024;

/// Why a check is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    Limits,
    Silence,
}

/// When this node last made a check, by purpose and budget.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentChecks(Rc<RefCell<BTreeMap<(Purpose, String), Duration>>>);

impl RecentChecks {
    /// Whether a check may be made now; if so, it counts as made.
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

/// Whether the registry has answered the HEAD with the manifest.
type Head = Shared<LocalBoxFuture<'static, bool>>;

/// A pull, and what a check during it needs.
#[derive(Clone)]
pub(crate) struct ManifestCheck {
    pub(crate) runtime: RuntimeRef,
    pub(crate) outbound: Outbound,
    pub(crate) clock: Clock,
    pub(crate) recent_checks: RecentChecks,
    pub(crate) request: PullRequest,
    pub(crate) permit: PermitId,
    pub(crate) progress: Progress,
    /// The budget, if the route to the registry is known; none: no check.
    pub(crate) owner: Option<String>,
    /// What is sent to the tracker if the registry does not answer.
    pub(crate) begin: Option<BeginAttempt>,
    /// The tracker knows of the attempt, and other nodes wait for its result.
    pub(crate) fleet_waits: bool,
}

impl ManifestCheck {
    /// Sends one HEAD when first awaited, and passes the registry's limits to the throttler.
    pub(crate) fn head(&self) -> Head {
        let Self { runtime, outbound, request, permit, .. } = self.clone();
        let asking = async move {
            let probe = catch_panic("manifest_check", runtime.probe(&request.reference, &request.trace)).await.flatten();
            let Some(Probe { resolved: true, limits, .. }) = probe else { return false };
            tasks::spawn_local("limits-report", outbound.limits(request.trace, ReportLimits { permit, limits }));
            true
        };
        asking.boxed_local().shared()
    }

    /// Makes a check for the registry's limits if the runtime does not show them and this node made none in the last minute.
    pub(crate) async fn learn_limits(self, head: Head) {
        tokio::time::sleep(LIMITS_AFTER).await;
        self.until_opaque().await;
        if self.progress.limits().is_none() && self.may_ask(Purpose::Limits) {
            head.await;
        }
    }

    /// Ends when the registry is known to have given the manifest.
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

    /// Ends when a check shows that the registry answers, if the runtime shows nothing and the tracker waits for the answer.
    async fn until_answered(&self, head: Head) {
        tokio::time::sleep(if self.fleet_waits { HEAD_AFTER } else { SILENT_AFTER }).await;
        self.until_opaque().await;
        let answers = if self.fleet_waits {
            head.await
        } else if self.may_ask(Purpose::Silence) {
            // A registry that answered an earlier HEAD may not answer now.
            let head = if head.peek().is_some() { self.head() } else { head };
            self.answers_late(head).await
        } else {
            false
        };
        if !answers {
            pending::<()>().await;
        }
    }

    /// Whether the registry answers after more than `ANSWERS_WITHIN`; by then the tracker has a report that the attempt began.
    async fn answers_late(&self, head: Head) -> bool {
        if tokio::time::timeout(ANSWERS_WITHIN, head.clone()).await.is_ok() {
            return false;
        }
        let Some(begin) = self.begin else { return false };
        self.outbound.begin(self.request.trace, begin).await;
        head.await
    }

    /// Returns once the tag counts as resolved. A runtime that does not show the manifest counts as such from the beginning.
    async fn until_opaque(&self) {
        while !self.progress.snapshot().resolved {
            tokio::time::sleep(HEAD_AFTER).await;
        }
    }

    fn may_ask(&self, purpose: Purpose) -> bool {
        self.owner.as_ref().is_some_and(|owner| self.recent_checks.may_ask(self.clock.now().monotonic, purpose, owner))
    }
}
