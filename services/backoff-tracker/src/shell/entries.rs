//! Counts of the fleet's entries, for the metrics of the agent that speaks for the fleet.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{Context, Handler, Message};
use contract::FailureClass;

use crate::actor::BackoffTracker;

/// Asks how many entries refuse all nodes. Sent only by the agent of this process.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "OpenEntries")]
pub struct CountEntries;

/// The answer to [`CountEntries`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenEntries {
    /// Open entries by registry and class.
    pub by_registry: BTreeMap<(String, FailureClass), u64>,
    /// How long the oldest has lasted since its first failure; zero: there is none.
    pub oldest: Duration,
}

impl Handler<CountEntries> for BackoffTracker {
    type Result = actix::MessageResult<CountEntries>;

    fn handle(&mut self, _: CountEntries, _: &mut Context<Self>) -> Self::Result {
        let now = self.clock.now().monotonic;
        let mut open = OpenEntries::default();
        for entry in self.core.entries(now).iter().filter(|entry| entry.refuses_all) {
            let key = (entry.backoff_key.view().registry.clone(), entry.backoff_key.class());
            *open.by_registry.entry(key).or_default() += 1;
            open.oldest = open.oldest.max(now.saturating_sub(entry.failing_since));
        }
        actix::MessageResult(open)
    }
}
