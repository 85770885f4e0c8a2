//! Finds the budgets and quotas that delay pulls, from each budget's leader. Used by `status`, `explain`, `pulls`, `backoff list`,
//! `backoff clear`, `pull --dry-run` and the screen of `pull --wait`.

use std::collections::{BTreeMap, BTreeSet};

use contract::messages::backoff_tracker::EntryKind;
use contract::messages::pull_coordinator::{BudgetHold, Explanation};
use contract::messages::throttler::{BudgetState, ListBudgets, RegistryLimit, all_used_up};
use contract::{NodeName, registry_of_budget};
use serde::Serialize;

use super::budget::{Budget, Merger};
use crate::fleet::FleetClient;
use crate::output::known_failures::Known;
use crate::output::quota::{self, SpentQuota};
use crate::output::units::{self, SOON_MS};

/// The known budgets, with their leaders' values.
#[derive(Default)]
pub(super) struct Budgets {
    by_owner: BTreeMap<String, Budget>,
}

/// A budget that delays pulls, in JSON.
#[derive(Serialize)]
struct JsonHold<'a> {
    kind: &'static str,
    owner: &'a str,
    registry: String,
    wait_ms: Option<u64>,
    cause: &'a str,
}

impl Budgets {
    /// Asks `nodes`, and the leaders that they name. Nodes that do not answer are left out. A silent leader hides little: its clients
    /// remember the quotas that it stated, and name another leader, or none, soon after requests to it stay unanswered. So nodes go on
    /// naming a silent leader only if nothing waits for it.
    pub(super) async fn of(client: &FleetClient, nodes: &[NodeName]) -> Self {
        let mut merger = Merger::default();
        ask(client, nodes, &mut merger).await;
        let asked: BTreeSet<&NodeName> = nodes.iter().collect();
        let others: BTreeSet<NodeName> = merger.leaders().filter(|leader| !asked.contains(leader)).cloned().collect();
        let others: Vec<NodeName> = others.into_iter().collect();
        // An agent behind a socket answers only for itself.
        if client.bus().is_some() {
            ask(client, &others, &mut merger).await;
        }
        Self::from_merged(merger)
    }

    /// The budgets from merged answers.
    pub(super) fn from_merged(merger: Merger) -> Self {
        Self { by_owner: merger.into_budgets() }
    }

    /// All known budgets.
    pub(super) fn all(&self) -> impl Iterator<Item = &Budget> {
        self.by_owner.values()
    }

    /// Adds to a node's explanation how its budget delays the pull.
    pub(super) fn complete(&self, explanation: &mut Explanation) {
        explanation.budget_hold =
            explanation.budget.as_ref().and_then(|owner| self.by_owner.get(owner)).and_then(|budget| hold(&budget.state));
        explanation.verdict = explanation.in_one_sentence();
    }

    /// Makes the next attempt of each entry about a budget wait for the quota of the budget, if that is used up.
    pub(super) fn delay(&self, known: &mut [Known]) {
        for known in known.iter_mut().filter(|known| is_about_budget(known)) {
            let spent = self.by_owner.get(&known.entry.key_parts.owner).and_then(|budget| spent_quota(&budget.state));
            known.wait_for_quota(spent.map(|spent| spent.wait_ms).unwrap_or_default());
        }
    }

    /// The used-up quota of the registry; of several budgets, that of the one that has quota again first. None if one of them has quota.
    pub(super) fn spent_quota(&self, registry: &str) -> Option<SpentQuota> {
        let of_registry = self.by_owner.iter().filter(|(owner, _)| registry_of_budget(owner) == registry);
        let spent: Option<Vec<SpentQuota>> = of_registry.map(|(_, budget)| spent_quota(&budget.state)).collect();
        spent?.into_iter().min_by_key(|spent| spent.wait_ms)
    }

    /// True if the quota of this owner's budget is used up.
    pub(super) fn is_used_up(&self, owner: &str) -> bool {
        self.by_owner.get(owner).is_some_and(|budget| used_up(&budget.state.known.limits).is_some())
    }

    /// Each budget that delays pulls, for this registry or for all.
    pub(super) fn held<'a>(&'a self, registry: Option<&'a str>) -> impl Iterator<Item = (&'a str, BudgetHold)> {
        let of_registry = move |owner: &str| registry.is_none_or(|registry| registry_of_budget(owner) == registry);
        self.by_owner
            .iter()
            .filter(move |(owner, _)| of_registry(owner))
            .filter_map(|(owner, budget)| Some((owner.as_str(), hold(&budget.state)?)))
    }
}

/// Makes the next attempt of each entry about a budget wait for the quota of the budget, if that is used up. Asks `nodes` for their budgets
/// if there is such an entry.
pub(super) async fn delay(client: &FleetClient, nodes: &[NodeName], known: &mut [Known]) {
    if known.iter().any(is_about_budget) {
        Budgets::of(client, nodes).await.delay(known);
    }
}

/// True if an entry is about a budget.
fn is_about_budget(known: &Known) -> bool {
    known.entry.key_parts.kind == EntryKind::Budget
}

/// A line about a budget that delays pulls.
pub(super) fn line(owner: &str, hold: &BudgetHold) -> String {
    format!("held by the budget of {}: {}", registry_of_budget(owner), hold.cause)
}

/// A budget that delays pulls, as JSON.
pub(super) fn json<'a>(owner: &'a str, hold: &'a BudgetHold) -> impl Serialize + 'a {
    JsonHold { kind: "budget", owner, registry: registry_of_budget(owner), wait_ms: hold.wait_ms, cause: &hold.cause }
}

async fn ask(client: &FleetClient, nodes: &[NodeName], merger: &mut Merger) {
    client.for_each_reply(nodes, &ListBudgets {}, |node, list| merger.add(&node, list)).await;
}

/// What delays one more pull, if anything: a used-up quota, else the waiting pulls. Nothing does if nodes only observe.
pub(super) fn hold(state: &BudgetState) -> Option<BudgetHold> {
    if state.observes {
        return None;
    }
    let longest_wait = state.waiting.iter().map(|waiter| waiter.wait_ms).max();
    let waiting = match state.waiting_count {
        0 => None,
        1 => Some("1 pull waits".to_owned()),
        count => Some(format!("{count} pulls wait")),
    };
    if let Some(used_up) = used_up(&state.known.limits) {
        let quota = quota::in_words(used_up);
        let cause = waiting.map_or_else(|| quota.clone(), |waiting| format!("{quota}; {waiting}"));
        return Some(BudgetHold { wait_ms: used_up.reset_ms.max(longest_wait), cause });
    }
    let cause = waiting?;
    let wait_ms = longest_wait.filter(|wait| *wait > 0);
    let last = wait_ms.filter(|wait| *wait >= SOON_MS).map(|wait| format!(", the last for {}", units::age(wait))).unwrap_or_default();
    Some(BudgetHold { wait_ms, cause: format!("{cause}{last}") })
}

/// The used-up quota of a budget. None if there is quota, or if it is unknown when there will be.
fn spent_quota(state: &BudgetState) -> Option<SpentQuota> {
    let limit = used_up(&state.known.limits)?.clone();
    Some(SpentQuota { limit, wait_ms: hold(state)?.wait_ms? })
}

/// The quota that stops every source for the longest time, as the budget leader judges it too: see [`all_used_up`]. Of several quotas of a
/// source that reset at the same time, the last one.
pub(super) fn used_up(limits: &[RegistryLimit]) -> Option<&RegistryLimit> {
    let resets = limits.iter().enumerate().map(|(place, limit)| {
        let source = limit.source.as_deref();
        (source, (limit.remaining == 0).then_some((limit.reset_ms, source, place)))
    });
    let (_, _, place) = all_used_up(resets)?;
    limits.get(place)
}

/// The quota that runs out first: a used-up one, else the one with the smallest part left.
pub(super) fn tightest(limits: &[RegistryLimit]) -> Option<&RegistryLimit> {
    let with_size = limits.iter().filter(|limit| limit.limit > 0);
    let least = with_size.min_by_key(|limit| limit.remaining.saturating_mul(1_000) / limit.limit);
    used_up(limits).or(least).or(limits.first())
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, MessageResult};
    use actors::Ask;
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::View;
    use contract::messages::backoff_tracker::{BackoffEntry, KeyParts};
    use contract::messages::throttler::{BudgetList, BudgetWaiter, KnownLimits};
    use contract::subject::Fleet;

    use super::*;
    use crate::output::known_failures;

    const OWNER: &str = "default|registry.example|h||anonymous|e";

    /// How long a budget delays a pull, and why.
    type Expected = (Option<u64>, &'static str);

    fn limit(source: Option<&str>, remaining: u64, reset_ms: u64) -> RegistryLimit {
        RegistryLimit { source: source.map(str::to_owned), limit: 100, remaining, window_ms: 60_000, reset_ms: Some(reset_ms) }
    }

    fn budget(limits: Vec<RegistryLimit>, waits_ms: &[u64]) -> BudgetState {
        let node: NodeName = "n3".parse().expect("a name");
        BudgetState {
            owner: OWNER.to_owned(),
            known: KnownLimits { limits, ..KnownLimits::default() },
            waiting: waits_ms.iter().map(|wait_ms| BudgetWaiter { node: node.clone(), wait_ms: *wait_ms }).collect(),
            waiting_count: waits_ms.len() as u64,
            ..BudgetState::default()
        }
    }

    #[test]
    fn budget_delays_by_its_quota_and_its_queue() {
        let table: [(BudgetState, Option<Expected>); 9] = [
            (budget(vec![], &[]), None),
            (BudgetState { observes: true, ..budget(vec![limit(None, 0, 52_000)], &[1_000]) }, None),
            (budget(vec![limit(None, 1, 52_000)], &[]), None),
            (budget(vec![limit(None, 0, 52_000)], &[]), Some((Some(52_000), "quota 0 of 100 left per 60s, resets in 52s"))),
            (
                budget(vec![limit(None, 0, 52_000)], &[1_000, 60_000]),
                Some((Some(60_000), "quota 0 of 100 left per 60s, resets in 52s; 2 pulls wait")),
            ),
            (budget(vec![], &[2_500]), Some((Some(2_500), "1 pull waits, the last for 2s"))),
            (budget(vec![limit(Some("a"), 0, 5_000), limit(Some("b"), 7, 1_000)], &[]), None),
            (
                budget(vec![limit(Some("a"), 0, 5_000), limit(Some("b"), 0, 1_000)], &[]),
                Some((Some(1_000), "quota 0 of 100 left per 60s, resets in 1s")),
            ),
            (
                budget(vec![limit(None, 0, 1_000), limit(Some("a"), 0, 52_000)], &[]),
                Some((Some(52_000), "quota 0 of 100 left per 60s, resets in 52s")),
            ),
        ];
        for (state, expected) in table {
            let held = hold(&state).map(|hold| (hold.wait_ms, hold.cause));
            assert_eq!(held.as_ref().map(|(wait, cause)| (*wait, cause.as_str())), expected, "{state:?}");
        }
    }

    #[test]
    fn attempt_of_an_entry_about_a_budget_waits_for_its_quota() {
        let node = |name: &str| name.parse::<NodeName>().expect("a name");
        let key_parts = KeyParts { owner: OWNER.to_owned(), ..KeyParts::of(EntryKind::Budget, "registry.example") };
        let view = Some(View::default());
        let entry = BackoffEntry { key_parts, view, next_attempt_ms: 7_000, probed_by: Some("n1".to_owned()), ..BackoffEntry::default() };
        for (remaining, expected, prober, of_registry) in [(0, 52_000, None, Some(52_000)), (1, 7_000, Some("n1"), None)] {
            let mut failures = known_failures::Merger::default();
            failures.add(&node("n1"), vec![entry.clone()]);
            let mut known = failures.into_known();
            let mut merger = Merger::default();
            let state = BudgetState { leads: true, ..budget(vec![limit(None, remaining, 52_000)], &[]) };
            merger.add(&node("n1"), BudgetList { budgets: vec![state], ..BudgetList::default() });
            let budgets = Budgets::from_merged(merger);
            budgets.delay(&mut known);
            let spent = |registry: &str| budgets.spent_quota(registry).map(|spent| spent.wait_ms);
            assert_eq!((known[0].due_ms(), known[0].prober(), spent("registry.example")), (expected, prober, of_registry));
            assert_eq!(spent("other.example"), None);
        }
    }

    /// The leader of a budget whose quota is used up.
    pub(in crate::commands) struct Leader;

    impl Actor for Leader {
        type Context = Context<Self>;
    }

    impl Handler<Ask<ListBudgets>> for Leader {
        type Result = MessageResult<Ask<ListBudgets>>;

        fn handle(&mut self, _: Ask<ListBudgets>, _: &mut Self::Context) -> Self::Result {
            let state = BudgetState { leads: true, ..budget(vec![limit(None, 0, 52_000)], &[]) };
            MessageResult(Ok(BudgetList { budgets: vec![state], ..BudgetList::default() }))
        }
    }

    #[test]
    fn entries_about_a_budget_alone_wait_for_the_quota_that_its_leader_reports() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            let node: NodeName = "n1".parse().expect("a name");
            let _serving = actors::serve::<ListBudgets>(&client.wiring(&node), Leader.start().recipient()).await.expect("open");
            for (kind, expected) in [(EntryKind::Budget, 52_000), (EntryKind::Registry, 7_000)] {
                let key_parts = KeyParts { owner: OWNER.to_owned(), ..KeyParts::of(kind, "registry.example") };
                let entry = BackoffEntry { key_parts, view: Some(View::default()), next_attempt_ms: 7_000, ..BackoffEntry::default() };
                let mut failures = known_failures::Merger::default();
                failures.add(&node, vec![entry]);
                let mut known = failures.into_known();
                delay(&client, std::slice::from_ref(&node), &mut known).await;
                assert_eq!(known[0].due_ms(), expected);
            }
        });
    }

    #[test]
    fn explanation_of_a_node_is_completed_by_the_budget_leader() {
        let node = |name: &str| name.parse::<NodeName>().expect("a name");
        let list = |state: BudgetState| BudgetList { budgets: vec![state], ..BudgetList::default() };
        let led = BudgetState { leads: true, epoch: 3, ..budget(vec![limit(None, 0, 52_000)], &[]) };
        let mut merger = Merger::default();
        merger.add(&node("n1"), list(budget(vec![], &[])));
        merger.add(&node("n2"), list(led));
        let budgets = Budgets::from_merged(merger);
        let mut explanation = Explanation { present: Some(false), budget: Some(OWNER.to_owned()), ..Explanation::default() };
        budgets.complete(&mut explanation);
        assert_eq!(explanation.verdict, "it would wait for its registry's budget for 52s: quota 0 of 100 left per 60s, resets in 52s");
        let mut other = Explanation { present: Some(false), budget: Some("other".to_owned()), ..Explanation::default() };
        budgets.complete(&mut other);
        assert_eq!(other.verdict, "it would be pulled");
        let lines = |registry| budgets.held(registry).map(|(owner, hold)| line(owner, &hold)).collect::<Vec<_>>();
        assert_eq!(lines(None), ["held by the budget of registry.example: quota 0 of 100 left per 60s, resets in 52s"]);
        assert_eq!((lines(Some("registry.example")).len(), lines(Some("docker.io")).len()), (1, 0));
    }
}
