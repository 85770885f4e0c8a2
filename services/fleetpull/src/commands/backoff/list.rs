//! `fleetpull backoff list`

use anyhow::Result;
use contract::messages::backoff_tracker::ListBackoffs;
use contract::messages::pull_coordinator::BudgetHold;
use serde_json::json;

use super::{GatheredEntries, Member, pause};
use crate::cli::BackoffListArgs;
use crate::commands::holds::{self, Budgets};
use crate::commands::watch::ListRequest;
use crate::exit::Exit;
use crate::fleet::FleetClient;
use crate::output::listing::Listing;
use crate::output::silent::{self, Silent};
use crate::output::{json_line, known_failures};

/// The share mode of a node that takes part in sharing.
const SHARES: &str = "enforce";

pub(super) fn carry_out(args: &BackoffListArgs) -> Result<Exit> {
    let request = ListRequest::of(args.asked.question.output, &args.list, &known_failures::COLUMNS)?;
    let registry = args.registry.as_deref().map(pause::registry).transpose()?;
    let list = ListBackoffs { registry, limit: Some(args.limit.into()), ..ListBackoffs::default() };
    request.show(&args.asked.question, async |client: &FleetClient| {
        let nodes = client.selected_nodes(&args.asked).await?;
        let mut gathered = GatheredEntries::ask(client, &nodes, &list).await;
        let silent = client.silent_of(&args.asked, &nodes).await;
        let budgets = Budgets::of(client, &nodes).await;
        budgets.delay(&mut gathered.known);
        let budgets: Vec<(&str, BudgetHold)> = budgets.held(list.registry.as_deref()).collect();
        let mut listing = listing(&gathered, &budgets, &silent);
        if request.has_objects() {
            listing.objects = objects(&gathered, &budgets, &silent, client.clock().now().wall_ms());
        }
        Ok((listing, gathered.exit()))
    })
}

fn objects(gathered: &GatheredEntries, budgets: &[(&str, BudgetHold)], silent: &[Silent], now_ms: u64) -> Vec<String> {
    let entries = gathered.known.iter().map(|known| json_line(&known.json(now_ms)));
    let budgets = budgets.iter().map(|(owner, hold)| json_line(&holds::json(owner, hold)));
    let pauses = gathered
        .pauses
        .iter()
        .map(|pause| json_line(&json!({ "kind": "pause", "registry": pause.registry, "left_ms": pause.left_ms, "by": pause.by })));
    let members = gathered.members.iter().filter(|member| member.share != SHARES || member.alone || member.left_out > 0).map(|member| {
        let Member { node, share, alone, left_out, .. } = member;
        json_line(&json!({ "kind": "node", "node": node, "share": share, "alone": alone, "left_out": left_out }))
    });
    let silent = silent.iter().map(|silent| json_line(&silent::row(silent)));
    entries.chain(budgets).chain(pauses).chain(members).chain(silent).flatten().collect()
}

fn listing(gathered: &GatheredEntries, budgets: &[(&str, BudgetHold)], silent: &[Silent]) -> Listing {
    let mut listing = Listing::new(known_failures::table(&gathered.known), "");
    listing.facts.extend(budgets.iter().map(|(owner, hold)| holds::line(owner, hold)));
    listing.facts.extend(gathered.pauses.iter().map(pause::line));
    listing.unanswered.extend(gathered.unanswered.iter().map(|(node, silence)| format!("{node}: {silence}")));
    // A node that did not answer may hold something back.
    if gathered.known.is_empty() && budgets.is_empty() && !gathered.members.is_empty() && gathered.unanswered.is_empty() {
        let of = if silent.is_empty() { "" } else { " on the nodes that answer" };
        listing.remarks.push(format!("nothing is held back{of}"));
    }
    listing.remarks.extend(remarks(gathered));
    listing.remarks.extend(silent::sentence(silent));
    listing
}

/// Remarks on some of the nodes, and on entries that are not listed.
fn remarks(gathered: &GatheredEntries) -> Vec<String> {
    let of = |part: &dyn Fn(&Member) -> bool, one: &str, several: &str| {
        let nodes: Vec<_> = gathered.members.iter().filter(|member| part(member)).map(|member| member.node.clone()).collect();
        let what = if nodes.len() == 1 { one } else { several };
        (!nodes.is_empty()).then(|| format!("{}: {what}", known_failures::named(&nodes)))
    };
    let kinds = [
        of(
            &|member| member.alone,
            "uses kubelet's back-off alone: its bus is lost, or too slow",
            "use kubelet's back-off alone: their bus is lost, or too slow",
        ),
        of(
            &Member::observes,
            "only observes: it counts the pulls that shared entries would refuse, and refuses none of them",
            "only observe: they count the pulls that shared entries would refuse, and refuse none of them",
        ),
        of(
            &|member| member.share == "off",
            "shares nothing: it has no bus set, or fleet.share = off",
            "share nothing: they have no bus set, or fleet.share = off",
        ),
    ];
    let mut remarks: Vec<String> = kinds.into_iter().flatten().collect();
    if gathered.most_left_out() > 0 {
        let more = gathered.most_left_out();
        remarks.push(format!(
            "up to {more} more entries of a node are not listed: --limit N lists more, as far as one answer takes them, --registry R only those of one registry"
        ));
    }
    if gathered.left_out > 0 {
        remarks.push(format!("{} more entries are not listed: there is no room for them in one list", gathered.left_out));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use contract::NodeName;

    use super::*;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    #[test]
    fn nothing_is_held_back_only_if_every_asked_node_says_so() {
        for (unanswered, is_sure) in [(None, true), (Some((node("n2"), "silent".to_owned())), false)] {
            let member = Member { node: node("n1"), share: SHARES.to_owned(), alone: false, left_out: 0, others: 0 };
            let (known, pauses, unanswered) = (Vec::new(), Vec::new(), unanswered.into_iter().collect());
            let gathered = GatheredEntries { known, members: vec![member], pauses, unanswered, left_out: 0 };
            let remarks = listing(&gathered, &[], &[]).remarks;
            assert_eq!(remarks.iter().any(|remark| remark == "nothing is held back"), is_sure, "{remarks:?}");
            let ago = Duration::from_secs(42);
            let silent = Silent { node: node("n3"), ago, labels: None, known_for: 2 * ago };
            let remarks = listing(&gathered, &[], &[silent]).remarks;
            let of_others = remarks.iter().any(|remark| remark == "nothing is held back on the nodes that answer");
            assert_eq!(of_others, is_sure, "{remarks:?}");
        }
    }

    #[test]
    fn remark_on_one_node_is_in_the_singular() {
        let member = |name: &str| Member { node: node(name), share: SHARES.to_owned(), alone: true, left_out: 0, others: 0 };
        let remarks = |members| {
            let gathered = GatheredEntries { known: Vec::new(), members, pauses: Vec::new(), unanswered: Vec::new(), left_out: 0 };
            super::remarks(&gathered)
        };
        assert_eq!(remarks(vec![member("n1")]), ["n1: uses kubelet's back-off alone: its bus is lost, or too slow"]);
        let both = vec![member("n1"), member("n2")];
        assert_eq!(remarks(both), ["n1, n2: use kubelet's back-off alone: their bus is lost, or too slow"]);
    }
}
