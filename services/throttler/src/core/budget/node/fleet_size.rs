//! How many nodes of the fleet are alive and how many are silent, for the shares of the budgets.

use contract::DEADLINES;
use std::time::Duration;

use super::Budgets;

impl Budgets {
    pub(super) fn fleet(&mut self, now: Duration, alive: u64) {
        while self.alive.front().is_some_and(|(at, _)| *at + DEADLINES.known_for <= now) {
            self.alive.pop_front();
        }
        while self.alive.back().is_some_and(|(_, less)| *less <= alive) {
            self.alive.pop_back();
        }
        self.alive.push_back((now, alive));
        let (silent, known) = self.silent();
        for budget in self.budgets.values_mut() {
            budget.client.membership.alive = alive;
            if let Some(lead) = &mut budget.lead {
                lead.core.reserve(silent, known);
            }
        }
    }

    /// How many of the nodes known within `DEADLINES.known_for` are silent, and how many are known; both 0 before the first report.
    pub(super) fn silent(&self) -> (u64, u64) {
        let known = self.alive.front().map_or(0, |(_, most)| *most);
        let alive = self.alive.back().map_or(0, |(_, alive)| *alive);
        (known.saturating_sub(alive), known)
    }
}
