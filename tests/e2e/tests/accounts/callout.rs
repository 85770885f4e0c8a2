//! `fleetpull nats-auth` lets in users whose tokens a cluster or whose certificates an authority has signed, and logs why it refuses
//! others.

use bus::nats::{NatsBus, NatsOptions};
use bus::{BusHealth, Messaging as _};
use e2e::{Agent, Registry, Signal, Started, until};
use futures::StreamExt as _;
use memory_registry::MadeImage;
use serde_json::{Value, json};
use support::nats::current_program;
use support::requirement::met;

use super::tokens::{Cluster, ISSUER, claims, signed_part};
use super::{FOLDER, Fleet, LIMIT, are_well, connect, let_through};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn now_s() -> u64 {
    clock::Clock::host().now().wall_ms() / 1_000
}

/// A fleet whose server uses a callout that knows this cluster's keys.
struct Asked {
    fleet: Fleet,
    cluster: Cluster,
    callout: Started,
}

impl Asked {
    fn start() -> Self {
        let (fleet, cluster) = (Fleet::start(&["--auth-callout"], |text| text), Cluster::new());
        fleet.set_up();
        let jwks = fleet.place.write("jwks.json", cluster.jwks());
        let callout = start_callout(
            &fleet,
            &[
                "--jwks",
                &jwks,
                "--issuer",
                ISSUER,
                "--role",
                "node=fleetpull/agent",
                "--role",
                "operator=fleetpull/ops",
                "--role",
                "viewer=fleetpull/eyes",
            ],
        );
        Self { fleet, cluster, callout }
    }

    /// Connection options with this token, and an inbox prefix.
    fn options(&self, token: &str, inbox: &str) -> NatsOptions {
        let file = self.fleet.place.write("token", token);
        NatsOptions {
            urls: Some(self.fleet.url()),
            ca: Some(self.fleet.authority.certificate()),
            token_file: Some(file.into()),
            inbox_prefix: Some(format!("_INBOX_{inbox}")),
            ..NatsOptions::default()
        }
    }
}

fn start_callout(fleet: &Fleet, more: &[&str]) -> Started {
    let key = fleet.place.text_path(&format!("{FOLDER}/seeds/auth-callout.issuer.nk"));
    let callout = fleet.place.start(&[&["nats-auth", "--nats-context", "auth-callout", "--signing-key", &key], more].concat());
    until("the callout answers", || callout.stderr().contains("the auth callout answers").then_some(()));
    callout
}

/// Whether a server refuses this login.
fn is_turned_away(options: NatsOptions) -> bool {
    runtime().block_on(async {
        let bus = NatsBus::connect(options).await.unwrap();
        let mut states = bus.health_changes();
        let refused = async {
            loop {
                match states.next().await {
                    Some(BusHealth::Disconnected { reason }) if reason.contains("uthorization") => return true,
                    Some(BusHealth::Connected | BusHealth::Degraded { .. }) | None => return false,
                    Some(BusHealth::Disconnected { .. }) => {}
                }
            }
        };
        tokio::time::timeout(LIMIT, refused).await.expect("the server lets the login in or refuses it")
    })
}

#[test]
fn an_agent_with_a_projected_token_is_the_node_that_its_pod_is_on() {
    if met(current_program()).is_none() {
        return;
    }
    let asked = Asked::start();
    let fleet = &asked.fleet;
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    let token = fleet.place.write("n7.token", asked.cluster.rs256(&claims("agent", Some("n7"), now_s())) + "\n");
    let (url, ca) = (fleet.url(), fleet.ca());
    let agent = Agent::start(&fleet.place, "n7", &["--nats", &url, "--nats-ca", &ca, "--nats-token-file", &token]).ready();
    are_well(fleet, &["n7"]);
    fleet.run("operator", &["pull", &registry.image("shop/web:v1"), "--node", "n7"]).expect(0);
    until("its events are in the stream", || (runtime().block_on(fleet.stored_events()) >= 2).then_some(()));

    // The token permits publishing as n7 alone.
    let same = asked.options(&asked.cluster.es256(&json!({ "alg": "ES256", "kid": "ec-1" }), &claims("agent", Some("n7"), now_s())), "n7");
    let forged = ["fleetpull.v1.evt.Failed.ghcr_2eio.n1", "$KV.fleetpull-reports.n1.not_found.ab", "fleetpull.v1.know.pauses.all"];
    let tried: Vec<String> = forged.iter().chain(&["$KV.fleetpull-reports.n7.not_found.ab"]).map(|subject| (*subject).to_owned()).collect();
    let through = runtime().block_on(async { let_through(&connect(same).await, &tried).await });
    assert_eq!(through, ["$KV.fleetpull-reports.n7.not_found.ab"]);

    // A command with a token of another service account.
    let ops = fleet.place.write("ops.token", asked.cluster.rs256(&claims("ops", None, now_s())));
    let as_ops = ["nodes", "--nats", &url, "--nats-ca", &ca, "--nats-token-file", &ops, "--nats-inbox-prefix", "_INBOX_fleetpull_5fops"];
    let nodes = fleet.place.run(&as_ops).expect(0);
    assert!(nodes.stdout.contains("n7"), "{nodes}");
    let log = asked.callout.stderr();
    assert!(log.contains("let in") && log.contains("n7") && log.contains("role=operator"), "{log}");

    agent.signal(Signal::Terminate);
    assert_eq!(agent.end().status, 0);
    asked.callout.signal(Signal::Terminate);
    let (status, _, log) = asked.callout.wait();
    assert!(status == 0 && log.contains("has ended"), "{status} {log}");
}

/// Bad tokens: the change in the good claims, the token, and the expected log text.
fn bad_claims(cluster: &Cluster) -> Vec<(&'static str, String, &'static str)> {
    let now = now_s();
    let changed = |key: &str, value: Value| {
        let mut claims = claims("agent", Some("n7"), now);
        claims[key] = value;
        cluster.rs256(&claims)
    };
    let mut endless = claims("agent", Some("n7"), now);
    endless.as_object_mut().unwrap().remove("exp");
    vec![
        ("wrong audience", changed("aud", json!(["https://kubernetes.default.svc"])), "does not include the audience"),
        ("no audience", changed("aud", json!([])), "does not include the audience"),
        ("wrong issuer", changed("iss", json!("https://other.example")), "is not the one that was set"),
        ("expired", changed("exp", json!(now - 3_600)), "expired"),
        ("an expiry that is no number", changed("exp", json!("never")), "claims are not those"),
        ("not yet", changed("nbf", json!(now + 3_600)), "is valid in"),
        ("endless", cluster.rs256(&endless), "does not expire"),
        ("no node", cluster.rs256(&claims("agent", None, now)), "names no node"),
        ("a node's name that is a pattern", cluster.rs256(&claims("agent", Some("*"), now)), "is no name of a node"),
        ("another service account", cluster.rs256(&claims("default", Some("n7"), now)), "has no role"),
    ]
}

/// Tokens with good claims and bad signatures.
fn bad_signatures(cluster: &Cluster) -> Vec<(&'static str, String, &'static str)> {
    let good = claims("agent", Some("n7"), now_s());
    let es = |header: Value| cluster.es256(&header, &good);
    let mut tampered = cluster.rs256(&good);
    let at = tampered.len() - 20;
    let other = if tampered.as_bytes()[at] == b'A' { "B" } else { "A" };
    tampered.replace_range(at..=at, other);
    let moved = cluster.rs256(&claims("ops", None, now_s()));
    let moved = format!("{}.{}", signed_part(&json!({ "alg": "RS256", "kid": "rsa-1" }), &good), moved.rsplit('.').next().unwrap());
    let none = format!("{}.", signed_part(&json!({ "alg": "none" }), &good));
    let none_with_key = format!("{}.", signed_part(&json!({ "alg": "none", "kid": "rsa-1" }), &good));
    vec![
        ("another cluster's key", Cluster::new().es256(&json!({ "alg": "ES256", "kid": "ec-1" }), &good), "signature is wrong"),
        ("a key that there is not", es(json!({ "alg": "ES256", "kid": "ec-9" })), "not one of the cluster's"),
        ("a key of another kind", es(json!({ "alg": "ES256", "kid": "rsa-1" })), "signature is wrong"),
        ("HMAC by the public key", es(json!({ "alg": "HS256", "kid": "rsa-1" })), "only RS256 and ES256"),
        ("a changed signature", tampered, "signature is wrong"),
        ("another token's signature", moved, "signature is wrong"),
        ("alg none", none, "only RS256 and ES256"),
        ("alg none with a key", none_with_key, "only RS256 and ES256"),
        ("no token", "hunter2-hunter2-hunter2".to_owned(), "is no service-account token"),
        ("parts of nothing", "..".to_owned(), "is no service-account token"),
    ]
}

#[test]
fn bad_tokens_are_refused_with_the_reason_and_are_not_in_any_log() {
    if met(current_program()).is_none() {
        return;
    }
    let asked = Asked::start();
    let bad = [bad_claims(&asked.cluster), bad_signatures(&asked.cluster)].concat();
    let mut wrong = Vec::new();
    for (what, token, reason) in &bad {
        let before = asked.callout.stderr().len();
        let is_refused = is_turned_away(asked.options(token, "n7"));
        let log = until(&format!("the callout has logged what it did with {what}"), || {
            Some(asked.callout.stderr()).filter(|log| log[before..].contains("refused") || log[before..].contains("let in"))
        });
        let news = &log[before..];
        if !(is_refused && news.contains("refused") && news.contains(reason) && !news.contains("let in")) {
            wrong.push(format!("{what}: {news}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let logs = asked.callout.stderr() + &asked.fleet.server.log();
    for (what, token, _) in &bad {
        for part in token.split('.').filter(|part| part.len() >= 12) {
            assert!(!logs.contains(part), "{what}: a part of the token is in a log");
        }
    }
    // A client without a login is refused; a good token is still accepted.
    let (url, ca) = (asked.fleet.url(), asked.fleet.ca());
    let nobody = asked.fleet.place.run(&["nodes", "--nats", &url, "--nats-ca", &ca]);
    assert!(nobody.status == 1 && nobody.stderr.contains("uthorization"), "{nobody}");
    let good = asked.cluster.rs256(&claims("agent", Some("n7"), now_s()));
    runtime().block_on(async { drop(connect(asked.options(&good, "n7")).await) });
}

#[test]
fn keys_that_the_cluster_has_replaced_are_fetched_and_users_with_keys_need_no_callout() {
    if met(current_program()).is_none() {
        return;
    }
    let asked = Asked::start();
    let next = Cluster::new();
    let renamed = next.jwks().replace("ec-1", "ec-2");
    asked.fleet.place.write("jwks.json", renamed);
    let token = next.es256(&json!({ "alg": "ES256", "kid": "ec-2" }), &claims("agent", Some("n8"), now_s()));
    // The callout reads the keys at most once in 10 s; the client tries again until then.
    let options = asked.options(&token, "n8");
    runtime().block_on(async {
        let bus = NatsBus::connect(options).await.unwrap();
        bus.wait_connected(LIMIT * 3).await.unwrap();
    });
    asked.callout.signal(Signal::Terminate);
    assert_eq!(asked.callout.wait().0, 0);
    asked.fleet.run("viewer", &["nodes"]);
    runtime().block_on(async { drop(asked.fleet.connect("n1").await) });
}

#[test]
fn a_client_certificate_that_the_server_has_verified_is_a_node() {
    if met(current_program()).is_none() {
        return;
    }
    // The authority exists only once the fleet has started, so the server's configuration gets it below.
    let fleet = Fleet::start(&["--auth-callout"], |text| text);
    let verify = format!("  ca_file: {:?}\n  verify: true\n", fleet.ca());
    let text = std::fs::read_to_string(fleet.server.folder().join("server.conf")).unwrap();
    let text = text.replacen("  key_file:", &format!("{verify}  key_file:"), 1);
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("listen")).collect();
    let mut fleet = fleet;
    fleet.server.restart_with(support::nats::NatsConfig::default().without_jetstream().with(&lines.join("\n")));
    let (cert, key) = fleet.authority.issue_to("system:node:n5", Some("system:nodes"));
    let (stranger, stranger_key) = fleet.authority.issue_to("n6", Some("visitors"));
    let (files, others) =
        ([&cert, &key].map(|path| path.display().to_string()), [&stranger, &stranger_key].map(|path| path.display().to_string()));
    let own = ["--nats-cert", files[0].as_str(), "--nats-key", files[1].as_str()];
    fleet.run("setup", &[&["nats-setup"], &own[..]].concat()).expect(0);
    let callout = start_callout(&fleet, &[&["--certificate-role", "node=system:nodes"], &own[..]].concat());
    let (url, ca) = (fleet.url(), fleet.ca());
    let connection = ["--nats", &url, "--nats-ca", &ca];
    let agent = Agent::start(&fleet.place, "n5", &[&connection[..], &own, &["--nats-inbox-prefix", "_INBOX_n5"]].concat()).ready();
    until("n5 is well", || {
        let nodes = fleet.run("viewer", &[&["nodes", "-o", "json"], &own[..]].concat()).objects();
        nodes.iter().any(|node| node["node"] == "n5" && node["state"] == "ok").then_some(())
    });
    let refused = fleet.place.run(&[&["nodes"], &connection[..], &["--nats-cert", &others[0], "--nats-key", &others[1]]].concat());
    assert_eq!(refused.status, 1, "{refused}");
    let log = callout.stderr();
    assert!(log.contains("has no role") && log.contains("visitors") && log.contains("name=n5"), "{log}");
    drop(agent);
}

#[test]
fn a_callout_that_cannot_work_reports_the_error_and_ends() {
    let place = e2e::Workplace::new();
    place.run(&["nats-setup", "--accounts", FOLDER, "--node", "n1", "--auth-callout"]).expect(0);
    let seed = |name: &str| place.text_path(&format!("{FOLDER}/seeds/{name}.nk"));
    let (issuer, user) = (seed("auth-callout.issuer"), seed("n1"));
    let (empty, good) = (place.write("empty.json", "{\"keys\":[]}"), place.write("good.json", Cluster::new().jwks()));
    let role = ["--role", "node=fleetpull/agent", "--issuer", ISSUER];
    for (options, status, expected) in [
        (vec!["--signing-key", &issuer], 2, "no client could log in"),
        (vec!["--signing-key", "nowhere.nk", "--certificate-role", "node=a"], 1, "nowhere.nk"),
        (vec!["--signing-key", &user, "--certificate-role", "node=a"], 1, "not the seed of an account"),
        ([&["--signing-key", issuer.as_str(), "--jwks", "nowhere.json"][..], &role].concat(), 1, "nowhere.json"),
        ([&["--signing-key", issuer.as_str(), "--jwks", &empty][..], &role].concat(), 1, "no key for RS256"),
        ([&["--signing-key", issuer.as_str(), "--jwks", "http://127.0.0.1:1/jwks"][..], &role].concat(), 1, "only https"),
        ([&["--signing-key", issuer.as_str(), "--jwks", "https://127.0.0.1:1/jwks"][..], &role].concat(), 1, "127.0.0.1:1"),
        ([&["--signing-key", issuer.as_str(), "--jwks", &good][..], &role].concat(), 2, "no NATS server is named"),
        (vec!["--signing-key", &issuer, "--certificate-role", "boss=a"], 2, "ROLE=ORGANIZATION"),
        (vec!["--signing-key", &issuer, "--role", "node=agent", "--jwks", &good, "--issuer", ISSUER], 2, "ROLE=NAMESPACE/NAME"),
        (vec!["--signing-key", &issuer, "--jwks", &good], 2, "--issuer"),
    ] {
        let done = place.run(&[&["nats-auth"], options.as_slice()].concat()).expect(status);
        assert!(done.stderr.contains(expected), "{expected}: {done}");
    }
}
