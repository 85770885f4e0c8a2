use contract::messages::agent::{BusLoss, NodeDescription};

use super::super::samples::{Sample, description, missing};
use super::tests::{APP, assert_shown, shown};

const REFUSED: &str = "connection refused (os error 111)";

/// What n1 knows without a bus, while it waits for an image.
fn cut_off(reason: &str) -> Sample {
    Sample::of(1).knowing(&missing("0be1", APP)).waiting(1, APP, 60_000).with(|answers| {
        answers.of_one_node = true;
        (answers.servers, answers.answered_in_ms) = (None, None);
        let state = format!("degraded: no bus since 2026-01-31T12:00:00Z: {reason}");
        let bus_loss = Some(BusLoss { since_ms: 252_000, reason: reason.to_owned() });
        answers.nodes[0] = NodeDescription { state, since_ms: 252_000, oldest_unsent_ms: 250_000, waiting: 1, bus_loss, ..description(1) };
    })
}

#[test]
fn nats_that_is_dead_as_one_node_sees_it() {
    assert_shown(
        || cut_off(REFUSED),
        &["n1 has had no bus for 4m12s", "1 node waits for 1 image, next attempt in 41s", REFUSED, "reconnects automatically"],
        [
            r"
n1 has had no bus for 4m12s, 1 node waits for 1 image,
    next attempt in 41s: connection refused (os error 111),
    it uses kubelet's back-off and reconnects automatically
BUS      lost for 4m12s; oldest unsent event 4m10s
FLEET    prod-eu, as n1 knows it, 1 enforce, policy r41
NODES    1: 0 ready, 1 degraded (n1 for 4m12s), version 0.1.0
PULLS    0 running, 1 waiting, oldest wait 60s
ID    WHAT                          STATE      CAUSE     SINCE  NEXT    WAITING
0be1  registry.example/team/app:v9  not found  404 (n1)  11m    in 41s  1 node
",
            r"
n1 has had no bus for 4m12s, 1 node waits for 1 image, next attempt in 41s: connection refused (os error 111),
    it uses kubelet's back-off and reconnects automatically
BUS      lost for 4m12s; oldest unsent event 4m10s
FLEET    prod-eu, as n1 knows it, 1 enforce, policy r41
NODES    1: 0 ready, 1 degraded (n1 for 4m12s), version 0.1.0
PULLS    0 running, 1 waiting, oldest wait 60s
ID    WHAT                          SCOPE  STATE      CAUSE     SINCE  NEXT ATTEMPT  WAITING
0be1  registry.example/team/app:v9  image  not found  404 (n1)  11m    in 41s        1 node, 1 image
",
        ],
    );
}

#[test]
fn first_five_lines_name_all_that_matters_also_if_each_server_of_a_cluster_has_its_own_trouble() {
    let reason = "no NATS server is reached (nats://nats-1.fleet.example:4222: Connection refused (os error 111); no server listens \
                  there: start it, or correct the URL; nats://nats-2.fleet.example:4222: timed out; nothing answers there: check the \
                  network, the port and whether the server hangs; nats://nats-3.fleet.example:4222: the name cannot be resolved; \
                  correct the URL or the name service)";
    let text = shown(cut_off(reason), 80);
    let five: Vec<&str> = text.lines().take(5).map(str::trim_start).collect();
    let five = five.join(" ");
    for part in ["n1 has had no bus for 4m12s", "1 node waits for 1 image, next attempt in 41s", "Connection refused"] {
        assert!(five.contains(part), "{part} in the first five lines of {text}");
    }
}

#[test]
fn sentence_on_a_dead_bus_gives_no_next_attempt_if_nothing_waits() {
    let sample = Sample::of(1).knowing(&missing("0be1", APP)).with(|answers| {
        answers.of_one_node = true;
        let bus_loss = BusLoss { since_ms: 252_000, reason: REFUSED.to_owned() };
        answers.nodes[0] = NodeDescription { bus_loss: Some(bus_loss), ..description(1) };
    });
    let text = shown(sample, 140);
    let first = "n1 has had no bus for 4m12s: connection refused (os error 111), it uses kubelet's back-off and reconnects automatically\n";
    assert!(text.starts_with(first) && text.contains("in 41s"), "{text}");
}
