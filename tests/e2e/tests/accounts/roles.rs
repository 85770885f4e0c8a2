//! Each role can do its work and no more: the server refuses forged messages.

use std::fmt::Write as _;

use e2e::{Agent, Registry, until};
use memory_registry::MadeImage;
use support::nats::current_program;
use support::requirement::met;

use super::{Fleet, are_well, let_through};

/// Subjects that a compromised node may try in the name of another, each with the permission that would have to be widened.
const FORGED: [(&str, &str); 16] = [
    ("fleetpull.v1.evt.Failed.ghcr_2eio.n2", "fleetpull.v1.evt.*.*.n1"),
    ("fleetpull.v1.evt.present.ghcr_2eio.n2", "fleetpull.v1.evt.*.*.n1"),
    ("fleetpull.v1.digest.n2", "fleetpull.v1.digest.n1"),
    ("$KV.fleetpull-reports.n2.not_found.ab", "$KV.fleetpull-reports.n1.>"),
    ("$KV.fleetpull-members.n2", "$KV.fleetpull-members.n1"),
    ("$KV.fleetpull-keys.other", "$KV.fleetpull-keys.fleet"),
    ("$KV.fleetpull-policy.fleet", "fleetpull.v1.cmd.n1.>"),
    ("fleetpull.v1.know.reports.n2.not_found.ab", "fleetpull.v1.cmd.n1.>"),
    ("fleetpull.v1.know.leases.registrar", "fleetpull.v1.cmd.n1.>"),
    ("fleetpull.v1.know.pauses.all", "fleetpull.v1.cmd.n1.>"),
    ("fleetpull.v1.know.policy.fleet", "fleetpull.v1.cmd.n1.>"),
    ("fleetpull.v1.cmd.n2.throttler.grant-budget.n2", "fleetpull.v1.cmd.*.throttler.grant-budget.n1"),
    ("fleetpull.v1.cmd.n2.throttler.return-budget.n2", "fleetpull.v1.cmd.*.throttler.return-budget.n1"),
    ("fleetpull.v1.cmd.n2.throttler.release", "fleetpull.v1.cmd.n1.>"),
    ("fleetpull.v1.cmd.n2.pull-coordinator.ensure", "fleetpull.v1.cmd.n1.>"),
    ("fleetpull.v1.cmd._all.agent.describe", "fleetpull.v1.cmd.n1.>"),
];
/// Subjects of leases, which belong to nodes, and requests that change a bucket.
const NOT_OF_ROLE: [&str; 9] = [
    "$KV.fleetpull-leases.attempt.lead.ab.1",
    "$KV.fleetpull-leaders.registrar",
    "$KV.fleetpull-pauses.all",
    "$KV.fleetpull-reports.n1.not_found.ab",
    "$KV.fleetpull-keys.fleet",
    "fleetpull.v1.know.reports.n1.not_found.ab",
    "fleetpull.v1.evt.Failed.ghcr_2eio.n1",
    "$JS.API.STREAM.DELETE.KV_fleetpull-leases",
    "$JS.API.STREAM.PURGE.FLEETPULL_EVENTS",
];

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn forged() -> Vec<String> {
    FORGED.iter().map(|(subject, _)| (*subject).to_owned()).collect()
}

#[test]
fn a_node_that_forges_is_refused_by_the_server() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start(&[], |text| text);
    fleet.set_up();
    let through = runtime().block_on(async { let_through(&fleet.connect("n1").await, &forged()).await });
    assert_eq!(through, [""; 0], "the server let a node speak for another");
    assert_eq!(runtime().block_on(fleet.stored_events()), 0, "nothing forged is stored");
    assert_eq!(fleet.violations().len(), FORGED.len(), "{:?}", fleet.violations());
}

/// Proves that the test above finds each permission that is too wide.
#[test]
fn a_permission_that_is_too_wide_is_found() {
    if met(current_program()).is_none() {
        return;
    }
    let widened = |text: String| {
        FORGED.iter().fold(text, |text, (subject, permission)| {
            let mut wider = String::new();
            write!(wider, "\"{permission}\"\n\"{subject}\"").unwrap();
            assert!(text.contains(permission), "{permission}");
            text.replacen(&format!("\"{permission}\""), &wider, 1)
        })
    };
    let fleet = Fleet::start(&[], widened);
    fleet.set_up();
    let through = runtime().block_on(async { let_through(&fleet.connect("n1").await, &forged()).await });
    assert_eq!(through, forged());
}

#[test]
fn only_nodes_write_and_only_operators_clear_pause_and_set_the_policy() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start(&[], |text| text);
    fleet.set_up();
    let (ensure, cancel) = ("fleetpull.v1.cmd.n1.pull-coordinator.ensure", "fleetpull.v1.cmd.n1.pull-coordinator.cancel");
    let (clear, pause) = ("fleetpull.v1.cmd.n1.backoff-tracker.clear", "fleetpull.v1.cmd.n1.backoff-tracker.pause");
    let list = "fleetpull.v1.cmd.n1.backoff-tracker.list";
    let policy = "$KV.fleetpull-policy.fleet";
    let commands = [list, ensure, cancel, clear, pause, policy];
    for (user, allowed) in [("viewer", &commands[..1]), ("puller", &commands[..3]), ("operator", &commands[..]), ("setup", &[])] {
        let subjects: Vec<String> = NOT_OF_ROLE.iter().chain(&commands).map(|subject| (*subject).to_owned()).collect();
        let through = runtime().block_on(async { let_through(&fleet.connect(user).await, &subjects).await });
        assert_eq!(through, allowed, "{user}");
    }
}

#[test]
fn nodes_work_in_full_and_each_role_does_what_it_is_for() {
    if met(current_program()).is_none() {
        return;
    }
    let (fleet, registry) = (Fleet::start(&[], |text| text), Registry::new());
    for tag in 1..=3_u64 {
        registry.add_image("shop/web", &format!("v{tag}"), &MadeImage::of_layers([4_000 + tag]));
    }
    let image = |tag: &str| registry.image(&format!("shop/web:{tag}"));
    fleet.set_up();
    let agents = ["n1", "n2"].map(|node| Agent::start(&fleet.place, node, &["--nats-context", node]).ready());
    are_well(&fleet, &["n1", "n2"]);

    fleet.run("operator", &["pull", &image("v1"), "--all-nodes"]).expect(0);
    fleet.run("puller", &["pull", &image("v2"), "--all-nodes"]).expect(0);
    until("the events of both nodes are in the stream", || (runtime().block_on(fleet.stored_events()) >= 4).then_some(()));
    for (command, status) in [
        (&["budget", "list"][..], 0),
        (&["policy", "get"], 0),
        (&["backoff", "list"], 0),
        (&["pulls"], 0),
        (&["events"], 0),
        (&["report"], 0),
        (&["nodes", "n1"], 0),
    ] {
        for user in ["viewer", "puller", "operator"] {
            fleet.run(user, command).expect(status);
        }
    }
    assert_eq!(fleet.violations(), [""; 0], "no client has made a forbidden request");

    let pulled = fleet.run("viewer", &["pull", &image("v3"), "--node", "n1"]);
    assert_ne!(pulled.status, 0, "a viewer lets nothing be pulled: {pulled}");
    let missing = image("missing");
    assert_ne!(fleet.run("puller", &["pull", &missing, "--node", "n1"]).status, 0);
    for user in ["viewer", "puller"] {
        for command in [&["backoff", "clear", missing.as_str()][..], &["backoff", "pause", "--all"], &["policy", "set", "/dev/null"]] {
            let done = fleet.run(user, command);
            assert!(![0, 2].contains(&done.status), "{user} may not: {done}");
        }
    }
    fleet.run("operator", &["backoff", "clear", &missing]).expect(0);
    fleet.run("operator", &["backoff", "pause", "--all"]).expect(0);
    fleet.run("operator", &["policy", "set", "/dev/null"]).expect(0);
    drop(agents);
}
