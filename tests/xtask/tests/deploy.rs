//! Checks that the files in deploy/ do what their comments promise, as far as this machine can tell.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bus::nats::{NatsBus, NatsOptions, SetupOptions};
use bus::{BucketSpec, BusError, KeyValue, Message, Messaging, SharedState};
use bytes::Bytes;
use futures::StreamExt;
use support::nats::{Accounts, NatsServer, current_program};
use support::requirement::met;
use tempfile::TempDir;

/// A limit that nothing here reaches on a busy machine.
const LIMIT: Duration = Duration::from_secs(10);
/// A server refuses by not answering, so a message that has not come within this time counts as refused. If it came later, the next run
/// would fail.
const REFUSED_AFTER: Duration = Duration::from_secs(1);

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(deploy(file)).unwrap()
}

/// A server with the example's accounts, with keys that this test has created.
struct Fleet {
    server: NatsServer,
    accounts: Accounts,
    contexts: TempDir,
}

impl Fleet {
    /// Starts a server and creates the buckets of a fleet with the login that may do so.
    async fn start() -> Self {
        let accounts = Accounts::new();
        let server = NatsServer::start(accounts.config());
        let fleet = Self { server, accounts, contexts: TempDir::new().unwrap() };
        let setup = fleet.connect("setup").await;
        for purpose in BUCKETS {
            setup.set_up(&spec(purpose), SetupOptions::default()).await.unwrap();
        }
        fleet
    }

    /// Connects as the comments of the example describe: by a context with nkey, authority and inbox prefix.
    async fn connect(&self, user: &str) -> NatsBus {
        self.accounts.write_context(self.contexts.path(), user, &self.server.address());
        let config_home = Some(self.contexts.path().to_owned());
        let bus = NatsBus::connect(NatsOptions { context: Some(user.to_owned()), config_home, ..NatsOptions::default() }).await.unwrap();
        bus.wait_connected(LIMIT).await.unwrap();
        bus
    }

    /// The configurations of the buckets, and the number of entries in each.
    async fn buckets(&self) -> Vec<serde_json::Value> {
        let setup = self.connect("setup").await;
        let mut all = Vec::new();
        for purpose in BUCKETS {
            let asked = Message::new(format!("$JS.API.STREAM.INFO.KV_fleetpull-{purpose}"), "");
            let answer = setup.request(asked, LIMIT).await.unwrap();
            let mut info: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
            assert!(info["error"].is_null(), "{info}");
            all.push(serde_json::json!([info["config"].take(), info["state"]["messages"], info["created"]]));
        }
        all
    }
}

fn message(subject: &str) -> Message {
    Message::new(subject.to_owned(), Bytes::from_static(b"x"))
}

/// Waits for the next message; panics if none comes.
async fn next(subscription: &mut bus::Subscription) -> Message {
    tokio::time::timeout(LIMIT, subscription.next()).await.expect("a message comes").expect("the subscription stands")
}

/// Answers the next request.
async fn answer(bus: &NatsBus, requests: &mut bus::Subscription) {
    let asked = next(requests).await;
    bus.publish(message(&asked.reply_to.expect("it is a request"))).await.unwrap();
}

#[tokio::test]
async fn a_node_publishes_events_in_its_own_name_alone() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, operator, viewer) = (fleet.connect("n1").await, fleet.connect("operator").await, fleet.connect("viewer").await);
    let mut events = viewer.subscribe("fleetpull.v1.evt.>", None).await.unwrap();
    let mut seen_by_operator = operator.subscribe("fleetpull.v1.evt.>", None).await.unwrap();
    // Messages of one connection keep their order: when the last has come, those before it were refused.
    for subject in ["fleetpull.v1.evt.Failed.ghcr_2eio.n2", "fleetpull.v1.evt.n1", "fleetpull.v1.evt.Failed.ghcr_2eio.n1"] {
        n1.publish(message(subject)).await.unwrap();
    }
    assert_eq!(next(&mut events).await.subject, "fleetpull.v1.evt.Failed.ghcr_2eio.n1");
    assert_eq!(next(&mut seen_by_operator).await.subject, "fleetpull.v1.evt.Failed.ghcr_2eio.n1");
}

#[tokio::test]
async fn a_node_takes_commands_to_itself_and_to_all_and_answers_them() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2, operator) = (fleet.connect("n1").await, fleet.connect("n2").await, fleet.connect("operator").await);
    let command = "fleetpull.v1.cmd.n1.agent.describe";
    let _refused = n2.subscribe(command, None).await.unwrap();
    let nobody = operator.request(message(command), LIMIT).await.unwrap_err();
    assert_eq!(nobody, BusError::NoResponders { subject: command.to_owned() });

    let mut own = n1.subscribe("fleetpull.v1.cmd.n1.>", None).await.unwrap();
    let mut to_all = n1.subscribe("fleetpull.v1.cmd._all.>", None).await.unwrap();
    let mut services = n1.subscribe("$SRV.PING", None).await.unwrap();
    let answering = async {
        answer(&n1, &mut own).await;
        answer(&n1, &mut to_all).await;
        answer(&n1, &mut services).await;
        answer(&n1, &mut own).await;
    };
    let asking = async {
        for subject in [command, "fleetpull.v1.cmd._all.agent.describe", "$SRV.PING"] {
            operator.request(message(subject), LIMIT).await.unwrap();
        }
        // A second agent of the same name sends this, and so does every service without local delivery.
        n1.request(message(command), LIMIT).await.unwrap();
    };
    tokio::join!(answering, asking);
}

#[tokio::test]
async fn a_node_commands_no_other_node_and_a_viewer_none_at_all() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2, viewer, operator) =
        (fleet.connect("n1").await, fleet.connect("n2").await, fleet.connect("viewer").await, fleet.connect("operator").await);
    let mut received = n2.subscribe("fleetpull.v1.cmd.n2.>", None).await.unwrap();
    for stranger in [&n1, &viewer] {
        stranger.publish(message("fleetpull.v1.cmd.n2.agent.forged")).await.unwrap();
        // After a round trip of the stranger the server has checked everything that it published before.
        drop(stranger.subscribe("fleetpull.v1.evt.>", None).await.unwrap());
    }
    operator.publish(message("fleetpull.v1.cmd.n2.agent.describe")).await.unwrap();
    assert_eq!(next(&mut received).await.subject, "fleetpull.v1.cmd.n2.agent.describe");
}

const BUCKETS: [&str; 7] = ["reports", "leases", "leaders", "pauses", "members", "policy", "keys"];

/// A bucket of the fleet as agents use it.
fn spec(purpose: &str) -> BucketSpec {
    let republish_to = ["reports", "leases", "pauses", "policy"].contains(&purpose).then(|| format!("fleetpull.v1.know.{purpose}"));
    let marker_ttl = (!["policy", "keys"].contains(&purpose)).then_some(Duration::from_secs(60));
    let name = format!("fleetpull-{purpose}");
    BucketSpec { name, marker_ttl, max_bytes: Some(1 << 20), forgets_oldest: false, republish_to }
}

async fn bucket(bus: &NatsBus, purpose: &str) -> Result<Arc<dyn KeyValue>, BusError> {
    bus.bucket(&spec(purpose)).await
}

/// Whether a request is refused: a server refuses by not answering. If nobody subscribes, the request fails at once.
async fn is_refused<T, E: std::fmt::Debug>(asking: impl Future<Output = Result<T, E>>) -> bool {
    !matches!(tokio::time::timeout(REFUSED_AFTER, asking).await, Ok(Ok(_)))
}

#[tokio::test]
async fn a_node_writes_reports_in_its_own_name_alone_and_the_server_republishes_them() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2) = (fleet.connect("n1").await, fleet.connect("n2").await);
    let reports = bucket(&n1, "reports").await.unwrap();
    let of_n2 = bucket(&n2, "reports").await.unwrap();
    let mut received = n2.subscribe("fleetpull.v1.know.>", None).await.unwrap();
    assert!(is_refused(reports.put("n2.not_found.ab", "x".into(), None)).await);
    reports.put("n1.not_found.ab", "x".into(), Some(Duration::from_secs(60))).await.unwrap();
    let change = next(&mut received).await;
    assert_eq!(change.subject, "fleetpull.v1.know.reports.n1.not_found.ab");
    assert_eq!(of_n2.get("n1.not_found.ab").await.unwrap().map(|entry| entry.value), Some(Bytes::from_static(b"x")));
    assert_eq!(of_n2.snapshot(None).await.unwrap().entries.len(), 1);
    assert!(of_n2.status().await.unwrap().sequence >= 1);

    let leases = bucket(&n1, "leases").await.unwrap();
    let revision = leases.create("registrar", "n1".into(), Some(Duration::from_secs(10))).await.unwrap();
    assert_eq!(next(&mut received).await.subject, "fleetpull.v1.know.leases.registrar");
    assert!(bucket(&n2, "leases").await.unwrap().create("registrar", "n2".into(), None).await.is_err(), "it is taken");
    leases.update("registrar", "n1".into(), revision, Some(Duration::from_secs(10))).await.unwrap();
}

#[tokio::test]
async fn only_the_server_publishes_knowledge_and_only_the_named_node_a_digest() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2, operator) = (fleet.connect("n1").await, fleet.connect("n2").await, fleet.connect("operator").await);
    let knowledge = n2.subscribe("fleetpull.v1.know.>", None).await.unwrap();
    let digests = n2.subscribe("fleetpull.v1.digest.*", None).await.unwrap();
    let mut received = futures::stream::select(knowledge, digests).boxed();
    let forged = [
        "know.reports.n1.not_found.ab",
        "know.reports.n2.not_found.ab",
        "know.leases.registrar",
        "know.pauses.all",
        "know.policy.fleet",
        "digest.n2",
    ];
    for subject_end in forged {
        let subject = format!("fleetpull.v1.{subject_end}");
        n1.publish(message(&subject)).await.unwrap();
        operator.publish(message(&subject)).await.unwrap();
    }
    // After a round trip of the operator the server has checked everything that it published before.
    drop(operator.subscribe("fleetpull.v1.evt.>", None).await.unwrap());
    n1.publish(message("fleetpull.v1.digest.n1")).await.unwrap();
    assert_eq!(next(&mut received).await.subject, "fleetpull.v1.digest.n1");
}

#[tokio::test]
async fn the_key_of_the_fleet_is_for_agents_alone() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2) = (fleet.connect("n1").await, fleet.connect("n2").await);
    bucket(&n1, "keys").await.unwrap().create("fleet", "k".into(), None).await.unwrap();
    let read = bucket(&n2, "keys").await.unwrap().get("fleet").await.unwrap();
    assert_eq!(read.map(|entry| entry.value), Some(Bytes::from_static(b"k")));
    for stranger in ["operator", "viewer"] {
        let stranger = fleet.connect(stranger).await;
        let mut received = stranger.subscribe("$KV.fleetpull-keys.>", None).await.unwrap();
        assert!(
            is_refused(async {
                bucket(&stranger, "keys").await?.get("fleet").await.map_err(|error| BusError::Other { reason: error.to_string() })
            })
            .await
        );
        let direct = stranger.request(message("$JS.API.DIRECT.GET.KV_fleetpull-keys.$KV.fleetpull-keys.fleet"), REFUSED_AFTER).await;
        assert!(direct.is_err(), "{direct:?}");
        bucket(&n1, "keys").await.unwrap().put("fleet", "k".into(), None).await.unwrap();
        assert!(tokio::time::timeout(REFUSED_AFTER, received.next()).await.is_err(), "the key was received");
    }
}

#[tokio::test]
async fn a_node_records_itself_alone_as_a_member_and_operators_read_the_members() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, operator, viewer) = (fleet.connect("n1").await, fleet.connect("operator").await, fleet.connect("viewer").await);
    let members = bucket(&n1, "members").await.unwrap();
    let revision = members.put("n1", "x".into(), Some(Duration::from_secs(60))).await.unwrap();
    let read = bucket(&operator, "members").await.unwrap();
    let keys = |entries: Vec<bus::AgedEntry>| entries.into_iter().map(|aged| aged.entry.key).collect::<Vec<_>>();
    assert_eq!(keys(read.snapshot(None).await.unwrap().entries), ["n1"]);
    for forged in ["n2", "n1.more"] {
        assert!(is_refused(members.put(forged, "x".into(), None)).await, "{forged}");
    }
    assert!(is_refused(read.put("n1", "x".into(), None)).await);
    let viewed = bucket(&viewer, "members").await.unwrap();
    assert_eq!(keys(viewed.snapshot(None).await.unwrap().entries), ["n1"]);
    assert!(is_refused(viewed.put("n1", "x".into(), None)).await);
    members.delete("n1", Some(revision)).await.unwrap();
    assert_eq!(keys(read.snapshot(None).await.unwrap().entries), Vec::<String>::new());
}

#[tokio::test]
async fn operators_alone_write_the_fleet_policy_and_the_server_republishes_it() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, operator, viewer) = (fleet.connect("n1").await, fleet.connect("operator").await, fleet.connect("viewer").await);
    let mut received = n1.subscribe("fleetpull.v1.know.policy.>", None).await.unwrap();
    let written = bucket(&operator, "policy").await.unwrap();
    let revision = written.create("fleet", "1".into(), None).await.unwrap();
    assert_eq!(next(&mut received).await.payload, "1");
    assert!(written.create("fleet", "2".into(), None).await.is_err(), "it is there");
    written.update("fleet", "2".into(), revision, None).await.unwrap();
    assert_eq!(next(&mut received).await.payload, "2");
    let of_node = bucket(&n1, "policy").await.unwrap();
    assert_eq!(of_node.get("fleet").await.unwrap().map(|entry| entry.value), Some(Bytes::from_static(b"2")));
    assert!(of_node.status().await.unwrap().sequence >= 2);
    let of_viewer = bucket(&viewer, "policy").await.unwrap();
    for reader in [&written, &of_viewer] {
        assert_eq!(reader.snapshot(None).await.unwrap().entries.len(), 1);
    }
    for refused in [of_node, of_viewer] {
        assert!(is_refused(refused.put("fleet", "3".into(), None)).await);
    }
    assert!(is_refused(written.put("other", "3".into(), None)).await);
}

#[tokio::test]
async fn a_node_reports_to_the_registrar_and_claims_budgets_of_any_node_and_of_nobody_else_anything() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2) = (fleet.connect("n1").await, fleet.connect("n2").await);
    let mut registrar = n2.subscribe("fleetpull.v1.cmd._leader.registrar.alive", None).await.unwrap();
    let mut leader = n2.subscribe("fleetpull.v1.cmd.n2.throttler.grant-budget.*", None).await.unwrap();
    let mut permits = n2.subscribe("fleetpull.v1.cmd.n2.throttler.release", None).await.unwrap();
    let answering = async {
        answer(&n2, &mut registrar).await;
        answer(&n2, &mut leader).await;
    };
    let asking = async {
        n1.publish(message("fleetpull.v1.cmd.n2.throttler.release")).await.unwrap();
        n1.request(message("fleetpull.v1.cmd._leader.registrar.alive"), LIMIT).await.unwrap();
        n1.publish(message("fleetpull.v1.cmd.n2.throttler.grant-budget.n3")).await.unwrap();
        n1.request(message("fleetpull.v1.cmd.n2.throttler.grant-budget.n1"), LIMIT).await.unwrap();
    };
    tokio::join!(answering, asking);
    assert!(futures::FutureExt::now_or_never(permits.next()).is_none(), "a permit of another node was released");
    assert!(futures::FutureExt::now_or_never(leader.next()).is_none(), "a budget was claimed in another node's name");
}

#[tokio::test]
async fn a_node_changes_no_bucket_and_speaks_for_nobody_else() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2) = (fleet.connect("n1").await, fleet.connect("n2").await);
    bucket(&n2, "reports").await.unwrap().put("n2.not_found.ab", "x".into(), None).await.unwrap();
    bucket(&n2, "keys").await.unwrap().create("fleet", "k".into(), None).await.unwrap();
    let before = fleet.buckets().await;
    let mut forbidden = Vec::new();
    for purpose in BUCKETS {
        let stream = format!("KV_fleetpull-{purpose}");
        let calls = ["CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN", "PEER.REMOVE"];
        forbidden.extend(calls.map(|call| format!("$JS.API.STREAM.{call}.{stream}")));
        forbidden.extend(["CREATE", "DURABLE.CREATE"].map(|call| format!("$JS.API.CONSUMER.{call}.{stream}.spy")));
    }
    for subject in [
        "$JS.API.STREAM.CREATE.other",
        "$JS.API.STREAM.LIST",
        "$JS.API.ACCOUNT.PURGE.FLEET",
        "$JS.API.META.LEADER.STEPDOWN",
        "$SYS.REQ.SERVER.PING",
        "$KV.fleetpull-reports.n2.not_found.ab",
        "$KV.fleetpull-members.n2",
        "$KV.fleetpull-keys.other",
        "$KV.fleetpull-policy.fleet",
        "fleetpull.v1.know.reports.n2.not_found.ab",
        "fleetpull.v1.know.leases.registrar",
        "fleetpull.v1.evt.Failed.ghcr_2eio.n2",
        "fleetpull.v1.digest.n2",
        "fleetpull.v1.cmd.n2.pull-coordinator.ensure",
        "fleetpull.v1.cmd._all.agent.describe",
        "fleetpull.v1.cmd.n2.throttler.grant-budget.n2",
    ] {
        forbidden.push(subject.to_owned());
    }
    for subject in forbidden {
        let answer = n1.request(message(&subject), LIMIT).await;
        assert_eq!(answer.err(), Some(BusError::Forbidden { subject }));
    }
    // If keys can expire, nats-server lets a writer empty a bucket by this header; the fleet's key does not expire.
    let rollup = message("$KV.fleetpull-keys.fleet").with_headers([("Nats-Rollup", "all")].into_iter().collect());
    let refused = n1.request(rollup, LIMIT).await.unwrap();
    assert!(String::from_utf8_lossy(&refused.payload).contains("rollup not permitted"), "{refused:?}");
    assert_eq!(fleet.buckets().await, before, "no bucket is another one, and none has more or less in it");
}

#[tokio::test]
async fn the_login_that_makes_buckets_deletes_none_and_reads_nothing() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let setup = fleet.connect("setup").await;
    for purpose in BUCKETS {
        let calls = ["STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.MSG.GET", "DIRECT.GET", "CONSUMER.CREATE"];
        for subject in calls.map(|call| format!("$JS.API.{call}.KV_fleetpull-{purpose}")) {
            let answer = setup.request(message(&subject), LIMIT).await;
            assert_eq!(answer.err(), Some(BusError::Forbidden { subject }));
        }
    }
    for subject in ["$JS.API.STREAM.CREATE.other", "$KV.fleetpull-keys.fleet", "fleetpull.v1.cmd.n1.pull-coordinator.ensure"] {
        let answer = setup.request(message(subject), LIMIT).await;
        assert_eq!(answer.err(), Some(BusError::Forbidden { subject: subject.to_owned() }));
    }
}

#[test]
fn the_example_of_accounts_is_taken_by_the_server_as_it_is() {
    let Some(program) = met(current_program()) else { return };
    let (accounts, folder) = (Accounts::new(), TempDir::new().unwrap());
    let file = folder.path().join("accounts.conf");
    std::fs::write(&file, accounts.text()).unwrap();
    let checked = Command::new(program).arg("-t").arg("-c").arg(file).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Users in lines such as `nkey: U... # name` and, for the fleet's users, a line `# role node` below.
fn users_of(text: &str) -> Vec<(String, Option<String>, String)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let of = |index: usize| {
        let line = lines[index].trim_start_matches("{ ").strip_prefix("nkey: ")?;
        let role = lines.get(index + 1).and_then(|next| next.strip_prefix("# role ")).map(str::to_owned);
        Some((line.rsplit(' ').next()?.to_owned(), role, line.split(' ').next()?.to_owned()))
    };
    (0..lines.len()).filter_map(of).collect()
}

#[test]
fn the_example_of_accounts_is_what_nats_setup_makes() {
    use nats_accounts::{Connections, ServerConfig, User};
    let accounts = read("nats/accounts.conf");
    let users = users_of(&accounts);
    let system = users.iter().find(|(name, ..)| name == "system").expect("the server's own login").2.clone();
    let user = |(name, role, key): &(String, Option<String>, String)| {
        Some(User { name: name.parse().unwrap(), role: role.as_ref()?.parse().unwrap(), public_key: key.clone() })
    };
    let users: Vec<User> = users.iter().filter_map(user).collect();
    assert!(users.len() >= 6, "{users:?}");
    let config = ServerConfig { fleet: contract::subject::Fleet::default(), system, users, callout: None };
    for (file, made) in [("nats/accounts.conf", config.render()), ("nats/nats-server.conf", Connections::default().render())] {
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(deploy(file), &made).unwrap();
        }
        assert_eq!(read(file), made, "run this test with UPDATE_REFERENCE=1");
    }
}

/// Whether systemd's own checker is installed.
fn systemd_analyze() -> Result<(), String> {
    let version = Command::new("systemd-analyze").arg("--version").output();
    version.map(drop).map_err(|error| format!("systemd-analyze cannot be run: {error}; cargo xtask tools gets it"))
}

/// Copies the unit to a folder. systemd requires that the unit's program exists.
fn unit_in(folder: &TempDir) -> PathBuf {
    let unit = folder.path().join("fleetpull.service");
    std::fs::write(&unit, read("systemd/fleetpull.service").replace("/usr/local/bin/fleetpull", "/bin/true")).unwrap();
    unit
}

#[test]
fn systemd_accepts_the_unit_without_a_warning() {
    if met(systemd_analyze()).is_none() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg(unit_in(&folder)).output().unwrap();
    let warnings = String::from_utf8_lossy(&verified.stderr);
    // It also reads the units that ours names, and reports their errors too.
    let of_ours: Vec<&str> = warnings.lines().filter(|line| line.contains("fleetpull")).collect();
    assert!(of_ours.is_empty(), "{warnings}");
}

#[test]
fn systemd_rates_the_unit_no_more_exposed_than_documented() {
    if met(systemd_analyze()).is_none() {
        return;
    }
    let readme = read("README.md");
    let (_, rest) = readme.split_once("rates the unit's exposure ").expect("the README states the rating");
    let stated: f64 = rest.split(' ').next().unwrap().parse().unwrap();
    let folder = TempDir::new().unwrap();
    let exceeds = |threshold: f64| {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--no-pager", "--offline=yes"]).arg(format!("--threshold={:.0}", threshold * 10.0));
        let rated = command.arg(unit_in(&folder)).output().unwrap();
        (!rated.status.success()).then(|| String::from_utf8_lossy(&rated.stdout).into_owned())
    };
    assert_eq!(exceeds(stated), None);
    assert!(exceeds(stated - 0.2).is_some(), "the unit is better than the README states");
}

#[test]
fn the_documented_limits_are_those_of_the_unit() {
    let (unit, readme) = (read("systemd/fleetpull.service"), read("README.md"));
    for setting in ["TimeoutStartSec", "WatchdogSec", "MemoryHigh", "MemoryMax", "TasksMax", "OOMScoreAdjust"] {
        let value = unit.lines().find_map(|line| line.strip_prefix(&format!("{setting}="))).unwrap_or_else(|| panic!("{setting}"));
        let row = format!("| `{setting}` | {value} |");
        assert!(readme.contains(&row), "{row} is missing in deploy/README.md");
    }
}
