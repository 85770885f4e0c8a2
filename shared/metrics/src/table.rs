//! The table of instruments, where each is declared.

use crate::buckets;

/// The prefix of every name.
pub const PREFIX: &str = "fleetpull_";
/// The suffix of a counter's name.
const TOTAL: &str = "_total";

/// One instrument.
#[derive(Debug, PartialEq)]
pub struct Instrument {
    /// The scraped name; a counter's with `_total`, one with a unit with `_seconds` or `_bytes`.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// The description, one sentence without its full stop.
    pub help: &'static str,
    /// Which agents export it.
    pub scope: Scope,
    /// The name of the same value in `fleetpull nodes NAME --counters`; none: its own name without [`PREFIX`] and with its labels.
    pub counter: Option<&'static str>,
}

/// The kind of an instrument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows while the agent runs.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts values by these upper bounds.
    Histogram(&'static [f64]),
}

/// Which agents export an instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every agent.
    Node,
    /// Every agent that shares with a fleet.
    Sharing,
    /// Only the agent that leads the subject of the instrument, so that a sum over all agents counts it once.
    Leader,
}

impl Kind {
    /// The kind in a `# TYPE` line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Instrument {
    /// The name of its family: a counter's without `_total`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix(TOTAL).unwrap_or(self.name),
            Kind::Gauge | Kind::Histogram(_) => self.name,
        }
    }

    /// The base unit at the end of its name, if there is one.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        ["seconds", "bytes"].into_iter().find(|unit| self.family().ends_with(unit))
    }

    /// The bounds of a histogram; empty for other kinds.
    #[must_use]
    pub fn bounds(&self) -> &'static [f64] {
        match self.kind {
            Kind::Histogram(bounds) => bounds,
            Kind::Counter | Kind::Gauge => &[],
        }
    }
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Instrument {
    Instrument { name, kind: Kind::Counter, labels, help, scope: Scope::Node, counter: None }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Instrument {
    Instrument { kind: Kind::Gauge, ..counter(name, labels, help) }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], bounds: &'static [f64], help: &'static str) -> Instrument {
    Instrument { kind: Kind::Histogram(bounds), ..counter(name, labels, help) }
}

impl Instrument {
    /// Declares that the value is this one of `fleetpull nodes NAME --counters`.
    const fn of(self, counter: &'static str) -> Self {
        Self { counter: Some(counter), ..self }
    }

    const fn sharing(self) -> Self {
        Self { scope: Scope::Sharing, ..self }
    }

    const fn leader(self) -> Self {
        Self { scope: Scope::Leader, ..self }
    }
}

/// Declares each instrument once, and lists them.
macro_rules! instruments {
    ($($name:ident = $instrument:expr;)*) => {
        $(#[doc = concat!("See its row of the table: `", stringify!($name), "`.")] pub static $name: Instrument = $instrument;)*
        /// Every instrument, in the order of the reference.
        pub static ALL: &[&Instrument] = &[$(&$name),*];
    };
}

instruments! {
    BUILD_INFO = gauge("fleetpull_build_info", &["version"], "1, with the version of the program");
    START_TIME = gauge("fleetpull_start_time_seconds", &[], "When the agent began, in seconds since 1970");
    RUNTIME_USABLE = gauge("fleetpull_runtime_usable", &[], "1 if the container runtime can be used, else 0").of("runtime_usable");

    PULLS = counter("fleetpull_pulls_total", &["outcome", "class"], "Answered pull requests and ended standing pulls, by outcome; class is the class of the failure");
    PULL_DURATION = histogram("fleetpull_pull_duration_seconds", &[], &buckets::PULL_SECONDS, "Time until an image was pulled, including waits, as in kubelet_image_pull_duration_seconds; present images do not count");
    PULL_SIZE = histogram("fleetpull_pull_size_bytes", &[], &buckets::SIZE_BYTES, "Size of each image that was pulled");
    ATTEMPT_DURATION = histogram("fleetpull_attempt_duration_seconds", &[], &buckets::ATTEMPT_SECONDS, "Duration of one pull call of the runtime, with any outcome");
    WAIT_DURATION = histogram("fleetpull_wait_duration_seconds", &["cause"], &buckets::WAIT_SECONDS, "Time that a pull waited, by cause: clearance of the fleet, permit of the registry's budget, slot of this node; local_backoff is the wait that a refusal by this node's own back-off announced");
    REFUSALS = counter("fleetpull_refusals_total", &["class", "learned"], "Pulls that were refused without a registry request because an attempt had failed, by the class of the failure and by the node that found it: this one or another; a waiting standing pull does not count");
    PULLS_PULLING = gauge("fleetpull_pulls_pulling", &[], "Pulls in progress in the runtime").of("pulls_pulling");
    PULLS_WAITING = gauge("fleetpull_pulls_waiting", &[], "Waiting pulls").of("pulls_waiting");
    PULL_CALLERS = gauge("fleetpull_pull_callers", &[], "Callers of these pulls").of("pulls_callers");
    REGISTRY_REQUESTS = counter("fleetpull_registry_requests_total", &["registry", "status"], "HTTP requests of the embedded runtime and of side-channel checks, by registry and status; none: no answer");

    BACKOFF_HELD = gauge("fleetpull_backoff_held", &[], "Images in this node's own back-off").of("backoff_held");
    BACKOFF_FAILURES = counter("fleetpull_backoff_failures_total", &[], "Failures counted by this node's own back-off").of("backoff_failures_total");
    BACKOFF_EVICTED = counter("fleetpull_backoff_evicted_total", &[], "Own back-off entries that were evicted because there was no room").of("backoff_evicted_total");

    PERMITS = gauge("fleetpull_permits", &[], "Permits of this node in use").of("throttle_granted");
    PERMITS_QUEUED = gauge("fleetpull_permits_queued", &[], "Pulls in this node's queue for a permit").of("throttle_queued");
    PERMITS_REFUSED = counter("fleetpull_permits_refused_total", &[], "Pulls that this node's throttle refused").of("throttle_refused_total");
    PERMITS_RECLAIMED = counter("fleetpull_permits_reclaimed_total", &[], "Permits that expired because their holder did not renew them").of("throttle_reclaimed_total");

    EVENTS_RECORDED = counter("fleetpull_events_recorded_total", &[], "Events recorded").of("events_recorded_total");
    EVENTS_PUBLISHED = counter("fleetpull_events_published_total", &[], "Events acknowledged by the bus").of("events_published_total");
    EVENTS_DROPPED = counter("fleetpull_events_dropped_total", &[], "Lost events: more than events.outbox_max waited for the fleet's stream, they could not be stored, or were too large for the server").of("events_dropped_total");
    EVENTS_UNPUBLISHED = counter("fleetpull_events_unpublished_total", &[], "Events of kinds that are not stored, such as those of present images, that the bus did not acknowledge").of("events_unpublished_total");
    EVENTS_STORABLE = gauge("fleetpull_events_storable", &[], "1 if events can be stored on this node, or are not stored, else 0").of("events_storable");
    OUTBOX_EVENTS = gauge("fleetpull_outbox_events", &[], "Stored events that wait for the fleet's stream");
    OUTBOX_OLDEST = gauge("fleetpull_outbox_oldest_seconds", &[], "Age of the oldest of these events; 0: none");

    BUS_STATE = gauge("fleetpull_bus_state", &["state"], "1 for the state of the bus: connected, degraded or disconnected; each is 0 if none is configured");
    BUS_LOST = counter("fleetpull_bus_lost_total", &[], "How often the bus was lost").of("bus_lost_total");
    BUS_MESSAGES_DROPPED = counter("fleetpull_bus_messages_dropped_total", &[], "Messages from the bus that were dropped because they came faster than they were read").of("bus_messages_dropped_total");

    SHARING_ALONE = gauge("fleetpull_sharing_alone", &[], "1 if the node uses its own rule, which is kubelet's, because the bus cannot be reached, else 0").of("shared_alone").sharing();
    BUS_MISSES = counter("fleetpull_bus_misses_total", &[], "Answers of the bus that were late or missing").of("shared_bus_misses_total").sharing();
    REPLICA_ENTRIES = gauge("fleetpull_replica_entries", &[], "Back-off entries in this node's replica").of("shared_entries").sharing();
    REPLICA_ENTRIES_BINDING = gauge("fleetpull_replica_entries_binding", &[], "Back-off entries that refuse pulls of this node").of("shared_binding").sharing();
    REPLICA_REPORTS = gauge("fleetpull_replica_reports", &[], "Reports in this node's replica").of("shared_reports").sharing();
    REPLICA_LAG = gauge("fleetpull_replica_lag_reports", &[], "Changes announced by the registrar that this node's replica does not have").of("shared_replica_lag").sharing();
    REPLICA_GAPS = counter("fleetpull_replica_gaps_total", &[], "How often the replica missed a change").of("shared_gaps_total").sharing();
    REPLICA_SNAPSHOTS = counter("fleetpull_replica_snapshots_total", &[], "How often the replica read a snapshot").of("shared_snapshots_total").sharing();
    REPORTS_SENT = counter("fleetpull_reports_sent_total", &[], "Reports that this node published").of("shared_reports_sent_total").sharing();
    REPORTS_UNSENT = counter("fleetpull_reports_unsent_total", &[], "Reports that the bus did not acknowledge; they are published again").of("shared_reports_unsent_total").sharing();
    REPORTS_REFUSED = counter("fleetpull_reports_refused_total", &[], "Reports of other nodes that were unreadable, or under a name that is not the writer's").of("shared_reports_refused_total").sharing();
    REPORTS_EVICTED = counter("fleetpull_reports_evicted_total", &[], "Reports that were evicted because there was no room").of("shared_reports_evicted_total").sharing();
    FAILURES_KEPT = counter("fleetpull_failures_kept_total", &[], "Failures that this node did not publish, because other nodes succeed where it fails").of("shared_kept_to_itself_total").sharing();
    REFUSALS_OBSERVED = counter("fleetpull_refusals_observed_total", &[], "Refusals that had no effect because of fleet.share = observe or a pause").of("shared_observed_total").sharing();
    PAUSES = gauge("fleetpull_pauses", &[], "Pauses of sharing in force").of("shared_pauses").sharing();
    ATTEMPTS_ELECTED = counter("fleetpull_attempts_elected_total", &[], "Attempts that this node made for the whole fleet, as leader or prober").of("shared_for_all_total").sharing();
    ATTEMPTS_ABANDONED = counter("fleetpull_attempts_abandoned_total", &[], "Attempts that were abandoned because other nodes succeeded or failed meanwhile").of("shared_abandoned_total").sharing();
    LEASES_TAKEN = counter("fleetpull_leases_taken_total", &["lease"], "Leases that this node acquired: probe, lead, slot (one of the three attempts at a registry that has not answered lately), budget, registrar").sharing();
    LEASES_LOST = counter("fleetpull_leases_lost_total", &["lease"], "Leases that ended while this node still held them: attempt (its result was dropped), budget, registrar").sharing();
    BUDGET_ALONE = counter("fleetpull_budget_alone_total", &[], "Pulls begun without the fleet's permit because no leader was reached").of("budgets_alone_total").sharing();
    BUDGET_OVERRUN = counter("fleetpull_budget_overrun_total", &[], "Permits of the fleet that expired during their pulls").of("budgets_overrun_total").sharing();
    REGISTRAR = gauge("fleetpull_registrar", &[], "1 if this node is the fleet's registrar, else 0").of("presence_registrar").sharing();

    NODES_ALIVE = gauge("fleetpull_nodes_alive", &[], "Nodes of the fleet that are alive").leader();
    NODES_KNOWN = gauge("fleetpull_nodes_known", &[], "Nodes that the registrar knows").leader();
    ENTRIES_OPEN = gauge("fleetpull_entries_open", &["registry", "class"], "Back-off entries of the fleet, by registry and class").leader();
    ENTRY_OLDEST = gauge("fleetpull_entry_oldest_seconds", &[], "Age of the oldest open back-off entry, since its first failure; 0: none").leader();
    BUDGET_RATE_CAP = gauge("fleetpull_budget_rate_cap", &["registry"], "Configured pulls per second of the fleet; all budgets of a registry together").leader();
    BUDGET_RATE_IN_FORCE = gauge("fleetpull_budget_rate_in_force", &["registry"], "Pulls per second that the fleet may begin at present; all budgets of a registry together").leader();
    BUDGET_RATE_CAUSE = gauge("fleetpull_budget_rate_cause", &["registry", "cause"], "1 for the reason why the rate in force is not higher: policy (the cap), starting, overload, quota or silent_nodes; of several budgets, that of the one with the least of its cap").leader();
    BUDGET_IN_FLIGHT = gauge("fleetpull_budget_in_flight", &["registry"], "Permits of the fleet in use").leader();
    BUDGET_WAITING = gauge("fleetpull_budget_waiting", &["registry"], "Pulls of the fleet that wait for a permit").leader();
    QUOTA_LIMIT = gauge("fleetpull_quota_limit", &["registry"], "Pulls that the registry allows in its window; of several windows or budgets, the one with the least left").leader();
    QUOTA_REMAINING = gauge("fleetpull_quota_remaining", &["registry"], "Pulls left of this quota").leader();
}

/// The instrument with this family name or sample name.
#[must_use]
pub fn of_sample(name: &str) -> Option<&'static Instrument> {
    let is_of = |instrument: &&Instrument| match instrument.kind {
        Kind::Counter | Kind::Gauge => instrument.name == name,
        Kind::Histogram(_) => name.strip_prefix(instrument.name).is_some_and(|suffix| matches!(suffix, "_bucket" | "_sum" | "_count")),
    };
    ALL.iter().copied().find(is_of)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        for instrument in ALL {
            let Instrument { name, kind, labels, help, .. } = instrument;
            assert!(name.starts_with(PREFIX), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(name.ends_with(TOTAL), *kind == Kind::Counter, "{name}: _total is for counters alone");
            assert!(!help.ends_with('.') && help.len() > 10, "{name}: the text adds the full stop");
            for banned in ["image", "pod", "digest", "node", "le"] {
                assert!(!labels.contains(&banned), "{name}: {banned} has no bound, or is the scraper's to add");
            }
        }
        let names: BTreeSet<&str> = ALL.iter().map(|instrument| instrument.name).collect();
        assert_eq!(names.len(), ALL.len(), "each name once");
    }

    #[test]
    fn bounds_grow() {
        for instrument in ALL.iter().filter(|instrument| matches!(instrument.kind, Kind::Histogram(_))) {
            assert!(instrument.bounds().is_sorted_by(|before, after| before < after), "{}", instrument.name);
            assert!(instrument.unit().is_some(), "{}", instrument.name);
        }
    }

    #[test]
    fn samples_are_found_by_their_names() {
        assert_eq!(of_sample("fleetpull_pulls_total"), Some(&PULLS));
        assert_eq!(of_sample("fleetpull_wait_duration_seconds_bucket"), Some(&WAIT_DURATION));
        assert_eq!((of_sample("fleetpull_pulls"), of_sample("fleetpull_wait_duration_seconds"), of_sample("up")), (None, None, None));
    }
}
