//! Forgets a quota, as an operator asks.

use actix::{Context, Handler, MessageResult};
use actors::Ask;
use contract::messages::throttler::{ForgetQuota, QuotaForgotten};

use crate::actor::Throttler;
use crate::core::budget::Input;

impl Handler<Ask<ForgetQuota>> for Throttler {
    type Result = MessageResult<Ask<ForgetQuota>>;

    fn handle(&mut self, Ask(forget): Ask<ForgetQuota>, context: &mut Context<Self>) -> Self::Result {
        let ForgetQuota { owner, by } = forget.body;
        let now = self.clock.now();
        let was_known = self.sharing.as_ref().is_some_and(|sharing| sharing.core.knows_quota(now, &owner));
        if was_known {
            tracing::info!(owner, by, "a quota was forgotten");
            self.share(Input::ForgetQuota { owner }, context);
        }
        MessageResult(Ok(QuotaForgotten { was_known }))
    }
}
