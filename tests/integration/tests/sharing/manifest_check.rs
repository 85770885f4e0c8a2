//! Side-channel checks alongside the pulls of a runtime that does not show the manifest, as a runtime behind CRI.

use std::sync::Arc;
use std::time::Duration;

use contract::TraceContext;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind};
use contract::messages::throttler::{RegistryLimit, ReportLimits};
use futures::future::BoxFuture;
use image::{Platform, Reference};
use integration::paused;
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};
use runtimes::{
    ImageRuntime, ImageStatus, InspectFailure, Probe, Progress, PullFailure, PullRequest, PulledImage, Route, RuntimeDescription,
};
use tokio::sync::Semaphore;

use super::script::{IMAGE, Node, Received, Script, clearance, not_found, wanted};

const OTHER: &str = "localhost:5000/other:v1";

/// A runtime that shows nothing, and a registry that gives as many answers as it has permits.
struct Opaque {
    runtime: ScriptedRuntime,
    registry: Arc<Semaphore>,
}

impl ImageRuntime for Opaque {
    fn image_status<'a: 'c, 'b: 'c, 'p: 'c, 'c>(
        &'a self,
        reference: &'b Reference,
        platform: Option<&'p Platform>,
    ) -> BoxFuture<'c, Result<Option<ImageStatus>, InspectFailure>> {
        self.runtime.image_status(reference, platform)
    }

    fn pull<'a: 'c, 'c>(&'a self, request: PullRequest, progress: Progress) -> BoxFuture<'c, Result<PulledImage, PullFailure>> {
        progress.maybe_resolved();
        self.runtime.pull(request, progress)
    }

    fn route<'a: 'c, 'b: 'c, 'p: 'c, 'c>(&'a self, reference: &'b Reference, platform: Option<&'p Platform>) -> BoxFuture<'c, Route> {
        self.runtime.route(reference, platform)
    }

    fn probe<'a: 'c, 'b: 'c, 't: 'c, 'c>(&'a self, reference: &'b Reference, trace: &'t TraceContext) -> BoxFuture<'c, Option<Probe>> {
        let asking = self.runtime.probe(reference, trace);
        Box::pin(async move {
            let answer = asking.await;
            self.registry.acquire().await.unwrap().forget();
            answer
        })
    }

    fn describe<'a: 'c, 'c>(&'a self) -> BoxFuture<'c, RuntimeDescription> {
        self.runtime.describe()
    }
}

struct World {
    runtime: ScriptedRuntime,
    script: Script,
    registry: Arc<Semaphore>,
    node: Node,
}

impl World {
    /// A node with two images whose pulls hang, with this route, and a registry that gives this many answers.
    fn new(route: &str, answers: usize) -> Self {
        let (runtime, script, registry) = (ScriptedRuntime::new(), Script::default(), Arc::new(Semaphore::new(answers)));
        for image in [IMAGE, OTHER] {
            let endpoints = vec!["localhost:5000".to_owned()];
            runtime.set_route(image, Route { hash: route.to_owned(), endpoints, ..Route::default() });
            runtime.set_probe(image, Probe { resolved: true, limits: vec![hub_limit()], ..Probe::default() });
            runtime.hold(image);
        }
        script.then(std::iter::repeat_n(clearance(), 50));
        let opaque = Opaque { runtime: runtime.clone(), registry: Arc::clone(&registry) };
        let node = Node::sharing_on(Arc::new(opaque), &runtime, &script, None, None);
        Self { runtime, script, registry, node }
    }

    async fn begin(&self, image: &str) {
        drop(self.node.begin(EnsureImage { image: image.to_owned(), ..wanted() }));
        let pulls = self.runtime.calls().iter().filter(|call| **call == ScriptedCall::Pull(image.to_owned())).count();
        self.runtime.wait_for(&ScriptedCall::Pull(image.to_owned()), pulls + 1).await;
    }

    fn heads(&self) -> usize {
        self.runtime.calls().into_iter().filter(|call| matches!(call, ScriptedCall::Probe(_))).count()
    }

    fn limits(&self) -> Vec<ReportLimits> {
        let limits = |received: Received| if let Received::Limits(report) = received { Some(report) } else { None };
        self.script.received().into_iter().filter_map(limits).collect()
    }

    fn begun(&self) -> usize {
        self.script.received().into_iter().filter(|received| matches!(received, Received::Begin(_))).count()
    }
}

fn hub_limit() -> RegistryLimit {
    RegistryLimit { limit: 100, remaining: 76, window_ms: 21_600_000, ..RegistryLimit::default() }
}

async fn pass(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

#[test]
fn a_registry_is_asked_for_limits_once_a_minute_during_pulls_that_do_not_end_at_once() {
    paused(async {
        let world = World::new("direct", 100);
        world.begin(IMAGE).await;
        pass(150).await;
        assert_eq!(world.heads(), 0, "it may refuse by itself");
        pass(100).await;
        assert_eq!((world.heads(), world.limits().len()), (1, 1));
        assert_eq!(world.limits()[0].limits, [hub_limit()]);
        world.begin(OTHER).await;
        pass(2_000).await;
        assert_eq!(world.heads(), 1, "it is the same budget");
        assert_eq!((world.script.resolutions().len(), world.begun()), (0, 0), "this shows nothing about the image");
        world.runtime.let_go(IMAGE);
        world.runtime.let_go(OTHER);
        pass(60_000).await;
        let before = world.heads();
        world.runtime.remove(IMAGE);
        world.begin(IMAGE).await;
        pass(300).await;
        assert_eq!(world.heads(), before + 1, "a minute later");
    });
}

#[test]
fn a_side_channel_check_that_panics_ends_neither_the_pull_nor_the_actor() {
    paused(async {
        let world = World::new("direct", 0);
        // Closing the semaphore makes the registry panic, because it unwraps its permits.
        world.registry.close();
        let asked = world.node.begin(wanted());
        world.runtime.wait_for(&ScriptedCall::Pull(IMAGE.to_owned()), 1).await;
        pass(8_000).await;
        assert!(world.heads() > 0, "the registry was asked during the pull");
        assert_eq!((world.limits().len(), world.script.resolutions().len()), (0, 0), "nothing is learned from it");
        world.runtime.let_go(IMAGE);
        assert_eq!(asked.await.unwrap().outcome, OutcomeKind::Pulled);
    });
}

#[test]
fn a_pull_that_is_refused_at_once_costs_the_registry_nothing_more() {
    paused(async {
        let world = World::new("direct", 100);
        world.runtime.answer_pulls(IMAGE, [Err(not_found())]);
        world.runtime.let_go(IMAGE);
        assert_eq!(world.node.begin(wanted()).await.unwrap().outcome, OutcomeKind::Failed);
        pass(60_000).await;
        assert_eq!(world.heads(), 0);
    });
}

#[test]
fn without_a_known_route_no_registry_is_asked() {
    paused(async {
        let world = World::new("unknown", 0);
        world.begin(IMAGE).await;
        pass(60_000).await;
        assert_eq!((world.heads(), world.begun()), (0, 0));
    });
}

#[test]
fn a_registry_that_answers_neither_pull_nor_head_is_reported_and_so_is_its_late_answer() {
    paused(async {
        let world = World::new("direct", 1);
        world.begin(IMAGE).await;
        pass(1_000).await;
        assert_eq!((world.heads(), world.limits().len()), (1, 1), "it is well");
        pass(5_500).await;
        assert_eq!((world.heads(), world.begun()), (2, 0), "now it is not, but may be slow");
        pass(1_000).await;
        assert_eq!((world.heads(), world.begun(), world.script.resolutions().len()), (2, 1, 0));
        world.begin(OTHER).await;
        pass(20_000).await;
        assert_eq!((world.heads(), world.begun()), (2, 1), "one pull asks for all of the node");
        world.registry.add_permits(1);
        pass(10).await;
        let resolutions = world.script.resolutions();
        assert_eq!(resolutions.iter().map(|resolution| resolution.failure.clone()).collect::<Vec<_>>(), [None]);
        assert!(!world.runtime.calls().contains(&ScriptedCall::GivenUp(IMAGE.to_owned())), "the runtime's pull is not ended on a guess");
    });
}

#[test]
fn a_pull_without_progress_from_a_registry_that_answers_is_not_reported() {
    paused(async {
        let world = World::new("direct", 100);
        world.begin(IMAGE).await;
        pass(50_000).await;
        assert_eq!((world.heads(), world.begun(), world.script.resolutions().len()), (2, 0, 0));
    });
}
