//! Three agents on a real nats-server, used as an operator uses them.

use std::collections::{BTreeMap, BTreeSet};

use e2e::{Finished, Registry, Signal, Workplace, until};
use memory_registry::{BodyFault, Fault, MadeImage};
use serde_json::{Value, json};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use super::common::{check_row, small};
use super::three_agents::{Fleet, NODES, outcomes};

#[test]
fn every_node_that_is_asked_has_its_row() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let added = registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let all = fleet.rows(&["pull", &image, "--all-nodes"], 0);
    assert_eq!(outcomes(&all), NODES.into_iter().map(|node| (node, "pulled".to_owned())).collect());
    assert!(all.iter().all(|row| row["digest"] == added.digest && row["image"] == image), "{all:?}");
    let traces: BTreeSet<&str> = all.iter().map(|row| row["trace_id"].as_str().unwrap()).collect();
    assert_eq!(traces.len(), 3, "one trace a pull");
    let two = fleet.rows(&["pull", &image, "--node", "n1", "--node", "n3", "--node", "n1"], 0);
    assert_eq!(outcomes(&two), BTreeMap::from([("n1", "present".to_owned()), ("n3", "present".to_owned())]));
    let ghost = fleet.rows(&["pull", &image, "--node", "n2", "--node", "ghost"], 3);
    assert_eq!(outcomes(&ghost), BTreeMap::from([("n2", "present".to_owned()), ("ghost", "failed  unknown".to_owned())]));
    let _ = fleet.run(&["pull", &image, "--node", "ghost"]).expect(1);
    let text = fleet.run(&["pull", &image, "--all-nodes"]).expect(0);
    assert_eq!(text.stdout.lines().count(), 3, "{text}");
    assert!(text.stderr.contains("3 of 3 are there (0 pulled, 3 present before), 0 failed, 0 in back-off."), "{text}");
    let advised = text.stderr.lines().find_map(|line| line.trim().strip_prefix("fleetpull ")).unwrap_or_else(|| panic!("{text}"));
    let asked = fleet.run(&advised.split(' ').collect::<Vec<_>>()).expect(0);
    assert!(asked.stdout.contains("nothing would be pulled"), "{asked}");
    assert_eq!(fleet.run(&["pull", &image, "--all-nodes", "-q"]).expect(0).stderr, "");
}

#[test]
fn a_failure_is_held_back_and_explained_on_each_node() {
    let Some(fleet) = Fleet::start(&[("FLEETPULL_FLEET_SHARE", "off")]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    let first = fleet.rows(&["pull", &image, "--all-nodes"], 1);
    assert!(outcomes(&first).values().all(|outcome| outcome == "failed ErrImagePull not_found"), "{first:?}");
    let again = fleet.rows(&["pull", &image, "--all-nodes"], 4);
    assert!(outcomes(&again).values().all(|outcome| outcome == "backoff ImagePullBackOff not_found"), "{again:?}");
    for row in &again {
        let message = row["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("Back-off pulling image \"{image}\": ErrImagePull: ")), "{row}");
        assert!((1..=10_000).contains(&row["next_attempt_ms"].as_u64().unwrap()), "{row}");
    }
    assert_eq!(registry.counts().failing, 3, "one request a node");
    let text = fleet.run(&["pull", &image, "--node", "n1"]).expect(4);
    assert!(text.stdout.contains("(next attempt in "), "an agent remembers: {text}");

    let explained = fleet.rows(&["explain", &image, "--node", "n2"], 0).remove(0);
    assert_eq!((&explained["node"], &explained["pull"]["class"]), (&json!("n2"), &json!("not_found")), "{explained}");
    assert!(explained["pull"]["cause"].as_str().unwrap().contains("404") && explained["pull"]["next_attempt_ms"].is_u64(), "{explained}");
    assert_eq!(fleet.rows(&["explain", &image], 0).len(), 3, "without a name every node answers");
    let text = fleet.run(&["explain", &image, "--node", "n2"]).expect(0);
    assert!(text.stdout.contains("ImagePullBackOff") && text.stdout.contains("error: "), "{text}");

    let other_pod = fleet.rows(&["pull", &image, "--node", "n1", "--pod", "shop/web-0"], 1).remove(0);
    assert_eq!(other_pod["reason"], "ErrImagePull", "a pod has a back-off of its own");
    let described = fleet.rows(&["nodes"], 0);
    let held: Vec<&Value> = described.iter().map(|row| &row["backoff"]).collect();
    assert_eq!(held, [&json!(2), &json!(1), &json!(1)]);
    let counters = fleet.rows(&["nodes", "n2", "--counters"], 0).remove(0);
    assert!(counters["counters"]["backoff_refused_total"].as_u64() >= Some(1), "{counters}");
}

#[test]
fn running_and_queued_pulls_are_listed() {
    let Some(fleet) = Fleet::start(&[("FLEETPULL_PULL_SERIAL", "true")]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([600_000]));
    registry.add_image("shop/db", "v1", &small().seeded(2));
    registry.faults().add(Fault::body("/shop/web/blobs/", BodyFault::BytesPerSecond(150_000)));
    let (web, db) = (registry.image("shop/web:v1"), registry.image("shop/db:v1"));
    let on_n1 = ["--node", "n1", "-o", "json"];
    let slow = [&["pull", &web], on_n1.as_slice()].concat();
    let first = fleet.place.start(&slow);
    let busy = until("the pull is under way", || {
        let pulls = fleet.rows(&["pulls"], 0);
        pulls.into_iter().find(|pull| pull["state"] == "pulling" && pull["done_bytes"].as_u64() > Some(0))
    });
    assert_eq!((&busy["node"], &busy["image"]), (&json!("n1"), &json!(web)), "{busy}");
    assert!(busy["total_bytes"].as_u64() > Some(500_000) && busy["since_ms"].is_u64() && busy["bytes_per_second"].is_u64(), "{busy}");

    let out_of_time = fleet.rows(&["pull", &db, "--node", "n1", "--timeout", "300ms"], 5).remove(0);
    assert_eq!((&out_of_time["outcome"], &out_of_time["timed_out"]), (&json!("failed"), &json!(true)), "{out_of_time}");
    let joined = fleet.place.start(&slow);
    let queued = fleet.place.start(&[&["pull", &db], on_n1.as_slice()].concat());
    let table = until("one is pulling for two callers, one is waiting", || {
        let pulls = fleet.rows(&["pulls", "--node", "n1"], 0);
        let state = |image: &str| pulls.iter().find(|pull| pull["image"] == image).map(|pull| pull["state"].clone());
        let callers = pulls.iter().find(|pull| pull["image"] == web)?["callers"].clone();
        (state(&web)? == "pulling" && state(&db)? == "waiting" && callers == 2).then(|| fleet.run(&["pulls"]))
    });
    assert!(table.stdout.starts_with("IMAGE ") && table.stdout.contains("waiting") && table.stdout.contains(" of "), "{table}");
    for (process, outcome) in [(first, "pulled"), (joined, "pulled"), (queued, "pulled")] {
        assert_eq!(Finished::of(&slow, process).expect(0).object()["outcome"], outcome);
    }
    assert!(registry.blobs_served().values().all(|times| *times == 1), "two callers, one download");
    let idle = fleet.run(&["pulls"]).expect(0);
    assert!(idle.stderr.contains("nothing is in flight"), "{idle}");
}

#[test]
fn a_selector_names_nodes_by_their_labels() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let names = |rows: Vec<Value>| -> BTreeSet<String> { rows.iter().map(|row| row["node"].as_str().unwrap().to_owned()).collect() };
    let selectors = [
        ("zone=a", &["n1", "n2"][..]),
        ("zone!=a", &["n3"]),
        ("zone,!gpu", &NODES),
        ("zone in (b, c)", &["n3"]),
        ("zone in (a, b),zone notin (b),rack notin (r1)", &["n1", "n2"]),
    ];
    for (selector, expected) in selectors {
        let expected: BTreeSet<String> = expected.iter().map(|node| (*node).to_owned()).collect();
        for command in [&["pull", &image][..], &["nodes"], &["explain", &image]] {
            assert_eq!(names(fleet.rows(&[command, &["-l", selector]].concat(), 0)), expected, "{command:?} {selector}");
        }
    }
    let of_b = fleet.rows(&["events", "--selector", "zone=b"], 0);
    assert!(!of_b.is_empty() && of_b.iter().all(|event| event["data"]["node"] == "n3"), "{of_b:?}");
    let both = fleet.rows(&["pull", &image, "--all-nodes", "-l", "zone=a"], 0);
    assert_eq!(both.len(), 2, "--all-nodes with a selector is the selector");
    for command in [&["pull", &image][..], &["nodes"], &["pulls"], &["events"]] {
        let none = fleet.run(&[command, &["-l", "zone=c"]].concat()).expect(1);
        assert!(none.stdout.is_empty() && none.stderr.contains("no node has the labels zone=c: 3 answered"), "{none}");
    }
}

#[test]
fn ctrl_c_ends_the_wait_and_pulls_without_other_callers() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([300_000]));
    registry.faults().add(Fault::body("/blobs/", BodyFault::BytesPerSecond(3_000)));
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", &image, "--node", "n1"];
    let pulling = fleet.place.start(&arguments);
    until("the agent fetches", || (registry.counts().peak_blobs_in_flight > 0).then_some(()));
    pulling.signal(Signal::Interrupt);
    let done = Finished::of(&arguments, pulling).expect(130);
    assert!(done.stderr.contains("the nodes stop within seconds the pulls that no other caller wants"), "{done}");
    until("the agent stops", || fleet.rows(&["pulls", "--node", "n1"], 0).is_empty().then_some(()));
    assert_eq!(fleet.rows(&["explain", &image, "--node", "n1"], 0)[0]["pull"]["present"], false);
}

/// Follows events with these arguments until there are `wanted` lines, then ends the command as Ctrl-C does.
fn follow(fleet: &Fleet, more: &[&str], cause: impl FnOnce(), wanted: usize) -> Vec<Value> {
    let arguments = [&["events", "--follow", "-o", "json"], more].concat();
    let following = fleet.place.start(&arguments);
    until("it follows", || following.stderr().contains("following").then_some(()));
    cause();
    until("the events come", || (following.stdout().lines().count() >= wanted).then_some(()));
    following.signal(Signal::Interrupt);
    Finished::of(&arguments, following).expect(0).objects()
}

#[test]
fn events_are_listed_followed_and_filtered() {
    // The nodes do not share, so that each makes its own attempt and all have the same events.
    let Some(fleet) = Fleet::start(&[("FLEETPULL_FLEET_SHARE", "off")]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let (image, missing) = (registry.image("shop/web:v1"), registry.image("shop/web:v9"));
    let pull = |image: &str| fleet.run(&["pull", image, "--all-nodes", "-q"]);
    let reasons =
        |events: &[Value]| -> Vec<String> { events.iter().map(|event| event["data"]["reason"].as_str().unwrap().to_owned()).collect() };

    let followed = follow(&fleet, &["--node", "n2"], || drop(pull(&image)), 2);
    assert_eq!(reasons(&followed), ["Pulling", "Pulled"]);
    let by_socket = follow(&fleet, &["--agent", &fleet.socket("n3")], || drop(pull(&missing)), 2);
    assert_eq!(reasons(&by_socket), ["Pulling", "Failed"]);
    let failed = follow(&fleet, &["--reason", "BackOff"], || drop(pull(&missing)), 3);
    assert_eq!(reasons(&failed), ["BackOff"; 3]);

    for (filter, expected) in [
        (&[][..], 3 * 5),
        (&["--node", "n1"], 5),
        (&["--reason", "Failed"], 3),
        (&["--node", "n1", "--reason", "Pulling"], 2),
        (&["--image", image.as_str()], 3 * 2),
        (&["--image", "nobody/asked"], 0),
    ] {
        let mut kept = fleet.rows(&[&["events"], filter].concat(), 0);
        kept.retain(|event| !event["data"]["image"].is_null());
        assert_eq!(kept.len(), expected, "{filter:?}: {kept:?}");
        let times: Vec<&str> = kept.iter().map(|event| event["time"].as_str().unwrap()).collect();
        assert!(times.is_sorted_by_key(|time| time.trim_end_matches('Z')), "oldest first: {times:?}");
    }
    let event = &fleet.rows(&["events", "--node", "n1", "--reason", "Pulled"], 0)[0];
    assert_eq!((&event["specversion"], &event["type"]), (&json!("1.0"), &json!("io.fleetpull.image.pulled")));
    assert!(event["source"].as_str().unwrap().starts_with("/fleetpull/nodes/n1/"), "{event}");
    assert_eq!(event["subject"], json!(image));
    let text = fleet.run(&["events", "--node", "n1", "--reason", "Pulling", "--image", &image]).expect(0);
    assert!(text.stdout.starts_with("LAST SEEN           TYPE     REASON             NODE          "), "{text}");
    let columns = text.stdout.lines().nth(1).unwrap().split_whitespace().skip(1).collect::<Vec<_>>();
    assert!(columns.starts_with(&["Normal", "Pulling", "n1", &image]), "{text}");
    let newest = fleet.run(&["events", "--node", "n1", "--tail", "1", "--no-headers"]).expect(0);
    assert_eq!(newest.stdout.lines().count(), 1, "{newest}");
    assert!(fleet.run(&["events", "--node", "ghost"]).expect(1).stderr.contains("no agent of that name"));
    assert!(fleet.run(&["events", "--reason", "Nonsense"]).expect(2).stderr.contains("ErrImageNeverPull"));
}

#[test]
fn a_node_that_goes_silent_has_a_row_and_holds_up_nobody() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([300_000]));
    registry.faults().add(Fault::body("/blobs/", BodyFault::BytesPerSecond(200_000)));
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", &image, "--all-nodes", "-o", "json"];
    let pulling = fleet.place.start(&arguments);
    until("all three fetch the layer", || (registry.counts().peak_blobs_in_flight >= 3).then_some(()));
    fleet.agents["n2"].signal(Signal::Stop);
    let rows = Finished::of(&arguments, pulling).expect(3).objects();
    let outcome_of = outcomes(&rows);
    assert_eq!(
        outcome_of,
        BTreeMap::from([("n1", "pulled".to_owned()), ("n2", "failed  unknown".to_owned()), ("n3", "pulled".to_owned())])
    );
    let silent = rows.iter().find(|row| row["node"] == "n2").unwrap();
    assert!(silent["message"].as_str().unwrap().contains("the agent of n2 is silent"), "{silent}");

    let in_time = fleet.rows(&["pull", &image, "--node", "n1", "--node", "n2", "--timeout", "500ms"], 5);
    let silent = in_time.iter().find(|row| row["node"] == "n2").unwrap();
    assert_eq!((outcomes(&in_time)["n1"].as_str(), &silent["timed_out"]), ("present", &json!(true)), "{in_time:?}");
    assert_eq!(fleet.answering(), BTreeSet::from(["n1".to_owned(), "n3".to_owned()]));
    let commands = [&["nodes", "n2"][..], &["pulls", "--node", "n2"], &["events", "--node", "n2"], &["explain", &image, "--node", "n2"]];
    // All commands run at the same time, because each waits some seconds for an answer.
    for (command, started) in commands.map(|command| (command, fleet.place.start(command))) {
        let done = Finished::of(command, started).expect(1);
        assert!(done.output().contains("the agent of n2 is silent"), "{done}");
    }
    fleet.agents["n2"].signal(Signal::Continue);
    until("it answers again", || fleet.answering().contains("n2").then_some(()));
}

#[test]
fn without_the_bus_each_agent_answers_on_its_socket() {
    let Some(mut fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let (image, missing) = (registry.image("shop/web:v1"), registry.image("shop/web:v9"));
    fleet.nats.kill();
    let url = fleet.socket("n2");
    let state = until("the loss is seen", || {
        let node = fleet.rows(&["nodes", "--agent", &url], 0).remove(0);
        assert_eq!(node["node"], "n2");
        node["state"].as_str().filter(|state| *state != "ok").map(str::to_owned)
    });
    assert!(state.starts_with("degraded: no bus since 2"), "{state}");
    assert_eq!(outcomes(&fleet.rows(&["pull", &image, "--agent", &url], 0)), BTreeMap::from([("n2", "pulled".to_owned())]));
    let _ = fleet.run(&["pull", &missing, "--agent", &url]).expect(1);
    let _ = fleet.run(&["pull", &missing, "--agent", &url]).expect(4);
    let kept = fleet.rows(&["events", "--agent", &url], 0);
    // A node that finds no leader of the budget records that it waited.
    let of_images = kept.iter().filter(|event| !event["data"]["image"].is_null());
    let of_images: Vec<&str> =
        of_images.filter_map(|event| event["data"]["reason"].as_str()).filter(|reason| *reason != "Throttled").collect();
    assert_eq!(of_images, ["Pulling", "Pulled", "Pulling", "Failed", "BackOff"]);
    assert!(kept.iter().any(|event| event["data"]["reason"] == "AgentDegraded" && event["data"]["cause"] == "bus"), "{kept:?}");
    assert_eq!(fleet.rows(&["explain", &image, "--agent", &url], 0)[0]["pull"]["present"], true);
    assert_eq!(fleet.rows(&["pulls", "--agent", &url], 0).len(), 0);
    assert_eq!(fleet.rows(&["nodes", "n2", "--counters", "--agent", &url], 0)[0]["counters"]["bus_connected"], 0);
    let table = fleet.run(&["nodes", "--agent", &url]).expect(0);
    assert!(table.stdout.contains("degraded: no bus since "), "{table}");

    for command in [&["status"][..], &["nodes"], &["pulls"], &["events"], &["pull", &image, "--all-nodes"]] {
        let done = fleet.run(command).expect(1);
        assert!(done.stdout.is_empty() && done.stderr.contains("--agent unix://"), "the error names the other way: {done}");
    }
    // How the reference is parsed is known all the same, so `explain` prints the error among its facts.
    let explained = fleet.run(&["explain", &image]).expect(1);
    assert!(explained.stdout.contains("--agent unix://") && explained.stdout.contains("repository: "), "{explained}");
    let row = fleet.rows(&["pull", &image, "--node", "n1"], 1).remove(0);
    assert!(check_row(&row) == "failed  unknown" && row["message"].as_str().unwrap().contains(&fleet.nats.address()), "{row}");

    fleet.nats.restart();
    until("all agents are back", || (fleet.answering().len() == 3).then_some(()));
}

#[test]
fn two_fleets_on_one_server_never_mix() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let other = fleet.run(&["nodes", "--fleet", "other"]).expect(1);
    assert!(other.stderr.contains("no agent answers in the fleet \"other\": is `fleetpull run` at work"), "{other}");
    for command in [&["pulls"][..], &["events"], &["pull", "a:1", "--all-nodes"]] {
        let done = fleet.run(&[command, &["--fleet", "other"]].concat()).expect(1);
        assert!(done.stdout.is_empty() && done.stderr.contains("no agent answers in the fleet \"other\""), "{done}");
    }
    let row = fleet.rows(&["pull", "a:1", "--node", "n1", "--fleet", "other"], 1).remove(0);
    assert!(row["message"].as_str().unwrap().contains("no agent of that name in the fleet \"other\""), "{row}");
}

#[test]
fn the_servers_password_is_in_no_log_of_agents_and_commands() {
    const PASSWORD: &str = "hunter2-s3cret";
    if met(current_program()).is_none() {
        return;
    }
    let nats = NatsServer::start(NatsConfig::default().with(&format!("authorization {{ user: bob, password: \"{PASSWORD}\" }}")));
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let place = Workplace::new().with("FLEETPULL_LOG_LEVEL", "trace");
    let url = |password: &str| format!("nats://bob:{password}@{}", nats.address());
    let agent = place.start(&["run", "--node", "n1", "--store", "n1", "--nats", &url(PASSWORD)]);
    until("the agent answers", || (place.run(&["nodes", "--nats", &url(PASSWORD)]).status == 0).then_some(()));
    let pulled = place.run(&["pull", &registry.image("shop/web:v1"), "--node", "n1", "--nats", &url(PASSWORD)]).expect(0);
    let refused = place.run(&["nodes", "--nats", &url("wrong-s3cret")]).expect(1);
    assert!(refused.stderr.contains("refused") || refused.stderr.to_lowercase().contains("authorization"), "{refused}");
    agent.signal(Signal::Terminate);
    let (status, stdout, stderr) = agent.wait();
    assert_eq!(status, 0, "{stderr}");
    for text in [stdout, stderr, pulled.output(), refused.output()] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}
