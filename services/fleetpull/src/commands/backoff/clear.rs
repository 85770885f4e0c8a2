//! `fleetpull backoff clear`

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};
use contract::messages::backoff_tracker::{BackoffCleared, ClearBackoff, ListBackoffs};
use contract::messages::pull_coordinator::{BudgetHold, ExplainImage, Explanation};
use contract::{FailureClass, NodeName};
use serde::Serialize;
use serde_json::json;

use super::{Found, GatheredEntries, explain, find, forget_quota, named};
use crate::cli::{BackoffClearArgs, OutputFormat};
use crate::commands::holds::{self, Budgets};
use crate::commands::user_at_host::user_at_host;
use crate::exit::{Exit, UsageError};
use crate::fleet::{FleetClient, ask_fleet};
use crate::output;
use crate::output::known_failures::{JsonKeyParts, Known};

/// How long a clear may take to reach the fleet, which takes milliseconds. Nodes that it has not reached by then get their own request.
const SPREADS_WITHIN: Duration = Duration::from_secs(1);
/// The pause between two checks of which nodes still have the entries.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Blocked nodes that are shown one by one.
const BLOCKS_SHOWN: usize = 10;

/// A next attempt within this time counts as not blocked.
const NEXT_WITHIN_MS: u64 = 5_000;

/// What to do if a quota that blocks is wrong.
const FORGET_QUOTA: &str = "hint: if a registry has quota all the same, `fleetpull backoff clear ID` with the ID of its quota in `fleetpull status` makes all nodes forget it";

/// The result of a clear.
#[derive(Default)]
struct Cleared {
    /// Entries that were cleared.
    cleared_entries: Vec<Known>,
    /// Entries that are still open.
    left: Vec<Known>,
    /// Entries that failed again after the clear.
    failed_again: Vec<Known>,
    /// Entries that nodes could not clear.
    not_cleared: BTreeSet<String>,
    refused: Vec<(NodeName, String)>,
    /// Nodes that had the entries and did not answer the last check.
    unchecked: BTreeSet<NodeName>,
    /// Nodes that did not say if something still delays the image.
    unexplained: Vec<NodeName>,
    blocked: Vec<Block>,
}

/// A reason why the next attempt does not start within [`NEXT_WITHIN_MS`].
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Block {
    kind: &'static str,
    /// Null if it is every node.
    node: Option<NodeName>,
    wait_ms: Option<u64>,
    why: String,
    /// True if a used-up quota delays the attempt, and not only pulls that wait before it.
    #[serde(skip)]
    is_by_quota: bool,
}

impl Cleared {
    /// True if nothing delays the next attempt on any node.
    fn is_free(&self) -> bool {
        let is_cleared = self.left.is_empty() && self.not_cleared.is_empty() && self.refused.is_empty() && self.unchecked.is_empty();
        is_cleared && self.blocked.is_empty() && self.unexplained.is_empty()
    }
}

pub(super) fn carry_out(args: &BackoffClearArgs) -> Result<Exit> {
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.selected_nodes(&args.asked).await?;
        let Found { name, gathered, spent_owner } = find(&client, &args.asked.question, &nodes, &args.what).await?;
        let is_forgotten = match &spent_owner {
            Some(owner) => Some(forget_quota::forget(&client, owner, args.asked.question.output.format).await?),
            None => None,
        };
        if let Some(is_forgotten) = is_forgotten
            && gathered.known.is_empty()
        {
            return Ok(if is_forgotten { gathered.exit() } else { Exit::Failure });
        }
        // An older agent may have left out the entry with this name.
        if gathered.known.is_empty() && gathered.most_left_out() == 0 {
            explain::list_other_entries(&client, &args.what, &gathered, args.asked.question.output.quiet).await;
            return Ok(Exit::Failure);
        }
        let what = what_to_clear(&name, &gathered.known)?;
        let command = ClearBackoff { what: what.clone(), by: user_at_host() };
        let mut cleared = clear(&client, &gathered, &named(&name), &command).await?;
        if cleared.failed_again.is_empty() {
            let held = holders(&gathered.known);
            let is_key = gathered.known.iter().any(|known| known.is_shared() && known.entry.key == what);
            if !is_key {
                (cleared.blocked, cleared.unexplained) = by_image(&client, &held, &what).await;
            }
            if cleared.blocked.is_empty() {
                cleared.blocked = by_budgets(&Budgets::of(&client, &held).await, &cleared.cleared_entries);
            }
        }
        print(args.asked.question.output.format, &cleared);
        if cleared.blocked.iter().any(|block| block.is_by_quota) && !args.asked.question.output.quiet {
            output::remark(FORGET_QUOTA);
        }
        Ok(if cleared.is_free() && is_forgotten != Some(false) { gathered.exit() } else { Exit::Failure })
    })
}

/// The reasons that delay the image on each of these nodes, according to the node and to the leader of its budget, and the nodes that did
/// not answer.
async fn by_image(client: &FleetClient, nodes: &[NodeName], image: &str) -> (Vec<Block>, Vec<NodeName>) {
    let command = ExplainImage { image: image.to_owned(), ..ExplainImage::default() };
    let mut answers = client.ask_each(nodes, &command).await;
    let budgets = Budgets::of(client, nodes).await;
    answers.iter_mut().filter_map(|(_, explanation)| explanation.as_mut().ok()).for_each(|explanation| budgets.complete(explanation));
    let (mut blocked, mut unexplained) = (Vec::new(), Vec::new());
    for (node, explanation) in answers {
        match explanation {
            Ok(explanation) => blocked.extend(block(node, &explanation, &budgets)),
            Err(_) => unexplained.push(node),
        }
    }
    (blocked, unexplained)
}

fn block(node: NodeName, explanation: &Explanation, budgets: &Budgets) -> Option<Block> {
    let wait = match (&explanation.next_attempt_ms, &explanation.budget_hold) {
        (Some(left), None) => Some(*left),
        // It waits for both; how long the budget takes may be unknown.
        (left, Some(hold)) => hold.wait_ms.map(|wait| wait.max(left.unwrap_or_default())),
        (None, None) => return None,
    };
    let long = wait.is_none_or(|wait| wait > NEXT_WITHIN_MS);
    let owner = explanation.budget.as_deref().filter(|_| explanation.budget_hold.is_some());
    let is_by_quota = owner.is_some_and(|owner| budgets.is_used_up(owner));
    long.then(|| Block { kind: "blocked", node: Some(node), wait_ms: wait, why: explanation.verdict.clone(), is_by_quota })
}

/// The budgets that delay requests to registries whose rate limit was cleared: a clear does not change what a registry counts.
fn by_budgets(budgets: &Budgets, cleared: &[Known]) -> Vec<Block> {
    let limited = cleared.iter().filter(|known| known.entry.class == FailureClass::RateLimited);
    let registries: BTreeSet<&str> = limited.filter_map(|known| known.entry.view.as_ref()).map(|view| view.registry.as_str()).collect();
    let held = registries.into_iter().flat_map(|registry| budgets.held(Some(registry)));
    let block = |(owner, hold): (&str, BudgetHold)| {
        let (node, why, is_by_quota) = (None, holds::line(owner, &hold), budgets.is_used_up(owner));
        Block { kind: "blocked", node, wait_ms: hold.wait_ms, why, is_by_quota }
    };
    held.map(block).collect()
}

/// The whole key if its beginning was given, else the image.
fn what_to_clear(what: &str, named: &[Known]) -> Result<String> {
    let by_key: Vec<&Known> =
        named.iter().filter(|known| known.is_shared() && known.entry.key.starts_with(&what.to_ascii_lowercase())).collect();
    match by_key.as_slice() {
        [] => Ok(what.to_owned()),
        [one] => Ok(one.entry.key.clone()),
        several => {
            let keys: Vec<&str> = several.iter().map(|known| known.entry.key.as_str()).collect();
            Err(UsageError(format!("{what} is the beginning of several keys, give more of one: {}", keys.join(", "))).into())
        }
    }
}

/// Sends the clear to one node that shares, which publishes it to the fleet. Nodes that still have the entries afterwards, because they do
/// not share, get their own request.
async fn clear(client: &FleetClient, gathered: &GatheredEntries, list: &ListBackoffs, command: &ClearBackoff) -> Result<Cleared> {
    let mut cleared = Cleared::default();
    let holders: Vec<NodeName> = holders(&gathered.known);
    let sharing: BTreeSet<&NodeName> =
        gathered.members.iter().filter(|member| member.share != "off" && !member.alone).map(|member| &member.node).collect();
    let first =
        holders.iter().find(|node| sharing.contains(node)).or(holders.first()).or(gathered.members.first().map(|member| &member.node));
    let Some(first) = first.cloned() else { bail!("no node answered, so nothing was cleared") };
    send_clear(client, std::slice::from_ref(&first), command, &mut cleared).await;
    let mut left = look(client, &holders, list, gathered, &mut cleared).await;
    if !left.is_empty() {
        left.retain(|node| *node != first);
        send_clear(client, &left, command, &mut cleared).await;
        let _ = look(client, &holders, list, gathered, &mut cleared).await;
    }
    Ok(cleared)
}

/// Checks every [`LOOK_EVERY`], for about [`SPREADS_WITHIN`], until no node of `holders` has the entries. Returns the nodes that still
/// have them.
async fn look(
    client: &FleetClient,
    holders: &[NodeName],
    list: &ListBackoffs,
    gathered: &GatheredEntries,
    cleared: &mut Cleared,
) -> Vec<NodeName> {
    let looks = SPREADS_WITHIN.as_millis() / LOOK_EVERY.as_millis();
    let mut left = Vec::new();
    for _ in 0..looks {
        let GatheredEntries { known, unanswered, .. } = GatheredEntries::by(client, holders, list).await;
        cleared.unchecked = unanswered.into_iter().map(|(node, _)| node).collect();
        (cleared.left, cleared.failed_again) = known.into_iter().partition(|known| is_older(known, &gathered.known));
        left = self::holders(&cleared.left);
        if left.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let same = |one: &Known, other: &Known| one.entry.key == other.entry.key && one.is_shared() == other.is_shared();
    let is_cleared = |known: &&Known| {
        let is_checked = known.nodes.iter().any(|node| !cleared.unchecked.contains(node));
        is_checked && !cleared.left.iter().any(|left| same(left, known))
    };
    cleared.cleared_entries = gathered.known.iter().filter(is_cleared).cloned().collect();
    left
}

/// True if the entry is one of those to clear, and not a newer failure with the same key.
fn is_older(known: &Known, named: &[Known]) -> bool {
    named
        .iter()
        .any(|old| old.entry.key == known.entry.key && old.is_shared() == known.is_shared() && known.entry.since_ms >= old.entry.since_ms)
}

async fn send_clear(client: &FleetClient, nodes: &[NodeName], command: &ClearBackoff, cleared: &mut Cleared) {
    for (node, answer) in client.ask_each(nodes, command).await {
        match answer {
            Ok(BackoffCleared { still_binding, .. }) => cleared.not_cleared.extend(still_binding),
            Err(silence) => cleared.refused.push((node, silence)),
        }
    }
}

fn holders(known: &[Known]) -> Vec<NodeName> {
    let nodes: BTreeSet<NodeName> = known.iter().flat_map(|known| known.nodes.iter().cloned()).collect();
    nodes.into_iter().collect()
}

fn print(format: OutputFormat, cleared: &Cleared) {
    for (kind, known) in [("cleared", &cleared.cleared_entries), ("not_cleared", &cleared.left), ("failed_again", &cleared.failed_again)] {
        for known in known {
            let Known { entry, nodes, .. } = known;
            match format {
                OutputFormat::Json => output::json(&json!({
                    "kind": kind, "key": entry.key, "what": entry.key_parts.to_string(), "key_parts": JsonKeyParts::of(&entry.key_parts),
                    "class": entry.class, "node_count": nodes.len(),
                })),
                OutputFormat::Text => {
                    let nodes = if nodes.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", nodes.len()) };
                    output::fact(&format!("{}  {}  {}  on {nodes}", kind.replace('_', " "), known.subject(), entry.class));
                }
            }
        }
    }
    for why in &cleared.not_cleared {
        match format {
            OutputFormat::Json => output::json(&json!({ "kind": "not_cleared", "why": why })),
            OutputFormat::Text => output::fact(&format!("not cleared  {why}")),
        }
    }
    for block in cleared.blocked.iter().take(if format == OutputFormat::Json { usize::MAX } else { BLOCKS_SHOWN }) {
        match format {
            OutputFormat::Json => output::json(block),
            OutputFormat::Text => {
                let node = block.node.as_ref().map(|node| format!("{node}: ")).unwrap_or_default();
                output::fact(&format!("still blocked  {node}{}", block.why));
            }
        }
    }
    if format == OutputFormat::Text && cleared.blocked.len() > BLOCKS_SHOWN {
        output::fact(&format!("still blocked  {} more nodes: `fleetpull explain` says why", cleared.blocked.len() - BLOCKS_SHOWN));
    }
    for (node, why) in &cleared.refused {
        output::remark(&format!("{node}: {why}"));
    }
    if !cleared.unchecked.is_empty() {
        let nodes: Vec<NodeName> = cleared.unchecked.iter().cloned().collect();
        output::remark(&format!("{}: it is not known if the back-off is cleared there", output::known_failures::named(&nodes)));
    }
    if !cleared.unexplained.is_empty() {
        let nodes = output::known_failures::named(&cleared.unexplained);
        output::remark(&format!("{nodes}: it is not known if something still delays the image there, `fleetpull explain` asks again"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use actix::{Actor, Context, Handler, MessageResult};
    use actors::Ask;
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::messages::backoff_tracker::{BackoffEntry, BackoffList};
    use contract::messages::throttler::{BudgetList, BudgetState, BudgetWaiter, KnownLimits, RegistryLimit};
    use contract::subject::Fleet;

    use super::*;
    use crate::commands::budget;
    use crate::output::known_failures::Merger;

    /// A tracker without entries.
    struct Tracker;

    impl Actor for Tracker {
        type Context = Context<Self>;
    }

    impl Handler<Ask<ListBackoffs>> for Tracker {
        type Result = MessageResult<Ask<ListBackoffs>>;

        fn handle(&mut self, _: Ask<ListBackoffs>, _: &mut Self::Context) -> Self::Result {
            MessageResult(Ok(BackoffList::default()))
        }
    }

    #[test]
    fn entry_of_a_node_that_does_not_answer_the_check_is_not_cleared() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            let nodes = ["n1", "n2"].map(|name| name.parse::<NodeName>().expect("a name"));
            // Each node has an entry of its own; only the first one answers the check.
            let mut merger = Merger::default();
            nodes.iter().for_each(|node| merger.add(node, vec![BackoffEntry { key: "busybox".to_owned(), ..BackoffEntry::default() }]));
            let (known, members, pauses, unanswered) = (merger.into_known(), Vec::new(), Vec::new(), Vec::new());
            let gathered = GatheredEntries { known, members, pauses, unanswered, left_out: 0 };
            let _serving = actors::serve::<ListBackoffs>(&client.wiring(&nodes[0]), Tracker.start().recipient()).await.expect("open");
            let mut cleared = Cleared::default();
            let left = look(&client, &nodes, &named("busybox"), &gathered, &mut cleared).await;
            let on: Vec<&NodeName> = cleared.cleared_entries.iter().flat_map(|known| known.nodes.iter()).collect();
            assert_eq!((left, on, cleared.unchecked.first()), (Vec::new(), vec![&nodes[0]], Some(&nodes[1])));
            assert!(!cleared.is_free(), "it is not known if the second node is free");
        });
    }

    #[test]
    fn node_that_does_not_explain_the_image_may_be_blocked() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            let nodes: [NodeName; 1] = ["n1".parse().expect("a name")];
            let (blocked, unexplained) = by_image(&client, &nodes, "busybox").await;
            assert!(blocked.is_empty(), "{blocked:?}");
            assert_eq!(unexplained, nodes);
            assert!(!Cleared { unexplained, ..Cleared::default() }.is_free());
        });
    }

    #[test]
    fn node_is_blocked_if_its_next_attempt_is_later_than_a_few_seconds() {
        let explanation = |next_attempt_ms, wait_ms: Option<Option<u64>>| {
            let budget_hold = wait_ms.map(|wait_ms| BudgetHold { wait_ms, cause: "0 left".to_owned() });
            Explanation { next_attempt_ms, budget_hold, ..Explanation::default() }
        };
        let table = [
            (explanation(None, None), None),
            (explanation(Some(4_000), None), None),
            (explanation(Some(12_000), None), Some(Some(12_000))),
            (explanation(None, Some(Some(3_000))), None),
            (explanation(None, Some(Some(52_000))), Some(Some(52_000))),
            (explanation(None, Some(None)), Some(None)),
        ];
        for (explanation, blocks) in table {
            let block = block("n1".parse().expect("a name"), &explanation, &Budgets::default());
            assert_eq!(block.map(|block| block.wait_ms), blocks, "{explanation:?}");
        }
    }

    #[test]
    fn pulls_that_wait_for_the_rate_are_not_a_used_up_quota() {
        let (node, owner): (NodeName, _) = ("n1".parse().expect("a name"), "default|r.example||||e");
        for (remaining, expected) in [(0, true), (1, false)] {
            let known = KnownLimits { limits: vec![RegistryLimit { remaining, ..RegistryLimit::default() }], ..KnownLimits::default() };
            let waiting = vec![BudgetWaiter { node: node.clone(), wait_ms: 60_000 }];
            let state = BudgetState { owner: owner.to_owned(), leads: true, waiting, waiting_count: 1, known, ..BudgetState::default() };
            let mut merger = budget::Merger::default();
            merger.add(&node, BudgetList { budgets: vec![state], ..BudgetList::default() });
            let budgets = Budgets::from_merged(merger);
            let mut explanation = Explanation { budget: Some(owner.to_owned()), ..Explanation::default() };
            budgets.complete(&mut explanation);
            let block = block(node.clone(), &explanation, &budgets).expect("it waits for a minute");
            assert_eq!(block.is_by_quota, expected, "{}", block.why);
        }
    }
}
