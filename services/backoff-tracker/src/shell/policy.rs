//! The tracker follows the fleet policy.

use std::sync::Arc;

use actix::{AsyncContext as _, Context, StreamHandler};
use actors::{Followed, PolicyFollower};
use clock::Random;

use crate::actor::{BackoffTracker, Share};
use crate::core::knowledge::Input;

impl BackoffTracker {
    /// Begins to follow the fleet policy, once the fleet's knowledge is read.
    pub(crate) fn follow_policy(&mut self, context: &mut Context<Self>) {
        let Some(sharing) = &mut self.sharing else { return };
        let (bus, fleet) = (Arc::clone(&sharing.shared.bus), sharing.shared.fleet.clone());
        // The throttler of this node logs changes of the policy.
        let follower = PolicyFollower::new(bus, fleet, Random::seeded(sharing.random.word())).quiet();
        context.add_stream(follower.changes());
    }

    /// How the node shares: its own setting, but `observe` instead of `enforce` if the fleet policy says so.
    pub(super) fn takes_part(&self) -> Share {
        if self.core.observes() { Share::Observe } else { self.share }
    }
}

impl StreamHandler<Followed> for BackoffTracker {
    fn handle(&mut self, followed: Followed, context: &mut Self::Context) {
        self.step(Input::Observe(self.share == Share::Observe || followed.policy.observes()), context);
    }

    /// The bus was drained. The node continues.
    fn finished(&mut self, _: &mut Self::Context) {}
}
