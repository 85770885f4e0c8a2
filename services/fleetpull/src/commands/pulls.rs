//! `fleetpull pulls`

mod gather;

use anyhow::Result;
use contract::messages::pull_coordinator::{PullState, PullStatus, StandingPullStatus};
use contract::{NodeName, PodRef};
use image::Reference;
use serde::Serialize;

use super::watch::ListRequest;
use crate::cli::PullsArgs;
use crate::exit::Exit;
use crate::fleet::FleetClient;
use crate::output::listing::Listing;
use crate::output::silent::{self, Silent};
use crate::output::table::{Cell, Column, Table, Tone};
use crate::output::{json_line, standing_pull, units};
use gather::{NodePulls, ask, delay};

/// The columns for pulls and standing pulls.
static COLUMNS: [Column; 10] = [
    Column::name("IMAGE", 12),
    Column::name("NODE", 6),
    Column::new("STATE"),
    Column::new("PROGRESS"),
    Column::new("RATE"),
    Column::sentence("WAITS FOR", 9),
    Column::new("AGE"),
    Column::wide("CALLERS"),
    Column::wide("LEFT"),
    Column::wide("ID"),
];

/// A pull as JSON.
#[derive(Serialize)]
struct JsonRow<'a> {
    kind: &'static str,
    node: &'a str,
    image: &'a str,
    state: PullState,
    since_ms: u64,
    callers: u32,
    pods: &'a [PodRef],
    done_bytes: u64,
    total_bytes: u64,
    bytes_per_second: u64,
}

/// Lists the pulls in flight, the queued ones and the standing pulls.
pub(super) fn carry_out(args: &PullsArgs) -> Result<Exit> {
    let request = ListRequest::of(args.asked.question.output, &args.list, &COLUMNS)?;
    request.show(&args.asked.question, async |client: &FleetClient| {
        let nodes = client.selected_nodes(&args.asked).await?;
        let (mut answered, unanswered) = ask(client, &nodes).await;
        delay(client, &mut answered).await;
        let silent = client.silent_of(&args.asked, &nodes).await;
        let mut listing = listing(&answered, &silent);
        if request.has_objects() {
            listing.objects = objects(&answered, &silent, client.clock().now().wall_ms());
        }
        let exit = if unanswered.is_empty() { Exit::Success } else { Exit::Failure };
        Ok((Listing { unanswered, ..listing }, exit))
    })
}

fn objects(answered: &[NodePulls], silent: &[Silent], now_ms: u64) -> Vec<String> {
    let of_node = |NodePulls { node, pulls, standing_pulls }: &NodePulls| {
        let pulls = pulls.iter().map(|pull| json_line(&json_row(node, pull)));
        pulls.chain(standing_pulls.iter().map(|status| json_line(&standing_pull::json(node, status, now_ms)))).collect::<Vec<_>>()
    };
    answered.iter().flat_map(of_node).chain(silent.iter().map(|silent| json_line(&silent::row(silent)))).flatten().collect()
}

/// The list, with one row for each pull: a pull that a standing pull has begun is in the row of the standing pull.
fn listing(answered: &[NodePulls], silent: &[Silent]) -> Listing {
    let mut listing = Listing::new(Table::new(&COLUMNS), "nothing is in flight or queued");
    for NodePulls { node, pulls, standing_pulls } in answered {
        let standing_images: Vec<String> = standing_pulls.iter().map(|status| normalised(&status.image)).collect();
        let mut merged = vec![false; standing_pulls.len()];
        for pull in pulls {
            let image = normalised(&pull.image);
            let place = standing_images.iter().position(|other| *other == image);
            match (place, &pull.state) {
                // The row of the standing pull says what the pull waits for.
                (Some(_), PullState::Waiting) => {}
                (Some(place), _) if !merged[place] => {
                    merged[place] = true;
                    let status = &standing_pulls[place];
                    listing.table.add(&status.standing_pull.to_string(), cells(node, pull, Some(status)));
                }
                _ => listing.table.add(&pull.image, cells(node, pull, None)),
            }
        }
        for (status, _) in standing_pulls.iter().zip(merged).filter(|(_, merged)| !merged) {
            listing.table.add(&status.standing_pull.to_string(), standing_pull::cells(node, status));
        }
    }
    for silent in silent {
        listing.table.add(silent.node.as_str(), silent_cells(silent));
    }
    listing
}

/// The standing pulls in a separate table.
pub(super) fn standing<'a>(standing_pulls: impl Iterator<Item = (&'a NodeName, &'a StandingPullStatus)>) -> Table {
    let mut table = Table::new(&COLUMNS);
    standing_pulls.for_each(|(node, status)| table.add(&status.standing_pull.to_string(), standing_pull::cells(node, status)));
    table
}

/// The same form for all spellings of an image.
fn normalised(image: &str) -> String {
    Reference::parse(image).map_or_else(|_| image.to_owned(), |reference| reference.normalised().to_owned())
}

/// The average since the pull began.
fn bytes_per_second(pull: &PullStatus) -> u64 {
    u64::try_from(u128::from(pull.done_bytes) * 1_000 / u128::from(pull.since_ms.max(1))).unwrap_or(u64::MAX)
}

fn json_row<'a>(node: &'a NodeName, pull: &'a PullStatus) -> JsonRow<'a> {
    JsonRow {
        kind: "pull",
        node: node.as_str(),
        image: &pull.image,
        state: pull.state,
        since_ms: pull.since_ms,
        callers: pull.callers,
        pods: &pull.pods,
        done_bytes: pull.done_bytes,
        total_bytes: pull.total_bytes,
        bytes_per_second: bytes_per_second(pull),
    }
}

/// The cells of a pull, and of the standing pull that has begun it, if any.
fn cells(node: &NodeName, pull: &PullStatus, standing: Option<&StandingPullStatus>) -> Vec<Cell> {
    let (progress, rate) = match pull.total_bytes {
        0 => (Cell::nothing(), Cell::nothing()),
        total => {
            let rate = bytes_per_second(pull);
            (
                Cell::from(format!("{}% of {}", units::share(pull.done_bytes, total, 100), units::bytes(total))).sorted_by(pull.done_bytes),
                Cell::from(format!("{}/s", units::bytes(rate))).sorted_by(rate),
            )
        }
    };
    let waits_for = match pull.state {
        PullState::Waiting => Cell::from("its turn"),
        PullState::Pulling | PullState::Unknown(_) => Cell::nothing(),
    };
    vec![
        Cell::from(pull.image.as_str()),
        Cell::from(node.as_str()),
        Cell::from(pull.state.as_str()),
        progress,
        rate,
        waits_for,
        Cell::age(standing.map_or(pull.since_ms, |status| status.since_ms)),
        Cell::count(pull.callers.into()),
        Cell::age_if(standing.map(|status| status.left_ms)),
        standing.map_or_else(Cell::nothing, |status| Cell::from(status.standing_pull.to_string())),
    ]
}

/// The cells of a node that does not answer: its pulls are unknown.
fn silent_cells(Silent { node, ago, .. }: &Silent) -> Vec<Cell> {
    let mut cells = vec![Cell::nothing(); COLUMNS.len()];
    cells[1] = Cell::from(node.as_str());
    cells[2] = Cell::from("silent").toned(Tone::Bad);
    cells[6] = Cell::age(silent::milliseconds(*ago));
    cells
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use actix::Actor as _;
    use bus::memory::MemoryBus;
    use clock::Clock;
    use contract::messages::pull_coordinator::{PullList, StandingPullList};
    use contract::messages::throttler::ListBudgets;
    use contract::subject::Fleet;
    use serde_json::{Value, json};

    use super::gather::joined;
    use super::*;
    use crate::commands::holds::tests::Leader;
    use crate::output::table::Look;

    fn node(name: &str) -> NodeName {
        name.parse().expect("a name")
    }

    fn pull(image: &str, state: &str, total_bytes: u64) -> PullStatus {
        let done_bytes = total_bytes / 4;
        let status = json!({ "image": image, "state": state, "since_ms": 4_000, "callers": 2, "done_bytes": done_bytes, "total_bytes": total_bytes });
        serde_json::from_value(status).expect("a status")
    }

    fn standing(state: &str, cause: &str, class: Value) -> StandingPullStatus {
        let status = json!({ "standing_pull": "4bf92f3577b34da6a3ce929d0e0e4736", "image": "registry.example/team/app:v9", "state": state,
            "since_ms": 660_000, "left_ms": 3_000_000, "attempts": 3, "cause": cause, "class": class, "next_attempt_ms": 41_000,
            "learned_by": "n3" });
        serde_json::from_value(status).expect("a status")
    }

    fn sample() -> (Vec<NodePulls>, Vec<Silent>) {
        let cause = "ErrImagePull: registry.example: 404 Not Found (MANIFEST_UNKNOWN: manifest unknown) for manifest v9";
        let answered = vec![
            NodePulls {
                node: node("n1"),
                pulls: vec![pull("registry.example/team/platform/application:v2", "pulling", 8 << 20), pull("busybox", "waiting", 0)],
                standing_pulls: vec![standing("held", cause, json!("not_found")), standing("waiting", "", Value::Null)],
            },
            NodePulls { node: node("n2"), pulls: Vec::new(), standing_pulls: vec![standing("pulling", "", Value::Null)] },
        ];
        let ago = Duration::from_secs(240);
        (answered, vec![Silent { node: node("n3"), ago, labels: None, known_for: 2 * ago }])
    }

    #[test]
    fn pulls_and_standing_pulls_stand_in_one_table_that_fits_80_columns() {
        let (answered, silent) = sample();
        assert_eq!(
            listing(&answered, &silent).table.lines(&Look::of_width(Some(79))),
            [
                "IMAGE           NODE  STATE     PROGRESS        RATE         WAITS FOR      AGE",
                "regis...ion:v2  n1    pulling   25% of 8.0 MiB  512.0 KiB/s  -              4s",
                "busybox         n1    waiting   -               -            its turn       4s",
                "regis...app:v9  n1    standing  -               -            404, in 41s    11m",
                "regis...app:v9  n1    standing  -               -            its turn       11m",
                "regis...app:v9  n2    standing  -               -            its pull       11m",
                "-               n3    silent    -               -            -              4m",
            ]
        );
    }

    #[test]
    fn standing_pull_that_waits_after_a_failure_says_for_what() {
        let failed = standing("waiting", "ErrImagePull: r.example: 503 Service Unavailable for manifest v9", json!("registry_unavailable"));
        let rows = |next_attempt_ms| {
            let standing_pulls = vec![StandingPullStatus { next_attempt_ms, learned_by: None, ..failed.clone() }];
            let answered = [NodePulls { node: node("n1"), pulls: Vec::new(), standing_pulls }];
            listing(&answered, &[]).table.lines(&Look { has_header: false, ..Look::of_width(None) })
        };
        assert_eq!(rows(None), ["registry.example/team/app:v9  n1  standing  -  -  503, its turn  11m"]);
        assert_eq!(rows(Some(41_000)), ["registry.example/team/app:v9  n1  standing  -  -  503, in 41s  11m"]);
    }

    #[test]
    fn standing_pull_of_a_node_that_has_not_asked_the_budget_yet_waits_for_its_quota_too() {
        actix::System::new().block_on(async {
            let clock = Clock::host();
            let client = FleetClient::new(Arc::new(MemoryBus::new(clock.clone())), Fleet::default(), clock);
            let _serving = actors::serve::<ListBudgets>(&client.wiring(&node("n1")), Leader.start().recipient()).await.expect("open");
            let limited = |name| {
                let standing_pulls = vec![standing("held", "", json!("rate_limited"))];
                NodePulls { node: node(name), pulls: Vec::new(), standing_pulls }
            };
            let mut answered = ["n1", "n2"].map(limited);
            delay(&client, &mut answered).await;
            assert_eq!(answered.map(|of_node| of_node.standing_pulls[0].next_attempt_ms), [Some(52_000), Some(52_000)]);
        });
    }

    #[test]
    fn standing_pulls_that_a_node_has_but_does_not_list_are_reported() {
        let late = || Err("the agent of n1 is silent for 3s".to_owned());
        for (count, listed, shown, expected) in [
            (1, Ok(vec![standing("held", "", Value::Null)]), 1, None),
            (3, Ok(vec![standing("held", "", Value::Null)]), 1, Some("n1: 2 more standing pulls, which one answer does not take")),
            (7, late(), 0, Some("n1: its 7 standing pulls are not listed: the agent of n1 is silent for 3s")),
            (0, Ok(Vec::new()), 0, None),
            // An agent of an older version does not know the question.
            (0, late(), 0, None),
        ] {
            let pulls = PullList { standing: count, ..PullList::default() };
            let standing_pulls = listed.map(|standing_pulls| {
                let left_out = count - standing_pulls.len() as u64;
                StandingPullList { standing_pulls, left_out }
            });
            let (answered, unanswered) = joined(vec![(node("n1"), Ok(pulls))], vec![(node("n1"), standing_pulls)]);
            assert_eq!(answered.iter().map(|of_node| of_node.standing_pulls.len()).sum::<usize>(), shown);
            assert_eq!(unanswered.first().map(String::as_str), expected);
        }
    }

    #[test]
    fn pulls_that_a_node_does_not_list_are_reported() {
        let pulls = PullList { left_out: 4, ..PullList::default() };
        let (_, unanswered) = joined(vec![(node("n1"), Ok(pulls))], Vec::new());
        assert_eq!(unanswered, ["n1: 4 more pulls, which one answer does not take"]);
    }

    #[test]
    fn pull_of_a_standing_pull_is_in_the_row_of_the_standing_pull() {
        let rows = |state: &str, total_bytes| {
            let standing_pulls = vec![standing("waiting", "", Value::Null)];
            let pulls = vec![pull("registry.example/team/app:v9", state, total_bytes)];
            let answered = [NodePulls { node: node("n1"), pulls, standing_pulls }];
            let wide = Look { is_wide: true, has_header: false, ..Look::of_width(None) };
            listing(&answered, &[]).table.lines(&wide)
        };
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(rows("waiting", 0), [format!("registry.example/team/app:v9  n1  standing  -  -  its turn  11m  0  50m  {id}")]);
        let pulling = format!("registry.example/team/app:v9  n1  pulling  25% of 8.0 MiB  512.0 KiB/s  -  11m  2  50m  {id}");
        assert_eq!(rows("pulling", 8 << 20), [pulling]);
    }

    #[test]
    fn the_wide_form_has_ids_in_full_and_names_are_what_cancel_takes() {
        let (answered, silent) = sample();
        let listing = listing(&answered, &silent);
        let lines = listing.table.lines(&Look { is_wide: true, ..Look::of_width(None) });
        assert!(lines[3].ends_with("50m   4bf92f3577b34da6a3ce929d0e0e4736"), "{lines:#?}");
        let names: Vec<&str> = listing.table.names().collect();
        assert_eq!(names[1..3], ["busybox", "4bf92f3577b34da6a3ce929d0e0e4736"]);
    }

    #[test]
    fn objects_have_kinds_and_no_figure_overflows() {
        let (mut answered, silent) = sample();
        (answered[0].pulls[0].done_bytes, answered[0].pulls[0].since_ms) = (u64::MAX, 0);
        let objects = objects(&answered, &silent, 0);
        let kinds: Vec<String> = objects
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["kind"].as_str().unwrap_or("-").to_owned())
            .collect();
        assert_eq!(kinds, ["pull", "pull", "standing_pull", "standing_pull", "standing_pull", "node"]);
        assert_eq!(listing(&answered, &silent).table.lines(&Look::of_width(Some(79))).len(), 7);
    }
}
