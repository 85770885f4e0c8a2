//! The table of keys: the one place where a setting is declared.

use std::time::Duration;

use crate::key::Key;
use crate::kind::Kind;

/// Longer than any sane time-out of a registry; more is a slip of the unit.
const HOUR: Duration = Duration::from_secs(3600);
/// A node writes its record four times in `fleet.gone_after`: more often it would cost the server more than a report of being alive.
const MINUTE: Duration = Duration::from_secs(60);
/// A machine that was away for longer is not expected back.
const MONTH: Duration = Duration::from_secs(30 * 86_400);
/// A whole image may take long on a thin line.
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const DAY: Duration = Duration::from_secs(86_400);
/// Shorter is shorter than a round trip.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);

/// More free space than any node's disk has.
const PETABYTE: u64 = 1 << 50;
/// A name that nodes have in common.
const GROUP: Kind = Kind::Group { may_be_empty: false };

/// Every key, in the order of the reference file.
#[must_use]
pub fn keys() -> &'static [Key] {
    &KEYS
}

/// The key of that name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

const fn key(name: &'static str, kind: Kind, help: &'static str) -> Key {
    Key { name, kind, help, kubelet: "", why: "", flag: None, nats_variable: None }
}

const fn timeout() -> Kind {
    Kind::Duration { min: MIN_TIMEOUT, max: HOUR }
}

impl Key {
    const fn kubelet(self, kubelet: &'static str, why: &'static str) -> Self {
        Self { kubelet, why, ..self }
    }

    const fn flag(self, flag: &'static str) -> Self {
        Self { flag: Some(flag), ..self }
    }

    const fn nats(self, flag: &'static str, variable: &'static str) -> Self {
        Self { flag: Some(flag), nats_variable: Some(variable), ..self }
    }
}

static KEYS: [Key; 57] = [
    key("fleet.name", Kind::Token { may_be_empty: false }, "First token of every subject. Fleets of different names on one NATS server never mix.").flag("--fleet"),
    key(
        "fleet.cluster",
        Kind::Token { may_be_empty: true },
        "The cluster that this node is of, where nodes of several clusters are one fleet: the node's name in the fleet is <fleet.cluster>.<node.name> then, so that nodes of one name are told apart. Empty: node.name alone.",
    ),
    key(
        "fleet.share",
        Kind::Choice(&["enforce", "observe", "off"]),
        "What an agent does with what other nodes found out: enforce, it goes by it; observe, it records, explains and counts what it would have refused, and refuses nothing; off, it neither tells nor listens. Where the fleet policy (fleetpull policy) says observe, a node that enforces observes.",
    )
    .kubelet("off", "a bad tag costs the registry a request or two instead of one from every node, and who waits is woken at once"),
    key(
        "fleet.scope",
        GROUP,
        "Which nodes see the same registries: what is learned stays within. One for each region, air gap or split horizon of DNS.",
    ),
    key(
        "fleet.egress",
        Kind::Group { may_be_empty: true },
        "Which nodes reach registries from one address (NAT), and so share its quotas. Empty: fleet.scope.",
    ),
    key(
        "fleet.credential_group",
        Kind::Group { may_be_empty: true },
        "Which nodes' logins count as one, where a helper (ECR, Google, Azure) mints one for each node. Empty: they are told apart by helper and user alone.",
    ),
    key(
        "fleet.key_file",
        Kind::Path,
        "File with the key under which nodes name their logins to each other, at least 32 bytes, the same on every node. Empty: made once and kept in a bucket that agents alone may read.",
    ),
    key(
        "fleet.gone_after",
        Kind::Duration { min: MINUTE, max: MONTH },
        "How long a node that does not answer belongs to the fleet: until then it is listed as silent, and a pull on all nodes says that it was left out.",
    ),
    key("node.name", Kind::NodeName, "Name of this node in subjects, events and answers. Empty: the host's name.")
        .kubelet("--hostname-override, else the host's name", "")
        .flag("--node"),
    key("node.labels", Kind::Labels, "What --selector chooses nodes by.").kubelet("--node-labels", "").flag("--label"),
    key("node.zone", GROUP, "Which nodes lose a registry together: a failure to reach it that several nodes of a zone saw binds that zone alone.")
        .kubelet("none; the label topology.kubernetes.io/zone", ""),
    key(
        "runtime.kind",
        Kind::Choice(&["oci-layout", "cri"]),
        "What pulls: oci-layout is Fleetpull itself, into an OCI image layout; cri asks containerd or CRI-O.",
    )
    .kubelet("a CRI runtime, always", "it works with nothing else installed; set cri on a node of Kubernetes")
    .flag("--runtime"),
    key(
        "runtime.endpoint",
        Kind::Endpoint,
        "Socket of the runtime, for cri. Empty: the first that is there of /run/containerd/containerd.sock and /run/crio/crio.sock.",
    )
    .kubelet("imageServiceEndpoint, else containerRuntimeEndpoint", "")
    .flag("--runtime-endpoint"),
    key(
        "store.dir",
        Kind::Path,
        "The OCI image layout that oci-layout pulls into; several processes may share it. Empty: /var/lib/fleetpull as root, else $XDG_DATA_HOME/fleetpull or ~/.local/share/fleetpull.",
    )
    .flag("--store"),
    key(
        "store.fsync",
        Kind::Switch,
        "true: an image that was reported as pulled outlives a loss of power. false: it outlives a killed process only, and pulls are faster.",
    ),
    key(
        "state.dir",
        Kind::Path,
        "What the agent must remember, its lock and its socket agent.sock. One directory for each agent. Empty: state/<node.name> below the store.",
    )
    .kubelet("--root-dir, /var/lib/kubelet", "")
    .flag("--state-dir"),
    key(
        "registry.config_path",
        Kind::Path,
        "Directories of <host>/hosts.toml (several with colons between): mirrors, authorities, client certificates, as containerd reads them. A containerd that says where its own are goes before this. Empty: none is read.",
    )
    .kubelet("none; containerd's config_path", ""),
    key("registry.connect_timeout", timeout(), "For each endpoint: finding its name, connecting, TLS.")
        .kubelet("none; containerd 30s", "a dead mirror must not cost half a minute before the next one is asked"),
    key("registry.first_byte_timeout", timeout(), "For each request: from sending it to the first byte of the answer.")
        .kubelet("none", "an endpoint that accepts and says nothing would hang a pull for ever"),
    key("registry.no_progress_timeout", timeout(), "The longest pause within a download. It is taken up again where it stopped.")
        .kubelet("none; containerd's image_pull_progress_timeout 5m", "a stalled connection is told from a slow one by its bytes, so 30s are enough"),
    key("registry.connections", Kind::Count { min: 1, max: 1000 }, "The most connections to one registry, all pulls of this process together."),
    key("pull.connections", Kind::Count { min: 1, max: 100 }, "The most connections of one pull: so many layers come at a time.")
        .kubelet("none; containerd's max_concurrent_downloads 3", "one connection alone does not fill a fast line; four do"),
    key("pull.parallel", Kind::Count { min: 1, max: 1000 }, "The most pulls of this node at a time. With pull.serial it is 1.")
        .kubelet("maxParallelImagePulls, no limit", "a node that starts a hundred pods at once ends none of their pulls soon"),
    key("pull.serial", Kind::Switch, "One pull after the other.")
        .kubelet("serializeImagePulls = true", "one large image would keep all others waiting"),
    key(
        "pull.timeout",
        Kind::Duration { min: Duration::ZERO, max: DAY },
        "The longest one attempt may take. 0s: as long as it makes progress.",
    )
    .kubelet("none", ""),
    key(
        "pull.queue",
        Kind::Count { min: 1, max: 100_000 },
        "The most pulls of this node that wait for their turn; a further one is refused at once.",
    )
    .kubelet("none", "without a bound the memory grows with what was asked for"),
    key(
        "pull.keep_free",
        Kind::Bytes { max: PETABYTE },
        "A pull that no pod asked for is refused if it would leave less free space than this where images are kept. 0B: never.",
    )
    .kubelet("none; it deletes images above imageGCHighThresholdPercent", "an image fetched ahead must not push a running node over its disk threshold"),
    key("throttle.qps", Kind::Rate { max: 10_000.0 }, "Starts of pulls on this node, per second in the long run. 0: no limit.")
        .kubelet("registryPullQPS = 5", ""),
    key("throttle.burst", Kind::Count { min: 0, max: 100_000 }, "Starts of pulls at once after a rest. Matters only when throttle.qps is over 0.")
        .kubelet("registryBurst = 10", ""),
    key(
        "throttle.on_exhausted",
        Kind::Choice(&["wait", "fail"]),
        "What becomes of a pull above throttle.qps: wait, it waits its turn; fail, it fails with \"pull QPS exceeded\".",
    )
    .kubelet("fail", "failing steps the back-off, so that a pull that could start in 200 ms waits 10 s and more"),
    key(
        "throttle.max_wait",
        Kind::Duration { min: Duration::ZERO, max: HOUR },
        "The longest a pull that is not to wait (no --wait) waits for the fleet: for another node's answer or for the registry's budget. Then it is refused with its next attempt; a longer wait that is known is told at once. Less than 1s counts as 1s.",
    )
    .kubelet("none; it does not ask the fleet", "most answers are there within a second or two, and asking again costs a pod 10 s"),
    key(
        "budget.pulls_per_second",
        Kind::Rate { max: 100_000.0 },
        "Pulls that the whole fleet begins at one registry, per second, for each login and address. 0: no limit. The fleet policy (fleetpull policy) goes before it; where this says less than the policy, this node alone keeps to less. What the policy leaves out should be the same on every node.",
    )
    .kubelet("none; each node has its own registryPullQPS", "a thousand nodes with 5 a second each are 5,000 a second for the registry"),
    key(
        "budget.pulls_at_once",
        Kind::Count { min: 0, max: 1_000_000 },
        "Pulls of the whole fleet at one registry at a time, for each login and address. 0: no limit. One node has three quarters of them at most, so that it cannot keep the others from pulling. The fleet policy goes before it, as before budget.pulls_per_second. What the policy leaves out should be the same on every node.",
    )
    .kubelet("none; each node has its own maxParallelImagePulls", ""),
    key(
        "budget.alone",
        Kind::Choice(&["open", "share"]),
        "What a node does that has not reached the budget's leader for 15 s: open, it takes its share of the budget, but never less than one pull at a time, and no quota stops it; share, it takes no more than its share.",
    )
    .kubelet("open", ""),
    key("backoff.initial", timeout(), "How long an image that failed is left alone after its first failure; it doubles with each further one.")
        .kubelet("10s, fixed", ""),
    key("backoff.max", timeout(), "Where the doubling ends.").kubelet("300s, fixed", ""),
    key(
        "bus.local_delivery",
        Kind::Switch,
        "true: an addressee in the same process is reached without leaving it. false: every message goes over NATS, to watch it or to split services over processes.",
    ),
    key("nats.url", Kind::Servers, "Servers to connect to. Empty, and no nats.context: no NATS, this process is a fleet of its own.")
        .nats("--nats", "NATS_URL"),
    key("nats.creds", Kind::Path, "File with user JWT and seed (.creds).").nats("--nats-creds", "NATS_CREDS"),
    key("nats.nkey", Kind::Path, "File with the seed of an nkey.").nats("--nats-nkey", "NATS_NKEY"),
    key("nats.token_file", Kind::Path, "File with a token, such as a projected service-account token of Kubernetes for `fleetpull nats-auth`. Read again at each connect.")
        .flag("--nats-token-file"),
    key("nats.inbox_prefix", Kind::Text, "What the subjects begin with on which answers arrive. Empty: the context's; for an agent with nats.token_file and no context _INBOX_<node>; else _INBOX.")
        .flag("--nats-inbox-prefix"),
    key("nats.ca", Kind::Path, "File with the authority that signed the server's certificate (PEM). Empty: the system's.").nats("--nats-ca", "NATS_CA"),
    key("nats.cert", Kind::Path, "File with the client's certificate (PEM).").nats("--nats-cert", "NATS_CERT"),
    key("nats.key", Kind::Path, "File with the key of the client's certificate (PEM).").nats("--nats-key", "NATS_KEY"),
    key("nats.context", Kind::Text, "Context of the nats CLI to take what the other nats keys leave open from.").nats("--nats-context", "NATS_CONTEXT"),
    key(
        "auth.file",
        Kind::Path,
        "File with registry credentials (Docker's config.json, containers' auth.json). Empty: REGISTRY_AUTH_FILE, DOCKER_CONFIG and the usual places.",
    )
    .kubelet("/var/lib/kubelet/config.json and its like", "")
    .flag("--authfile"),
    key("events.keep", Kind::Count { min: 0, max: 1_000_000 }, "How many of its last events an agent keeps in memory for `fleetpull events`.")
        .kubelet("none; the API server keeps events for 1h", ""),
    key(
        "events.outbox_max",
        Kind::Bytes { max: PETABYTE },
        "The most bytes of events that wait in the state directory until the fleet's stream has them; without NATS, of history. When it is full, the oldest refusals go first; what was lost is an event itself.",
    )
    .kubelet("none", "at some 500 bytes an event, a day without NATS on a busy node"),
    key(
        "events.fsync_interval",
        Kind::Duration { min: Duration::from_millis(1), max: HOUR },
        "How long an event may be stored before it is brought to the disk. The end of the agent loses nothing; a loss of power may take what was stored within this time.",
    )
    .kubelet("none", ""),
    key(
        "events.stream_max_age",
        Kind::Duration { min: MINUTE, max: YEAR },
        "How long the fleet's stream keeps events. Counts where an agent or `fleetpull nats-setup` makes the stream; one that is there keeps its limits.",
    )
    .kubelet("the API server's --event-ttl = 1h", "who looks after a weekend finds what happened"),
    key(
        "events.stream_max_bytes",
        Kind::Bytes { max: PETABYTE },
        "How many bytes the fleet's stream holds; the oldest events go first. Counts as events.stream_max_age does.",
    )
    .kubelet("none", ""),
    key(
        "traces.link",
        Kind::Text,
        "Where a trace is looked at, with {trace_id} for its id, as http://jaeger:16686/trace/{trace_id}: pull, explain and events show it. Empty: no link is shown. Whether and where traces are exported the variables OTEL_* say.",
    ),
    key(
        "traces.keep_slow",
        Kind::Duration { min: Duration::ZERO, max: DAY },
        "A request that takes longer is exported whatever the sampler decides, as are those that fail or are refused.",
    )
    .kubelet("none; its sampling alone decides", "what was slow is what somebody looks for"),
    key("log.level", Kind::Choice(&["error", "warn", "info", "debug", "trace"]), "The least that is logged.").flag("--log-level"),
    key("log.format", Kind::Choice(&["text", "json"]), "text for people; json, one object a line, for log collectors.").flag("--log-format"),
    key(
        "metrics.address",
        Kind::Address,
        "Where an agent serves /metrics (OpenMetrics), /livez and /readyz over HTTP, without a login: an address that only the scraper reaches. Empty: nowhere; `fleetpull nodes NAME --metrics` prints the same.",
    )
    .kubelet("/metrics on --port 10250, with a login", ""),
];
