//! `fleetpull backoff list`

use anyhow::Result;
use contract::messages::backoff_tracker::Pause;
use serde_json::json;

use super::Told;
use crate::cli::{BackoffListArgs, OutputFormat};
use crate::exit::Exit;
use crate::fleet::ask_fleet;
use crate::output::known;
use crate::output::{self, units};

/// The word of a node that takes part in sharing as usual.
const SHARES: &str = "enforce";

pub(super) fn carry_out(args: &BackoffListArgs) -> Result<Exit> {
    ask_fleet(&args.asked.question, "error", async |client| {
        let nodes = client.meant(&args.asked).await?;
        let told = Told::by(&client, &nodes).await;
        match args.asked.question.output.format {
            OutputFormat::Json => print_json(&told),
            OutputFormat::Text => print_text(&told, args.asked.question.output.quiet),
        }
        Ok(told.exit)
    })
}

fn print_json(told: &Told) {
    for known in told.known() {
        output::json(&known.json());
    }
    for pause in pauses(told) {
        output::json(&json!({ "kind": "pause", "registry": pause.registry, "left_ms": pause.left_ms, "by": pause.by }));
    }
    for (node, list) in told.lists.iter().filter(|(_, list)| list.share != SHARES || list.alone || list.left_out > 0) {
        output::json(&json!({ "kind": "node", "node": node, "share": list.share, "alone": list.alone, "left_out": list.left_out }));
    }
}

fn print_text(told: &Told, quiet: bool) {
    let known = told.known();
    if !known.is_empty() {
        known::columns(&known).iter().for_each(|line| output::fact(line));
    }
    for pause in pauses(told) {
        output::fact(&pause_line(&pause));
    }
    if quiet {
        return;
    }
    if known.is_empty() && !told.lists.is_empty() {
        output::remark("nothing is held back");
    }
    let of = |part: &dyn Fn(&str, bool) -> bool| {
        let nodes: Vec<_> = told.lists.iter().filter(|(_, list)| part(&list.share, list.alone)).map(|(node, _)| node.clone()).collect();
        (!nodes.is_empty()).then(|| known::named(&nodes))
    };
    for (nodes, what) in [
        (of(&|_, alone| alone), "go by kubelet's rule alone: their bus is gone, or too slow"),
        (of(&|share, _| share == "observe"), "only observe: they count what shared knowledge would refuse, and refuse nothing"),
        (of(&|share, _| share == "off"), "share nothing (fleet.share = off)"),
    ] {
        if let Some(nodes) = nodes {
            output::remark(&format!("{nodes}: {what}"));
        }
    }
    if told.left_out() > 0 {
        output::remark(&format!("{} more are held back: a node lists 1,000 at most", told.left_out()));
    }
}

/// The pauses that any node knows, each once, with the longest time that is told of it.
fn pauses(told: &Told) -> Vec<Pause> {
    let mut pauses: Vec<Pause> = Vec::new();
    for pause in told.lists.iter().flat_map(|(_, list)| &list.pauses) {
        match pauses.iter_mut().find(|known| known.registry == pause.registry) {
            Some(known) if known.left_ms >= pause.left_ms => {}
            Some(known) => *known = pause.clone(),
            None => pauses.push(pause.clone()),
        }
    }
    pauses.sort_by(|one, other| one.registry.cmp(&other.registry));
    pauses
}

/// A pause in a line.
pub(super) fn pause_line(pause: &Pause) -> String {
    let of = pause.registry.as_ref().map_or_else(|| "of all registries".to_owned(), |registry| format!("of {registry}"));
    format!("paused: sharing {of}, for {} more, by {}", units::seconds(pause.left_ms), output::one_line(&pause.by))
}

#[cfg(test)]
mod tests {
    use contract::messages::backoff_tracker::BackoffList;

    use super::*;

    #[test]
    fn a_pause_that_many_nodes_know_stands_once() {
        let pause = |registry: Option<&str>, left_ms| Pause { registry: registry.map(str::to_owned), left_ms, by: "me@here".to_owned() };
        let list = |pauses| BackoffList { pauses, ..BackoffList::default() };
        let node = |name: &str| name.parse().expect("a name");
        let lists = vec![
            (node("n1"), list(vec![pause(Some("r.example"), 5_000), pause(None, 60_000)])),
            (node("n2"), list(vec![pause(Some("r.example"), 5_100)])),
        ];
        let told = Told { lists, exit: Exit::Success };
        let lines: Vec<String> = pauses(&told).iter().map(pause_line).collect();
        assert_eq!(
            lines,
            ["paused: sharing of all registries, for 1m0s more, by me@here", "paused: sharing of r.example, for 5.1 s more, by me@here"]
        );
    }
}
