//! Wrong usage: exit status 2, nothing on stdout, and a line with the correct usage.

use e2e::Workplace;

#[test]
fn wrong_usage_is_refused_with_the_correct_usage() {
    let place = Workplace::new();
    let table: [(&[&str], &str); 58] = [
        (&["pull"], "<IMAGE>"),
        (&["pull", "oci:./images:busybox"], "give the image's name alone"),
        (&["rm", "docker-archive:app.tar"], "skopeo copy docker-archive:app.tar docker://REGISTRY/NAME:TAG"),
        (&["backoff", "clear", "docker://"], "write docker://busybox"),
        (&["pull", ""], "give its name, like busybox"),
        (&["pull", " "], "give its name, like busybox"),
        (&["pull", "a", "--timeout", "30"], "a duration needs a unit, like 500ms, 30s"),
        (&["pull", "a", "--timeout", "0s"], "longer than nothing"),
        (&["pull", "a", "--timeout", "18446744073709551615s"], "at most 36500 days"),
        (&["pull", "a", "--policy", "Sometimes"], "Always, IfNotPresent, Never"),
        (&["pull", "a", "--platform", "linux"], "linux/amd64"),
        (&["pull", "a", "--pod", "web-0"], "NAMESPACE/NAME"),
        (&["pull", "a", "--output", "yaml"], "json"),
        (&["pull", "a", "--runtime", "docker"], "oci-layout, cri"),
        (&["pull", "a", "--runtime", "cri", "--runtime-endpoint", "tcp://10.0.0.1:1"], "unix:///run/containerd/containerd.sock"),
        (&["pull", "a", "--nats", "nats://127.0.0.1:1"], "--node NAME, --all-nodes or --selector LABELS"),
        (&["pull", "a", "--node", "n1", "--all-nodes"], "cannot be used with"),
        (&["pull", "a", "--node", "n1", "-l", "zone=a"], "cannot be used with"),
        (&["pull", "a", "-l", "zone in a", "--nats", "nats://127.0.0.1:1"], "as in `zone in (a, b)`"),
        (&["nodes", "-l", "zone=a b"], "`b` is out of place after a whole condition; a selector is"),
        (&["pull", "a", "-l", "", "--nats", "nats://127.0.0.1:1"], "without it every node is meant"),
        (&["pull", "a", "-l", "zone=a"], "give --nats URL"),
        (&["pull", "a", "--node", "n 1", "--nats", "nats://127.0.0.1:1"], "n 1"),
        (&["pull", "a", "--node", "n1"], "give --nats URL"),
        (&["pull", "a", "--all-nodes", "--plain-http", "--nats", "nats://127.0.0.1:1"], "hosts.toml"),
        (&["pull", "a", "--all-nodes", "--store", "s", "--nats", "nats://127.0.0.1:1"], "have their own"),
        (&["pull", "a", "--log-level", "loud"], "error, warn, info, debug, trace"),
        (&["pull", "a", "--config", "nowhere.toml"], "nowhere.toml"),
        (&["pul", "a"], "pull"),
        (&["nodes"], "give --nats URL"),
        (&["pull", "a", "--all-nodes", "--parallelism", "0"], "1 to 10000, or 1% to 100%"),
        (&["pull", "a", "--all-nodes", "--parallelism", "-3"], "1 to 10000, or 1% to 100%"),
        (&["pull", "a", "--all-nodes", "--parallelism", "101%"], "1 to 10000, or 1% to 100%"),
        (&["pull", "a", "--all-nodes", "--parallelism", "half"], "1 to 10000, or 1% to 100%"),
        (&["pull", "a", "--all-nodes", "--parallelism", "99999999999999999999"], "1 to 10000, or 1% to 100%"),
        (&["pull", "a", "--all-nodes", "--canary", "0"], "1..=10000"),
        (&["pull", "a", "--all-nodes", "--success-threshold", "95"], "like 95%"),
        (&["pull", "a", "--all-nodes", "--wait", "30"], "a duration needs a unit"),
        (&["pull", "a", "--all-nodes", "--wait", "30s", "--timeout", "5s"], "cannot be used with"),
        (&["pull", "a", "--all-nodes", "--detach"], "--wait"),
        (&["pull", "a", "--all-nodes", "--wait", "1m", "--detach", "--canary", "1"], "cannot be used with"),
        (&["pull", "a", "--all-nodes", "--wait", "1m", "--dry-run"], "cannot be used with"),
        (&["pull", "a", "--dry-run"], "are for many nodes"),
        (&["pull", "a", "--parallelism", "3"], "are for many nodes"),
        (&["backoff"], "list"),
        (&["backoff", "pause", "--all", "--for", "5"], "a duration needs a unit"),
        (&["backoff", "pause"], "--registry <REGISTRY>|--all"),
        (&["backoff", "pause", "--all", "--registry", "registry.example"], "cannot be used with"),
        (&["backoff", "pause", "--registry", "https://registry.example"], "is no registry"),
        (&["backoff", "clear"], "<KEY|IMAGE>"),
        (&["cancel"], "<ID|IMAGE>"),
        (&["explain", "a", "--store", "s", "--nats", "nats://127.0.0.1:1"], "other nodes have their own"),
        (&["explain", "pod", "web-0"], "which namespace is the pod web-0 in? Give -n NAMESPACE"),
        (&["explain", "a", "shop/web-0"], "explain takes one image, or `pod NAMESPACE/NAME`"),
        (&["explain", "a", "-n", "shop"], "explain pod NAME -n NAMESPACE"),
        (&["events", "--for", "node/n1"], "pod/NAME -n NAMESPACE"),
        (&["events", "--for", "pod/web-0"], "-n NAMESPACE"),
        (&["explain", "a", "--authfile", "f", "--node", "n1"], "other nodes have their own"),
    ];
    for (arguments, text) in table {
        let done = place.run(arguments).expect(2);
        assert_eq!(done.stdout, "", "{done}");
        assert!(done.stderr.contains(text), "{text:?} in {done}");
    }
}

#[test]
fn an_agent_needs_a_socket() {
    let place = Workplace::new();
    for wrong in ["agent.sock", "unix://agent.sock", "tcp://127.0.0.1:4222"] {
        let done = place.run(&["nodes", "--agent", wrong]).expect(2);
        assert!(done.stderr.contains("unix:///"), "{done}");
    }
    let missing = place.run(&["nodes", "--agent", "unix:///nonexistent/agent.sock"]).expect(1);
    assert!(missing.stderr.contains("/nonexistent/agent.sock"), "{missing}");
}

#[test]
fn fleet_that_is_not_reached_is_reported_once() {
    let done = Workplace::new().run(&["pull", "a", "--all-nodes", "--nats", "nats://127.0.0.1:1"]).expect(1);
    assert_eq!((done.stderr.matches("onnection refused").count(), done.stderr.contains("WARN")), (1, false), "{done}");
}
