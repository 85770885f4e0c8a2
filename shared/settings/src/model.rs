//! The settings as types, with their defaults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::server_url::ServerUrl;
use crate::text::{bytes, duration, empty_as_none, zero_as_none};

/// All settings of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The fleet, and what its nodes share.
    pub fleet: Fleet,
    /// The name and place of this node.
    pub node: Node,
    /// The runtime that pulls.
    pub runtime: Runtime,
    /// Where the embedded runtime stores images.
    pub store: Store,
    /// Where the agent stores its state.
    pub state: State,
    /// How the embedded runtime reaches registries.
    pub registry: Registry,
    /// How many pulls may run or wait, and for how long.
    pub pull: Pull,
    /// How often a pull may start.
    pub throttle: Throttle,
    /// How many pulls the whole fleet may start at a registry.
    pub budget: Budget,
    /// How long a failed image is not pulled again.
    pub backoff: Backoff,
    /// How messages are delivered.
    pub bus: Bus,
    /// How NATS is reached.
    pub nats: Nats,
    /// Where registry credentials come from.
    pub auth: Auth,
    /// How many events are stored, and for how long.
    pub events: Events,
    /// Which requests are always traced, and where traces can be viewed.
    pub traces: Traces,
    /// What is logged.
    pub log: Log,
    /// Where the agent serves its metrics and health.
    pub metrics: Metrics,
}

/// `fleet.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// The first token of every subject.
    pub name: String,
    /// The prefix of the node's name in the fleet: `<cluster>.<name>`.
    #[serde(with = "empty_as_none")]
    pub cluster: Option<String>,
    /// How the findings of other nodes are used.
    pub share: Share,
    /// Which nodes see the same registries.
    pub scope: String,
    /// None: see [`Fleet::egress`].
    #[serde(with = "empty_as_none")]
    pub egress: Option<String>,
    /// The group of nodes whose minted logins count as one login.
    #[serde(with = "empty_as_none")]
    pub credential_group: Option<String>,
    /// None: the fleet's key is made once and stored in its bucket `keys`.
    #[serde(with = "empty_as_none")]
    pub key_file: Option<PathBuf>,
    /// How long a node that does not answer belongs to the fleet.
    #[serde(with = "duration")]
    pub gone_after: Duration,
}

/// How the findings of other nodes are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// The node refuses pulls by them.
    #[default]
    Enforce,
    /// The node records, explains and counts what it would have refused, and refuses nothing.
    Observe,
    /// The node neither shares its findings nor uses those of others.
    Off,
}

/// `node.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// None: the host's.
    #[serde(with = "empty_as_none")]
    pub name: Option<String>,
    /// The labels by which `--selector` chooses nodes.
    pub labels: BTreeMap<String, String>,
    /// The group of nodes that lose a registry together.
    pub zone: String,
}

/// `runtime.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// Which runtime pulls.
    pub kind: RuntimeKind,
    /// `unix://` and an absolute path. None: the first known socket that exists; see [`Runtime::endpoint_on`].
    #[serde(with = "empty_as_none")]
    pub endpoint: Option<String>,
}

/// Which runtime pulls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeKind {
    /// Fleetpull itself, into an OCI image layout.
    #[default]
    OciLayout,
    /// containerd or CRI-O.
    Cri,
}

/// `store.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// None: see [`Store::dir_on`].
    #[serde(with = "empty_as_none")]
    pub dir: Option<PathBuf>,
    /// Whether a stored image survives a power loss, not only a killed process.
    pub fsync: bool,
}

/// `state.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// None: see [`State::dir_on`].
    #[serde(with = "empty_as_none")]
    pub dir: Option<PathBuf>,
}

/// `registry.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// A directory of `<host>/hosts.toml`. None: none is read.
    #[serde(with = "empty_as_none")]
    pub config_path: Option<PathBuf>,
    /// For one endpoint: name resolution, TCP and TLS together.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// From sending the request to the first byte of the answer.
    #[serde(with = "duration")]
    pub first_byte_timeout: Duration,
    /// The longest pause between two pieces of a body.
    #[serde(with = "duration")]
    pub no_progress_timeout: Duration,
    /// The most connections to one registry, all pulls together.
    pub connections: u32,
}

/// `pull.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pull {
    /// The most connections of one pull, which is the most layers it downloads at a time.
    pub connections: u32,
    /// The most pulls of the node at a time. [`Pull::slots`] takes `serial` into account.
    pub parallel: u32,
    /// Whether pulls run one after the other.
    pub serial: bool,
    /// The longest one attempt may take. None: no limit while it makes progress.
    #[serde(with = "zero_as_none")]
    pub timeout: Option<Duration>,
    /// The most pulls that wait for a slot.
    pub queue: u32,
    /// The bytes of disk space that a pull must leave free when no pod requested it.
    #[serde(with = "bytes")]
    pub keep_free: u64,
}

/// `throttle.*`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// Starts of pulls per second; 0: no limit.
    pub qps: f64,
    /// The most starts at once after a time without pulls.
    pub burst: u32,
    /// What happens to a pull that finds the token bucket empty.
    pub on_exhausted: OnExhausted,
    /// The longest that a pull without a standing pull waits for the fleet.
    #[serde(with = "duration")]
    pub max_wait: Duration,
}

/// What happens to a pull that finds the token bucket empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExhausted {
    /// It waits for the next token.
    #[default]
    Wait,
    /// It fails with `pull QPS exceeded`, as in kubelet.
    Fail,
}

/// `budget.*`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The most pulls per second that the whole fleet starts at one registry; 0: no limit.
    pub pulls_per_second: f64,
    /// The most pulls of the whole fleet that run at one registry at a time; 0: no limit.
    pub pulls_at_once: u32,
    /// What a node does when it does not reach the budget's leader.
    pub alone: Alone,
}

/// What a node does when it does not reach the budget's leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alone {
    /// It takes its share of the budget, but never less than one pull at a time, and ignores quotas.
    #[default]
    Open,
    /// It takes no more than its share of the budget.
    Share,
}

/// `backoff.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// The back-off after the first failure; it doubles with each further failure.
    #[serde(with = "duration")]
    pub initial: Duration,
    /// The longest back-off.
    #[serde(with = "duration")]
    pub max: Duration,
}

/// `bus.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// Whether a message to a receiver in the same process is delivered without NATS.
    pub local_delivery: bool,
}

/// `nats.*`. With neither `url` nor `context` there is no NATS: see [`Nats::is_wanted`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// The servers, tried in any order.
    pub url: Vec<ServerUrl>,
    /// A `.creds` file: user JWT and seed.
    #[serde(with = "empty_as_none")]
    pub creds: Option<PathBuf>,
    /// A file with an nkey seed.
    #[serde(with = "empty_as_none")]
    pub nkey: Option<PathBuf>,
    /// A file with a token, read again at each connect.
    #[serde(with = "empty_as_none")]
    pub token_file: Option<PathBuf>,
    /// The prefix of the subjects on which answers arrive.
    #[serde(with = "empty_as_none")]
    pub inbox_prefix: Option<String>,
    /// PEM: the authority that signed the server's certificate.
    #[serde(with = "empty_as_none")]
    pub ca: Option<PathBuf>,
    /// PEM: the client's certificate.
    #[serde(with = "empty_as_none")]
    pub cert: Option<PathBuf>,
    /// PEM: the client's key.
    #[serde(with = "empty_as_none")]
    pub key: Option<PathBuf>,
    /// A context of the nats CLI; the other keys have precedence over it.
    #[serde(with = "empty_as_none")]
    pub context: Option<String>,
}

/// `auth.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// A `config.json` or `auth.json`. None: the usual places.
    #[serde(with = "empty_as_none")]
    pub file: Option<PathBuf>,
}

/// `events.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// How many of its last events an agent keeps in memory for `fleetpull events`.
    pub keep: u32,
    /// The most bytes of events that wait in the state directory for the fleet's stream.
    #[serde(with = "bytes")]
    pub outbox_max: u64,
    /// The longest time between storing an event and fsync; a power loss may lose events of this time.
    #[serde(with = "duration")]
    pub fsync_interval: Duration,
    /// How long the fleet's stream keeps events, if this agent creates the stream.
    #[serde(with = "duration")]
    pub stream_max_age: Duration,
    /// How many bytes the fleet's stream holds, if this agent creates the stream.
    #[serde(with = "bytes")]
    pub stream_max_bytes: u64,
}

/// `traces.*`. The standard variables (`OTEL_*`) decide whether and where traces are exported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// The URL of a trace, with `{trace_id}` in place of the id. None: no link is shown.
    #[serde(with = "empty_as_none")]
    pub link: Option<String>,
    /// A request that took longer is exported even if it was not sampled.
    #[serde(with = "duration")]
    pub keep_slow: Duration,
}

/// `log.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The least severe level that is written.
    pub level: LogLevel,
    /// The format of a line.
    pub format: LogFormat,
}

/// `metrics.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// An IP address and a port. None: the agent serves no metrics over HTTP.
    #[serde(with = "empty_as_none")]
    pub address: Option<String>,
}

/// The least severe level that is written to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Somebody must act.
    Error,
    /// Somebody may have to act.
    Warn,
    /// An event.
    #[default]
    Info,
    /// The reason for an event.
    Debug,
    /// Everything.
    Trace,
}

/// The format of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl LogLevel {
    /// The spelling of `tracing` and of the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl Nats {
    /// Whether the settings name a NATS server. If not, the bus works in the memory of this process only.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        !self.url.is_empty() || self.context.is_some()
    }
}

impl Fleet {
    /// The group of nodes that reach registries from one address: as set, else the scope.
    #[must_use]
    pub fn egress(&self) -> &str {
        self.egress.as_deref().unwrap_or(&self.scope)
    }
}

impl Share {
    /// The spelling of the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
            Self::Off => "off",
        }
    }
}

impl Pull {
    /// How many pulls may run at a time: 1 when serial.
    #[must_use]
    pub fn slots(&self) -> u32 {
        if self.serial { 1 } else { self.parallel }
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            name: "fleetpull".to_owned(),
            cluster: None,
            share: Share::Enforce,
            scope: "default".to_owned(),
            egress: None,
            credential_group: None,
            key_file: None,
            gone_after: Duration::from_secs(3_600),
        }
    }
}

impl Default for Node {
    fn default() -> Self {
        Self { name: None, labels: BTreeMap::new(), zone: "default".to_owned() }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self { pulls_per_second: 200.0, pulls_at_once: 0, alone: Alone::Open }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self { dir: None, fsync: true }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            config_path: Some(PathBuf::from("/etc/containerd/certs.d")),
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(10),
            no_progress_timeout: Duration::from_secs(30),
            connections: 8,
        }
    }
}

impl Default for Pull {
    fn default() -> Self {
        Self { connections: 4, parallel: 3, serial: false, timeout: None, queue: 1000, keep_free: 2 << 30 }
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Self { qps: 5.0, burst: 10, on_exhausted: OnExhausted::Wait, max_wait: Duration::from_secs(10) }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(10), max: Duration::from_secs(300) }
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self { local_delivery: true }
    }
}

impl Default for Traces {
    fn default() -> Self {
        Self { link: None, keep_slow: Duration::from_secs(10) }
    }
}

impl Default for Events {
    fn default() -> Self {
        let week = Duration::from_secs(7 * 86_400);
        Self {
            keep: 1000,
            outbox_max: 64 << 20,
            fsync_interval: Duration::from_millis(100),
            stream_max_age: week,
            stream_max_bytes: 1 << 30,
        }
    }
}
