//! The table of keys: the one place where a setting is declared.

use std::time::Duration;

use crate::key::Key;
use crate::kind::Kind;

/// The longest time-out of a registry; a longer one is a mistake of the unit.
const HOUR: Duration = Duration::from_secs(3600);
/// The shortest `fleet.gone_after`: a node writes its record four times in it, and more writes would cost the server more than the
/// heartbeats.
const MINUTE: Duration = Duration::from_secs(60);
/// The longest `fleet.gone_after`: a machine that was off for longer is not expected back.
const MONTH: Duration = Duration::from_secs(30 * 86_400);
/// The longest age of events: 365.25 days, as `1year` is read.
const YEAR: Duration = Duration::from_secs(31_557_600);
/// The longest time-out of a pull: a whole image may take long over a slow connection.
const DAY: Duration = Duration::from_secs(86_400);
/// A shorter time-out is shorter than a round trip.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);

/// More than the disk of any node.
const PETABYTE: u64 = 1 << 50;
/// A name that several nodes have in common.
const GROUP: Kind = Kind::Group { may_be_empty: false };

/// Every key, in the order of the reference file.
#[must_use]
pub fn keys() -> &'static [Key] {
    &KEYS
}

/// The key of this name.
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
    key("fleet.name", Kind::Token { may_be_empty: false }, "The first token of every subject. Fleets of different names on one NATS server never mix.").flag("--fleet"),
    key(
        "fleet.cluster",
        Kind::Token { may_be_empty: true },
        "The cluster of this node, if nodes of several clusters are one fleet: the node's name in the fleet is then <fleet.cluster>.<node.name>, so that nodes of equal names in two clusters differ. Empty: the name is node.name.",
    ),
    key(
        "fleet.share",
        Kind::Choice(&["enforce", "observe", "off"]),
        "What an agent does with the findings of other nodes: enforce, it refuses pulls by them; observe, it records, explains and counts what it would have refused, and refuses nothing; off, it neither shares its own findings nor uses those of others. If the fleet policy (fleetpull policy) says observe, a node with enforce observes.",
    )
    .kubelet("off", "a bad tag costs the registry one or two requests instead of one from every node, and waiting pulls start as soon as two nodes have succeeded"),
    key(
        "fleet.scope",
        GROUP,
        "The group of nodes that see the same registries: findings are shared within it only. One for each region, air gap or split horizon of DNS.",
    ),
    key(
        "fleet.egress",
        Kind::Group { may_be_empty: true },
        "The group of nodes that reach registries from one address (NAT) and so share its quotas. Empty: fleet.scope.",
    ),
    key(
        "fleet.credential_group",
        Kind::Group { may_be_empty: true },
        "The group of nodes whose logins count as one, if a helper (ECR, Google, Azure) mints a login for each node. Empty: such logins are distinguished by helper and user only.",
    ),
    key(
        "fleet.key_file",
        Kind::Path,
        "File with the key under which nodes name their logins to each other, at least 32 bytes, the same on every node. Empty: the key is made once and stored in a bucket that only agents may read.",
    ),
    key(
        "fleet.gone_after",
        Kind::Duration { min: MINUTE, max: MONTH },
        "How long a node that does not answer belongs to the fleet: until then it is listed as silent, and a pull on all nodes reports that it was left out.",
    ),
    key("node.name", Kind::NodeName, "Name of this node in subjects, events and answers. Empty: the host's name.")
        .kubelet("--hostname-override, else the host's name", "")
        .flag("--node"),
    key("node.labels", Kind::Labels, "The labels by which --selector chooses nodes.").kubelet("--node-labels", "").flag("--label"),
    key("node.zone", GROUP, "The group of nodes that lose a registry together: when several nodes of a zone failed to reach a registry, only pulls of that zone are refused.")
        .kubelet("none; the label topology.kubernetes.io/zone", ""),
    key(
        "runtime.kind",
        Kind::Choice(&["oci-layout", "cri"]),
        "The runtime that pulls: oci-layout, Fleetpull itself pulls into an OCI image layout; cri, containerd or CRI-O pulls.",
    )
    .kubelet("a CRI runtime, always", "oci-layout works with nothing else installed; set cri on a node of Kubernetes")
    .flag("--runtime"),
    key(
        "runtime.endpoint",
        Kind::Endpoint,
        "Socket of the runtime, for cri. Empty: the first existing socket of /run/containerd/containerd.sock and /run/crio/crio.sock.",
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
        "true: an image that was reported as pulled survives a loss of power. false: it survives only a killed process, and pulls are faster.",
    ),
    key(
        "state.dir",
        Kind::Path,
        "Directory of the agent's state, its lock and its socket agent.sock. One directory for each agent. Empty: state/<node.name> below the store.",
    )
    .kubelet("--root-dir, /var/lib/kubelet", "")
    .flag("--state-dir"),
    key(
        "registry.config_path",
        Kind::Path,
        "Directories of <host>/hosts.toml (several with colons between): mirrors, authorities, client certificates, as containerd reads them. The directories that containerd itself reports have precedence. Empty: no such file is read.",
    )
    .kubelet("none; containerd's config_path", ""),
    key("registry.connect_timeout", timeout(), "For each endpoint: name resolution, TCP and TLS together.")
        .kubelet("none; containerd 30s", "a dead mirror must not cost half a minute before the next one is asked"),
    key("registry.first_byte_timeout", timeout(), "For each request: from sending it to the first byte of the answer.")
        .kubelet("none", "an endpoint that accepts the connection and never answers would block a pull for ever"),
    key("registry.no_progress_timeout", timeout(), "The longest pause within a download. After it, the download is resumed where it stopped.")
        .kubelet("none; containerd's image_pull_progress_timeout 5m", "a slow connection still delivers bytes and a stalled one does not, so 30s are enough"),
    key("registry.connections", Kind::Count { min: 1, max: 1000 }, "The most connections to one registry, all pulls of this process together."),
    key("pull.connections", Kind::Count { min: 1, max: 100 }, "The most connections of one pull, which is the most layers it downloads at a time.")
        .kubelet("none; containerd's max_concurrent_downloads 3", "one connection does not use the whole bandwidth of a fast line; four do"),
    key("pull.parallel", Kind::Count { min: 1, max: 1000 }, "The most pulls of this node at a time. With pull.serial it is 1.")
        .kubelet("maxParallelImagePulls, no limit", "if a node starts a hundred pods at once, none of their unlimited pulls ends soon"),
    key("pull.serial", Kind::Switch, "true: pulls run one after the other.")
        .kubelet("serializeImagePulls = true", "one large image would make all others wait"),
    key(
        "pull.timeout",
        Kind::Duration { min: Duration::ZERO, max: DAY },
        "The longest one attempt may take. 0s: no limit while it makes progress.",
    )
    .kubelet("none", ""),
    key(
        "pull.queue",
        Kind::Count { min: 1, max: 100_000 },
        "The most pulls of this node that wait for a slot; further ones are refused at once.",
    )
    .kubelet("none", "without a limit the memory grows with the number of requests"),
    key(
        "pull.keep_free",
        Kind::Bytes { max: PETABYTE },
        "A pull that no pod requested is refused if it would leave less free space than this on the disk of the images. 0B: no limit.",
    )
    .kubelet("none; it deletes images above imageGCHighThresholdPercent", "an image fetched ahead must not push a running node over its disk threshold"),
    key("throttle.qps", Kind::Rate { max: 10_000.0 }, "Starts of pulls on this node, per second on average. 0: no limit.")
        .kubelet("registryPullQPS = 5", ""),
    key("throttle.burst", Kind::Count { min: 0, max: 100_000 }, "The most starts of pulls at once after a time without pulls. Has an effect only if throttle.qps is over 0.")
        .kubelet("registryBurst = 10", ""),
    key(
        "throttle.on_exhausted",
        Kind::Choice(&["wait", "fail"]),
        "What happens to a pull above throttle.qps: wait, it waits for the next start; fail, it fails with \"pull QPS exceeded\".",
    )
    .kubelet("fail", "a failure raises the back-off, so a pull that could start in 200 ms would wait 10 s and more"),
    key(
        "throttle.max_wait",
        Kind::Duration { min: Duration::ZERO, max: HOUR },
        "The longest a pull without --wait waits for the fleet: for another node's answer or for the registry's budget. After it, the pull is refused with the time of its next attempt; it is refused at once if it is known that it would wait longer. Less than 1s counts as 1s.",
    )
    .kubelet("none; it does not ask the fleet", "most answers arrive within a second or two, and a refused pod waits 10 s before its next attempt"),
    key(
        "budget.pulls_per_second",
        Kind::Rate { max: 100_000.0 },
        "Pulls that the whole fleet starts at one registry, per second, for each login and address. 0: no limit. The fleet policy (fleetpull policy) has precedence; without it, the median of the nodes' values applies. If this is less than what applies, only this node keeps to the lower value.",
    )
    .kubelet("none; each node has its own registryPullQPS", "a thousand nodes with 5 a second each send the registry 5,000 a second"),
    key(
        "budget.pulls_at_once",
        Kind::Count { min: 0, max: 1_000_000 },
        "Pulls of the whole fleet at one registry at a time, for each login and address. 0: no limit. One node has at most three quarters of them, so that it cannot stop the others from pulling. The fleet policy and the median have precedence, as for budget.pulls_per_second.",
    )
    .kubelet("none; each node has its own maxParallelImagePulls", ""),
    key(
        "budget.alone",
        Kind::Choice(&["open", "share"]),
        "What a node does when it has not reached the budget's leader for 15 s: open, it takes its share of the budget, but never less than one pull at a time, and ignores quotas; share, it takes no more than its share.",
    )
    .kubelet("open", ""),
    key("backoff.initial", timeout(), "How long an image is not pulled again after its first failure; the time doubles with each further failure.")
        .kubelet("10s, fixed", ""),
    key("backoff.max", timeout(), "The longest time after a failure: the doubling ends there.").kubelet("300s, fixed", ""),
    key(
        "bus.local_delivery",
        Kind::Switch,
        "true: a message to a receiver in the same process is delivered without NATS. false: every message goes over NATS, to watch the messages or to split services over processes.",
    ),
    key("nats.url", Kind::Servers, "Servers to connect to. If this and nats.context are empty, there is no NATS, and this process is a fleet of its own.")
        .nats("--nats", "NATS_URL"),
    key("nats.creds", Kind::Path, "File with user JWT and seed (.creds).").nats("--nats-creds", "NATS_CREDS"),
    key("nats.nkey", Kind::Path, "File with the seed of an nkey.").nats("--nats-nkey", "NATS_NKEY"),
    key("nats.token_file", Kind::Path, "File with a token, such as a projected service-account token of Kubernetes for `fleetpull nats-auth`. Read again at each connect.")
        .flag("--nats-token-file"),
    key("nats.inbox_prefix", Kind::Text, "The prefix of the subjects on which answers arrive. Empty: that of the context; for an agent with nats.token_file and no context _INBOX_<node>; else _INBOX.")
        .flag("--nats-inbox-prefix"),
    key("nats.ca", Kind::Path, "File with the authority that signed the server's certificate (PEM). Empty: the authorities of the system.").nats("--nats-ca", "NATS_CA"),
    key("nats.cert", Kind::Path, "File with the client's certificate (PEM).").nats("--nats-cert", "NATS_CERT"),
    key("nats.key", Kind::Path, "File with the key of the client's certificate (PEM).").nats("--nats-key", "NATS_KEY"),
    key("nats.context", Kind::Text, "Context of the nats CLI. It gives the values of the nats keys that are not set.").nats("--nats-context", "NATS_CONTEXT"),
    key(
        "auth.file",
        Kind::Path,
        "File with registry credentials (Docker's config.json, containers' auth.json). Empty: REGISTRY_AUTH_FILE, DOCKER_CONFIG and the usual places.",
    )
    .kubelet("/var/lib/kubelet/config.json and the other usual files", "")
    .flag("--authfile"),
    key("events.keep", Kind::Count { min: 0, max: 1_000_000 }, "How many of its last events an agent keeps in memory for `fleetpull events`.")
        .kubelet("none; the API server keeps events for 1h", ""),
    key(
        "events.outbox_max",
        Kind::Bytes { max: PETABYTE },
        "The most bytes of events in the state directory: events that are not yet in the fleet's stream; without NATS, the history. When it is full, the oldest refusals are deleted first; an event of its own reports the loss.",
    )
    .kubelet("none", "at some 500 bytes an event, a day without NATS on a busy node"),
    key(
        "events.fsync_interval",
        Kind::Duration { min: Duration::from_millis(1), max: HOUR },
        "The longest time between storing an event and fsync. Ending the agent loses no events; a loss of power may lose the events of this time.",
    )
    .kubelet("none", ""),
    key(
        "events.stream_max_age",
        Kind::Duration { min: MINUTE, max: YEAR },
        "How long the fleet's stream keeps events. Has an effect when an agent or `fleetpull nats-setup` creates the stream; an existing stream keeps its limits.",
    )
    .kubelet("the API server's --event-ttl = 1h", "people who look after a weekend find what happened"),
    key(
        "events.stream_max_bytes",
        Kind::Bytes { max: PETABYTE },
        "How many bytes the fleet's stream holds; the oldest events are deleted first. Has an effect when events.stream_max_age has.",
    )
    .kubelet("none", ""),
    key(
        "traces.link",
        Kind::Text,
        "URL of a trace, with {trace_id} in place of its id, such as http://jaeger:16686/trace/{trace_id}: pull, explain and events show it. Empty: no link is shown. The variables OTEL_* decide whether and where traces are exported.",
    ),
    key(
        "traces.keep_slow",
        Kind::Duration { min: Duration::ZERO, max: DAY },
        "A request that takes longer is exported even if the sampler did not choose it, as is a request that fails or is refused.",
    )
    .kubelet("none; only its sampling decides", "slow requests are the ones that people look for"),
    key("log.level", Kind::Choice(&["error", "warn", "info", "debug", "trace"]), "The least severe level that is logged.").flag("--log-level"),
    key("log.format", Kind::Choice(&["text", "json"]), "text, for people; json, one object a line for log collectors.").flag("--log-format"),
    key(
        "metrics.address",
        Kind::Address,
        "Where an agent serves /metrics (OpenMetrics), /livez and /readyz over HTTP, without a login: give an address that only the scraper reaches. Empty: nowhere; `fleetpull nodes NAME --metrics` prints the same metrics.",
    )
    .kubelet("/metrics on --port 10250, with a login", ""),
];
