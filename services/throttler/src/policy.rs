//! Applies the fleet policy to the throttler.

use actix::fut::{ActorFutureExt as _, wrap_future};
use actix::{AsyncContext as _, Context, Handler};
use actors::{Followed, PolicyFollower, forward};

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
            let actor = context.address().downgrade().recipient();
            if let Some(sharing) = &mut throttler.sharing {
                sharing.forwarded.push(forward("policy", follower.changes(), actor));
            }
        }));
    }

    fn apply(&mut self, Followed { policy, revision }: Followed, context: &mut Context<Self>) {
        if let Some(sharing) = &mut self.sharing {
            (sharing.observes, sharing.knows_policy) = (policy.observes(), true);
        }
        self.share(Input::Policy { policy, revision }, context);
    }
}

impl Handler<Followed> for Throttler {
    type Result = ();

    fn handle(&mut self, followed: Followed, context: &mut Self::Context) {
        self.apply(followed, context);
    }
}
