//! The used-up quotas for which pulls of the command wait, from the same source as `explain` and `pulls`.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::LocalBoxFuture;

use crate::commands::holds::Budgets;
use crate::fleet::FleetClient;
use crate::output::quota::SpentQuota;
use crate::output::tally::Tally;

/// How often nodes are asked for their budgets while they have pulls that were refused for too many requests.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The used-up quotas by registry.
pub(super) type SpentQuotas = BTreeMap<String, SpentQuota>;

/// When nodes are asked for their budgets.
#[derive(Default)]
pub(super) struct Quotas {
    /// The time of the next request, since the start of the command.
    next: Duration,
}

impl Quotas {
    /// Asks the nodes with pulls that were refused for too many requests, if it is time. `lasts` is the time since the command's start.
    pub(super) fn look<'a>(&mut self, client: &'a FleetClient, tally: &Tally, lasts: Duration) -> Option<LocalBoxFuture<'a, SpentQuotas>> {
        if lasts < self.next {
            return None;
        }
        let (nodes, registries) = tally.rate_limited();
        if nodes.is_empty() {
            return None;
        }
        self.next = lasts + LOOK_EVERY;
        Some(Box::pin(async move {
            let budgets = Budgets::of(client, &nodes).await;
            registries
                .into_iter()
                .filter_map(|registry| budgets.spent_quota(&registry).map(|spent| (registry, spent)))
                .collect::<SpentQuotas>()
        }))
    }
}
