//! Applies the fleet policy to the throttler.

use actix::fut::{ActorFutureExt as _, wrap_future};
use actix::{AsyncContext as _, Context, StreamHandler};
use actors::{Followed, PolicyFollower};

use crate::actor::Throttler;
use crate::core::budget::Input;

impl Throttler {
    /// Starts to follow the fleet policy. If the bus answers in time, the policy is known before the first permit is granted.
    pub(crate) fn follow_policy(&self, mut follower: PolicyFollower, context: &mut Context<Self>) {
        let first = async move {
            let followed = follower.first().await;
            (follower, followed)
        };
        context.wait(wrap_future(first).map(|(follower, followed), throttler: &mut Self, context: &mut Context<Self>| {
            if let Some(followed) = followed {
                throttler.apply(followed, context);
            }
            context.add_stream(follower.changes());
        }));
    }

    fn apply(&mut self, Followed { policy, revision }: Followed, context: &mut Context<Self>) {
        if let Some(sharing) = &mut self.sharing {
            sharing.knows_policy = true;
        }
        self.share(Input::Policy { policy, revision }, context);
    }
}

impl StreamHandler<Followed> for Throttler {
    fn handle(&mut self, followed: Followed, context: &mut Self::Context) {
        self.apply(followed, context);
    }

    /// The bus was drained. Does nothing, because the default would stop the actor.
    fn finished(&mut self, _: &mut Self::Context) {}
}
