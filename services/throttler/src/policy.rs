//! The throttler goes by the fleet policy.

use actix::fut::{ActorFutureExt as _, wrap_future};
use actix::{AsyncContext as _, Context, StreamHandler};
use actors::{Followed, PolicyFollower};

use crate::actor::Throttler;
use crate::core::budget::Input;

impl Throttler {
    /// Begins to follow the fleet policy: the first permit is given by what it says, if the bus answers in time.
    pub(crate) fn follow_policy(&self, mut follower: PolicyFollower, context: &mut Context<Self>) {
        let first = async move {
            let followed = follower.first().await;
            (follower, followed)
        };
        context.wait(wrap_future(first).map(|(follower, followed), throttler: &mut Self, context: &mut Context<Self>| {
            if let Some(followed) = followed {
                throttler.go_by(followed, context);
            }
            context.add_stream(follower.changes());
        }));
    }

    fn go_by(&mut self, Followed { policy, revision }: Followed, context: &mut Context<Self>) {
        if let Some(sharing) = &mut self.sharing {
            (sharing.observes, sharing.knows_policy) = (policy.observes(), true);
        }
        self.share(Input::Policy { policy, revision }, context);
    }
}

impl StreamHandler<Followed> for Throttler {
    fn handle(&mut self, followed: Followed, context: &mut Self::Context) {
        self.go_by(followed, context);
    }

    /// The bus was drained. The node goes on.
    fn finished(&mut self, _: &mut Self::Context) {}
}
