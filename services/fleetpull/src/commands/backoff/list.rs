//! `fleetpull backoff list`

use anyhow::Result;
use contract::messages::backoff_tracker::ListBackoffs;
use contract::messages::pull_coordinator::BudgetHold;
use serde_json::json;

use super::{Member, Told, pause};
use crate::cli::{BackoffListArgs, OutputFormat};
use crate::commands::holds::{self, Budgets};
use crate::exit::Exit;
use crate::fleet::ask_fleet;
use crate::output::silent::{self, Silent};
use crate::output::{self, known_failures};

/// The word of a node that takes part in sharing as usual.
const SHARES: &str = "enforce";

pub(super) fn carry_out(args: &BackoffListArgs) -> Result<Exit> {
    let registry = args.registry.as_deref().map(pause::registry).transpose()?;
    let list = ListBackoffs { registry, limit: Some(args.limit.into()), ..ListBackoffs::default() };
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.meant(&args.asked).await?;
        let told = Told::by(&client, &nodes, &list).await;
        let silent = client.silent_of(&args.asked, &nodes).await;
        let budgets = Budgets::of(&client, &nodes).await;
        let budgets: Vec<(&str, BudgetHold)> = budgets.held(list.registry.as_deref()).collect();
        match args.asked.question.output.format {
            OutputFormat::Json => print_json(&told, &budgets, &silent, client.clock().now().wall_ms()),
            OutputFormat::Text => print_text(&told, &budgets, &silent, args.asked.question.output.quiet),
        }
        Ok(told.exit())
    })
}

fn print_json(told: &Told, budgets: &[(&str, BudgetHold)], silent: &[Silent], now_ms: u64) {
    for known in &told.known {
        output::json(&known.json(now_ms));
    }
    budgets.iter().for_each(|(owner, hold)| holds::print_json(owner, hold));
    for pause in &told.pauses {
        output::json(&json!({ "kind": "pause", "registry": pause.registry, "left_ms": pause.left_ms, "by": pause.by }));
    }
    for member in told.members.iter().filter(|member| member.share != SHARES || member.alone || member.left_out > 0) {
        let Member { node, share, alone, left_out, .. } = member;
        output::json(&json!({ "kind": "node", "node": node, "share": share, "alone": alone, "left_out": left_out }));
    }
    for silent in silent {
        output::json(&silent::row(silent));
    }
}

fn print_text(told: &Told, budgets: &[(&str, BudgetHold)], silent: &[Silent], quiet: bool) {
    if !told.known.is_empty() {
        known_failures::columns(&told.known).iter().for_each(|line| output::fact(line));
    }
    budgets.iter().for_each(|(owner, hold)| output::fact(&holds::line(owner, hold)));
    for pause in &told.pauses {
        output::fact(&pause::line(pause));
    }
    if quiet {
        return;
    }
    if told.known.is_empty() && budgets.is_empty() && !told.members.is_empty() {
        output::remark("nothing is held back");
    }
    let of = |part: &dyn Fn(&Member) -> bool| {
        let nodes: Vec<_> = told.members.iter().filter(|member| part(member)).map(|member| member.node.clone()).collect();
        (!nodes.is_empty()).then(|| known_failures::named(&nodes))
    };
    for (nodes, what) in [
        (of(&|member| member.alone), "go by kubelet's rule alone: their bus is gone, or too slow"),
        (of(&|member| member.share == "observe"), "only observe: they count what shared knowledge would refuse, and refuse nothing"),
        (of(&|member| member.share == "off"), "share nothing: no bus is set there, or fleet.share = off"),
    ] {
        if let Some(nodes) = nodes {
            output::remark(&format!("{nodes}: {what}"));
        }
    }
    if told.most_left_out() > 0 {
        let more = told.most_left_out();
        output::remark(&format!("up to {more} more are held back on a node: --limit N lists more of each, --registry R fewer"));
    }
    if told.left_out > 0 {
        output::remark(&format!("{} more are held back: one list has room for no more", told.left_out));
    }
    silent::say(silent);
}
