//! A request with policy Always never joins an attempt whose tag is already resolved, however the request comes in.

use std::sync::Arc;

use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullPolicy};
use futures::future::BoxFuture;
use image::{Platform, Reference};
use integration::{paused, until};
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};
use runtimes::{ImageRuntime, ImageStatus, InspectFailure, Progress, PullFailure, PullRequest, PulledImage, Route, RuntimeDescription};

use super::script::{IMAGE, Node, Script, clearance, standing, wanted};

/// Running pulls resolve their tag at the moment in which another caller looks up the route.
struct ResolvesMeanwhile(ScriptedRuntime);

impl ImageRuntime for ResolvesMeanwhile {
    fn image_status<'a: 'c, 'b: 'c, 'p: 'c, 'c>(
        &'a self,
        reference: &'b Reference,
        platform: Option<&'p Platform>,
    ) -> BoxFuture<'c, Result<Option<ImageStatus>, InspectFailure>> {
        self.0.image_status(reference, platform)
    }

    fn pull<'a: 'c, 'c>(&'a self, request: PullRequest, progress: Progress) -> BoxFuture<'c, Result<PulledImage, PullFailure>> {
        self.0.pull(request, progress)
    }

    fn route<'a: 'c, 'b: 'c, 'p: 'c, 'c>(&'a self, reference: &'b Reference, platform: Option<&'p Platform>) -> BoxFuture<'c, Route> {
        Box::pin(async move {
            self.0.resolve(IMAGE);
            self.0.route(reference, platform).await
        })
    }

    fn describe<'a: 'c, 'c>(&'a self) -> BoxFuture<'c, RuntimeDescription> {
        self.0.describe()
    }
}

#[test]
fn always_does_not_join_an_attempt_that_is_resolved_while_its_route_is_looked_for() {
    for (second, name) in [(standing(), "a standing pull"), (wanted(), "a plain pull")] {
        paused(async {
            let (runtime, script) = (ScriptedRuntime::new(), Script::default());
            runtime.hold(IMAGE);
            script.then([clearance(), clearance(), clearance(), clearance()]);
            let node = Node::sharing_on(Arc::new(ResolvesMeanwhile(runtime.clone())), &runtime, &script, None, None);
            let pull = ScriptedCall::Pull(IMAGE.to_owned());
            let first = node.begin(wanted());
            runtime.wait_for(&pull, 1).await;
            let second = node.begin(EnsureImage { policy: Some(PullPolicy::Always), ..second });
            until("the registry is asked again", || async { node.pulls() == 2 }).await;
            runtime.let_go(IMAGE);
            runtime.let_go(IMAGE);
            for (pull, of) in [(first, "the first"), (second, name)] {
                assert_eq!(pull.await.unwrap().outcome, OutcomeKind::Pulled, "{of}");
            }
        });
    }
}
