//! Messages before a pull is over: its beginning, the limits that the registry stated with the manifest, and the size of the image.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::sync::Arc;
use std::time::Duration;

use contract::messages::backoff_tracker::Clearance;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind};
use contract::messages::throttler::{RegistryLimit, ReportLimits};
use contract::{FailureClass, Reason};
use futures::future::BoxFuture;
use image::{Platform, Reference};
use integration::{paused, pod, until};
use pull_coordinator::Extras;
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};
use runtimes::{
    ImageRuntime, ImageStatus, InspectFailure, LayerProgress, Probe, Progress, PullFailure, PullRequest, PulledImage, RuntimeDescription,
};

use super::script::{IMAGE, Node, Received, Script, clearance, lead, standing, wanted};

fn hub_limit() -> RegistryLimit {
    RegistryLimit { limit: 100, remaining: 76, window_ms: 21_600_000, ..RegistryLimit::default() }
}

fn limits(script: &Script) -> Vec<ReportLimits> {
    let limits = |received: Received| if let Received::Limits(report) = received { Some(report) } else { None };
    script.received().into_iter().filter_map(limits).collect()
}

fn begun(script: &Script) -> usize {
    script.received().into_iter().filter(|received| matches!(received, Received::Begin(_))).count()
}

fn probes(runtime: &ScriptedRuntime) -> usize {
    runtime.calls().into_iter().filter(|call| matches!(call, ScriptedCall::Probe(_))).count()
}

fn sized(progress: &Progress) {
    progress.layers(vec![LayerProgress { digest: "sha256:a".to_owned(), done_bytes: 100, total_bytes: 600 }]);
}

#[test]
fn the_tracker_receives_the_begin_of_an_attempt_and_the_throttler_the_limits_of_the_manifest() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        runtime.hold(IMAGE);
        script.then([lead()]);
        let node = Node::sharing(&runtime, &script, None);
        let pull = node.begin(wanted());
        runtime.wait_for(&ScriptedCall::Pull(IMAGE.to_owned()), 1).await;
        until("the begin is reported", || async { begun(&script) == 1 }).await;
        let asked = script.clearances_requested().remove(0);
        let begins =
            script.received().into_iter().filter_map(|received| if let Received::Begin(begin) = received { Some(begin) } else { None });
        assert_eq!(begins.map(|begin| (begin.clearance, begin.attempt)).collect::<Vec<_>>(), [(asked.clearance, asked.attempt)]);
        assert_eq!(limits(&script), []);
        runtime.resolve_within(IMAGE, vec![hub_limit()]);
        until("the limits are reported while the pull goes on", || async { limits(&script).len() == 1 }).await;
        assert_eq!(limits(&script)[0].limits, [hub_limit()]);
        runtime.let_go(IMAGE);
        assert_eq!(pull.await.unwrap().outcome, OutcomeKind::Pulled);
    });
}

#[test]
fn a_registry_without_limits_is_distinguished_from_a_runtime_that_shows_none() {
    for (shows, expected) in [(true, 1), (false, 0)] {
        paused(async {
            let (runtime, script) = (ScriptedRuntime::new(), Script::default());
            runtime.hold(IMAGE);
            script.then([clearance()]);
            let node = Node::sharing(&runtime, &script, None);
            let pull = node.begin(wanted());
            runtime.wait_for(&ScriptedCall::Pull(IMAGE.to_owned()), 1).await;
            runtime.show(IMAGE, |progress| {
                if shows {
                    progress.set_limits(Vec::new());
                }
                progress.resolved(Vec::new());
            });
            until("the manifest is reported", || async { script.resolutions().len() == 1 }).await;
            runtime.let_go(IMAGE);
            pull.await.unwrap();
            assert_eq!(limits(&script).len(), expected);
        });
    }
}

/// Runs a leader's pull on a runtime that shows nothing, with this answer of the registry to a HEAD.
fn behind_a_silent_runtime(probe: Option<Probe>) -> (Script, ScriptedRuntime) {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        runtime.hold(IMAGE);
        probe.into_iter().for_each(|probe| runtime.set_probe(IMAGE, probe));
        script.then([lead()]);
        let node = Node::sharing(&runtime, &script, None);
        let pull = node.begin(wanted());
        runtime.wait_for(&ScriptedCall::Pull(IMAGE.to_owned()), 1).await;
        runtime.show(IMAGE, Progress::maybe_resolved);
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert_eq!((probes(&runtime), script.resolutions()), (0, vec![]), "the runtime has its time first");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!pull.is_finished(), "a runtime's pull is not ended on a guess");
        assert_eq!(probes(&runtime), 1, "one HEAD");
        (script, runtime)
    })
}

#[test]
fn a_head_replaces_progress_of_a_runtime_that_does_not_show_the_manifest() {
    let probe = Probe { resolved: true, limits: vec![hub_limit()], ..Probe::default() };
    let (script, _) = behind_a_silent_runtime(Some(probe));
    assert_eq!((script.resolutions().len(), script.resolutions()[0].failure.clone()), (1, None));
    assert_eq!(limits(&script).remove(0).limits, [hub_limit()]);
}

#[test]
fn a_head_that_fails_is_not_reported() {
    let refused = Probe { retry_after: Some(Duration::from_secs(60)), limits: vec![hub_limit()], ..Probe::default() };
    for probe in [Some(refused), None] {
        let (script, _) = behind_a_silent_runtime(probe);
        assert_eq!((script.resolutions(), limits(&script)), (vec![], vec![]));
    }
}

#[test]
fn a_node_that_does_not_lead_sends_no_head() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        runtime.hold(IMAGE);
        script.then([clearance()]);
        let node = Node::sharing(&runtime, &script, None);
        let _pull = node.begin(wanted());
        runtime.wait_for(&ScriptedCall::Pull(IMAGE.to_owned()), 1).await;
        runtime.show(IMAGE, Progress::maybe_resolved);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(probes(&runtime), 0);
    });
}

/// A runtime that does not show the manifest, as a runtime behind CRI.
struct Unseen(ScriptedRuntime);

impl ImageRuntime for Unseen {
    fn image_status<'a: 'c, 'b: 'c, 'p: 'c, 'c>(
        &'a self,
        reference: &'b Reference,
        platform: Option<&'p Platform>,
    ) -> BoxFuture<'c, Result<Option<ImageStatus>, InspectFailure>> {
        self.0.image_status(reference, platform)
    }

    fn pull<'a: 'c, 'c>(&'a self, request: PullRequest, progress: Progress) -> BoxFuture<'c, Result<PulledImage, PullFailure>> {
        progress.maybe_resolved();
        self.0.pull(request, progress)
    }

    fn describe<'a: 'c, 'c>(&'a self) -> BoxFuture<'c, RuntimeDescription> {
        self.0.describe()
    }
}

#[test]
fn without_progress_of_the_manifest_silence_counts_only_for_a_leader() {
    for (answer, expected) in [(clearance(), 0), (lead(), 1)] {
        paused(async {
            let (runtime, script) = (ScriptedRuntime::new(), Script::default());
            runtime.hold(IMAGE);
            script.then([answer]);
            let node = Node::sharing_on(Arc::new(Unseen(runtime.clone())), &runtime, &script, None, None);
            let pull = node.begin(wanted());
            runtime.wait_for(&ScriptedCall::Pull(IMAGE.to_owned()), 1).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(begun(&script), expected);
            script.answer(&Clearance::Abandoned);
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert!(!runtime.calls().contains(&ScriptedCall::GivenUp(IMAGE.to_owned())), "it may be downloading for long");
            runtime.let_go(IMAGE);
            assert_eq!((pull.await.unwrap().outcome, node.pulls()), (OutcomeKind::Pulled, 1));
        });
    }
}

/// The runtime is asked for the free bytes, unless the pull shows them.
#[test]
fn a_pull_that_no_pod_asked_for_ends_when_it_would_fill_the_disk_itself() {
    for (asked, shown) in [(1_400, None), (9_999, Some(1_400))] {
        paused(async {
            let (runtime, script) = (ScriptedRuntime::new(), Script::default());
            runtime.set_free_bytes(Some(asked));
            runtime.hold(IMAGE);
            let node = Node::start(&runtime, &script, |_, _| Extras { keep_free: Some(1_000), ..Extras::default() });
            let pull = node.begin(wanted());
            runtime.wait_for(&ScriptedCall::Pull(IMAGE.to_owned()), 1).await;
            runtime.show(IMAGE, |progress| progress.set_free_bytes(shown));
            runtime.show(IMAGE, sized);
            let outcome = pull.await.unwrap();
            assert_eq!((outcome.reason, outcome.class), (Some(Reason::ErrImagePull), Some(FailureClass::NodeLocal)), "{shown:?}");
            assert_eq!(
                outcome.message,
                "no pod asked for it, and with 1 MiB still to come and 0 MiB free the node would be 1 MiB short of \
                 pull.keep_free = 1 MiB; remove images that nobody needs, or lower pull.keep_free"
            );
            assert!(runtime.calls().contains(&ScriptedCall::GivenUp(IMAGE.to_owned())));
        });
    }
}

#[test]
fn a_pull_that_fits_or_that_a_pod_waits_for_goes_on() {
    for (free, joins) in [(Some(1_500), false), (None, false), (Some(1_400), true)] {
        paused(async {
            let (runtime, script) = (ScriptedRuntime::new(), Script::default());
            runtime.set_free_bytes(free);
            runtime.hold(IMAGE);
            let node = Node::start(&runtime, &script, |_, _| Extras { keep_free: Some(1_000), ..Extras::default() });
            let pull = node.begin(wanted());
            runtime.wait_for(&ScriptedCall::Pull(IMAGE.to_owned()), 1).await;
            let pod = joins.then(|| node.begin(EnsureImage { pod: Some(pod("web")), ..wanted() }));
            tokio::time::sleep(Duration::from_millis(1)).await;
            runtime.show(IMAGE, sized);
            tokio::time::sleep(Duration::from_millis(1)).await;
            runtime.let_go(IMAGE);
            assert_eq!(pull.await.unwrap().outcome, OutcomeKind::Pulled, "{free:?} {joins}");
            if let Some(pod) = pod {
                assert_eq!(pod.await.unwrap().outcome, OutcomeKind::Pulled);
            }
        });
    }
}

/// The registry is healthy, so the fleet would grant the next attempt at once, again and again.
#[test]
fn a_standing_pull_that_would_fill_the_disk_does_not_ask_the_registry_over_and_over() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        runtime.set_free_bytes(Some(1_400));
        runtime.hold(IMAGE);
        script.then(std::iter::repeat_n(clearance(), 50));
        let node = Node::sharing_with(&runtime, &script, None, Some(1_000));
        let _caller = node.begin(standing());
        let pulling = runtime.clone();
        let shows = actix::spawn(async move {
            loop {
                pulling.show(IMAGE, sized);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        tokio::time::sleep(Duration::from_secs(30)).await;
        shows.abort();
        assert!((1..=4).contains(&node.pulls()), "{} pulls", node.pulls());
        assert!(script.resolutions().iter().all(|resolution| resolution.failure.is_none()), "this concerns no other node");
    });
}
