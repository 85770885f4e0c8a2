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
    /// Which fleet.
    pub fleet: Fleet,
    /// Which node.
    pub node: Node,
    /// What pulls.
    pub runtime: Runtime,
    /// Where the embedded runtime keeps images.
    pub store: Store,
    /// Where the agent keeps what it must remember.
    pub state: State,
    /// How the embedded runtime reaches registries.
    pub registry: Registry,
    /// How many pulls, and how long.
    pub pull: Pull,
    /// How often a pull may start.
    pub throttle: Throttle,
    /// How much the whole fleet may ask of a registry.
    pub budget: Budget,
    /// How long a failed image is left alone.
    pub backoff: Backoff,
    /// How messages travel.
    pub bus: Bus,
    /// How NATS is reached.
    pub nats: Nats,
    /// Where registry credentials come from.
    pub auth: Auth,
    /// What is kept of events.
    pub events: Events,
    /// Which requests are always traced, and where traces are looked at.
    pub traces: Traces,
    /// What is logged.
    pub log: Log,
    /// Where the agent's metrics and health can be read.
    pub metrics: Metrics,
}

/// `fleet.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fleet {
    /// First token of every subject.
    pub name: String,
    /// Stands before the node's name.
    #[serde(with = "empty_as_none")]
    pub cluster: Option<String>,
    /// What is done with what other nodes found out.
    pub share: Share,
    /// Which nodes see the same registries.
    pub scope: String,
    /// None: see [`Fleet::egress`].
    #[serde(with = "empty_as_none")]
    pub egress: Option<String>,
    /// Which nodes' minted logins count as one.
    #[serde(with = "empty_as_none")]
    pub credential_group: Option<String>,
    /// None: the fleet's key is made once and kept in its bucket `keys`.
    #[serde(with = "empty_as_none")]
    pub key_file: Option<PathBuf>,
    /// How long a silent node belongs to the fleet.
    #[serde(with = "duration")]
    pub gone_after: Duration,
}

/// What is done with what other nodes found out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// The node goes by it.
    #[default]
    Enforce,
    /// It is recorded, explained and counted, and refuses nothing.
    Observe,
    /// The node neither tells nor listens.
    Off,
}

/// `node.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// None: the host's.
    #[serde(with = "empty_as_none")]
    pub name: Option<String>,
    /// What `--selector` chooses by.
    pub labels: BTreeMap<String, String>,
    /// Which nodes lose a registry together.
    pub zone: String,
}

/// `runtime.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// Which adapter.
    pub kind: RuntimeKind,
    /// `unix://` and an absolute path. None: the first socket there is; see [`Runtime::endpoint_on`].
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
    /// Safe against power loss, not only against a killed process.
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
    /// For one endpoint: name, TCP and TLS.
    #[serde(with = "duration")]
    pub connect_timeout: Duration,
    /// From the request sent to the first byte of the answer.
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
    /// The most connections of one pull: so many layers at a time.
    pub connections: u32,
    /// The most pulls of the node at a time. [`Pull::slots`] minds `serial` too.
    pub parallel: u32,
    /// One pull after the other.
    pub serial: bool,
    /// The longest one attempt may take. None: as long as it makes progress.
    #[serde(with = "zero_as_none")]
    pub timeout: Option<Duration>,
    /// The most pulls that wait for their turn.
    pub queue: u32,
    /// Bytes that a pull which no pod asked for must leave free.
    #[serde(with = "bytes")]
    pub keep_free: u64,
}

/// `throttle.*`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throttle {
    /// Starts of pulls per second; 0: no limit.
    pub qps: f64,
    /// Starts at once after a rest.
    pub burst: u32,
    /// What becomes of a pull that finds the bucket empty.
    pub on_exhausted: OnExhausted,
    /// The longest that a pull without a standing pull waits for the fleet.
    #[serde(with = "duration")]
    pub max_wait: Duration,
}

/// What becomes of a pull that finds the bucket empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExhausted {
    /// It waits its turn.
    #[default]
    Wait,
    /// It fails with `pull QPS exceeded`, as kubelet's do.
    Fail,
}

/// `budget.*`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Of the whole fleet at one registry; 0: no limit.
    pub pulls_per_second: f64,
    /// Of the whole fleet at one registry; 0: no limit.
    pub pulls_at_once: u32,
    /// What a node does that does not reach the budget's leader.
    pub alone: Alone,
}

/// What a node does that does not reach the budget's leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alone {
    /// Its share of the budget, but never less than one pull at a time, and no quota stops it.
    #[default]
    Open,
    /// No more than its share.
    Share,
}

/// `backoff.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// After the first failure; it doubles with each further one.
    #[serde(with = "duration")]
    pub initial: Duration,
    /// Where the doubling ends.
    #[serde(with = "duration")]
    pub max: Duration,
}

/// `bus.*`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// An addressee in the same process is reached without leaving it.
    pub local_delivery: bool,
}

/// `nats.*`. With neither `url` nor `context` there is no NATS: see [`Nats::is_wanted`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// Servers, tried in any order.
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
    /// What the subjects begin with on which answers arrive.
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
    /// A context of the nats CLI; what stands in the other keys goes before it.
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
    /// How many of the last events an agent keeps for `fleetpull events`.
    pub keep: u32,
    /// The most bytes of events that wait in the state directory for the fleet's stream.
    #[serde(with = "bytes")]
    pub outbox_max: u64,
    /// How long stored events may be lost with the machine's power.
    #[serde(with = "duration")]
    pub fsync_interval: Duration,
    /// How long the fleet's stream keeps events, where this agent makes it.
    #[serde(with = "duration")]
    pub stream_max_age: Duration,
    /// How many bytes the fleet's stream holds, where this agent makes it.
    #[serde(with = "bytes")]
    pub stream_max_bytes: u64,
}

/// `traces.*`. Whether and where traces are exported the standard variables (`OTEL_*`) say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// With `{trace_id}` where the id belongs. None: no link is shown.
    #[serde(with = "empty_as_none")]
    pub link: Option<String>,
    /// A request that took longer is exported whatever the sampling.
    #[serde(with = "duration")]
    pub keep_slow: Duration,
}

/// `log.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The least that is written.
    pub level: LogLevel,
    /// How a line looks.
    pub format: LogFormat,
}

/// `metrics.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// An IP address and a port. None: there is no such address.
    #[serde(with = "empty_as_none")]
    pub address: Option<String>,
}

/// The least that is written to the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// What somebody must see to.
    Error,
    /// What somebody may have to see to.
    Warn,
    /// What happened.
    #[default]
    Info,
    /// Why it happened.
    Debug,
    /// Everything.
    Trace,
}

/// How a line of the log looks.
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
    /// As `tracing` and the file spell it.
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
    /// Whether a NATS server is to be reached at all; else the bus is this process's memory.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        !self.url.is_empty() || self.context.is_some()
    }
}

impl Fleet {
    /// Which nodes reach registries from one address: as set, else those of the scope.
    #[must_use]
    pub fn egress(&self) -> &str {
        self.egress.as_deref().unwrap_or(&self.scope)
    }
}

impl Share {
    /// As the file spells it.
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
