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

    PULLS = counter("fleetpull_pulls_total", &["outcome", "class"], "Requests for images that were answered, and standing pulls that ended, by outcome; class says why a pull failed");
    PULL_DURATION = histogram("fleetpull_pull_duration_seconds", &[], &buckets::PULL_SECONDS, "Time until an image was pulled, waits included, as kubelet_image_pull_duration_seconds counts it; images that were present do not count");
    PULL_SIZE = histogram("fleetpull_pull_size_bytes", &[], &buckets::SIZE_BYTES, "Size of each image that was pulled");
    ATTEMPT_DURATION = histogram("fleetpull_attempt_duration_seconds", &[], &buckets::ATTEMPT_SECONDS, "Time of one call of the runtime for one image, whatever its outcome");
    WAIT_DURATION = histogram("fleetpull_wait_duration_seconds", &["cause"], &buckets::WAIT_SECONDS, "Time that a pull waited, by cause: clearance of the fleet, permit of the registry's budget, slot of this node; local_backoff is the wait that a refusal by this node's own back-off announced");
    REFUSALS = counter("fleetpull_refusals_total", &["class", "learned"], "Pulls that were refused before a registry was asked, by the class of the failure and by who learned of it: this node itself or another one");
    PULLS_PULLING = gauge("fleetpull_pulls_pulling", &[], "Pulls that the runtime works on").of("pulls_pulling");
    PULLS_WAITING = gauge("fleetpull_pulls_waiting", &[], "Pulls that wait for their turn").of("pulls_waiting");
    PULL_CALLERS = gauge("fleetpull_pull_callers", &[], "Callers that wait for these pulls").of("pulls_callers");
    REGISTRY_REQUESTS = counter("fleetpull_registry_requests_total", &["registry", "status"], "HTTP requests of the embedded runtime and of side-channel checks, by the registry that they were for and by their status; none: no answer");

    BACKOFF_HELD = gauge("fleetpull_backoff_held", &[], "Images that this node's own back-off holds back").of("backoff_held");
    BACKOFF_FAILURES = counter("fleetpull_backoff_failures_total", &[], "Failures that this node's own back-off counted").of("backoff_failures_total");
    BACKOFF_EVICTED = counter("fleetpull_backoff_evicted_total", &[], "Back-offs of this node that were forgotten for want of room").of("backoff_evicted_total");

    PERMITS = gauge("fleetpull_permits", &[], "Permits of this node's slots that are out").of("throttle_granted");
    PERMITS_QUEUED = gauge("fleetpull_permits_queued", &[], "Pulls in this node's queue for a slot").of("throttle_queued");
    PERMITS_REFUSED = counter("fleetpull_permits_refused_total", &[], "Pulls that this node's queue refused").of("throttle_refused_total");
    PERMITS_RECLAIMED = counter("fleetpull_permits_reclaimed_total", &[], "Permits taken back because their holder did not renew them").of("throttle_reclaimed_total");

    EVENTS_RECORDED = counter("fleetpull_events_recorded_total", &[], "Events recorded").of("events_recorded_total");
    EVENTS_PUBLISHED = counter("fleetpull_events_published_total", &[], "Events that the bus took").of("events_published_total");
    EVENTS_DROPPED = counter("fleetpull_events_dropped_total", &[], "Events that are lost: more waited for the fleet's stream than events.outbox_max, or they could not be stored").of("events_dropped_total");
    EVENTS_UNPUBLISHED = counter("fleetpull_events_unpublished_total", &[], "Events that are not stored, as those of present images, and that the bus did not take").of("events_unpublished_total");
    OUTBOX_EVENTS = gauge("fleetpull_outbox_events", &[], "Stored events that wait for the fleet's stream");
    OUTBOX_OLDEST = gauge("fleetpull_outbox_oldest_seconds", &[], "Age of the oldest of these events; 0 if there is none");

    BUS_STATE = gauge("fleetpull_bus_state", &["state"], "1 for the state that the bus is in: connected, degraded or disconnected");
    BUS_LOST = counter("fleetpull_bus_lost_total", &[], "Times that the bus was lost").of("bus_lost_total");
    BUS_MESSAGES_DROPPED = counter("fleetpull_bus_messages_dropped_total", &[], "Messages from the bus that came faster than they were read").of("bus_messages_dropped_total");

    SHARING_ALONE = gauge("fleetpull_sharing_alone", &[], "1 if the node goes by kubelet's rule because it does not reach the fleet, else 0").of("shared_alone").sharing();
    BUS_MISSES = counter("fleetpull_bus_misses_total", &[], "Answers of the bus that did not come in time").of("shared_bus_misses_total").sharing();
    REPLICA_ENTRIES = gauge("fleetpull_replica_entries", &[], "Back-off entries in this node's replica").of("shared_entries").sharing();
    REPLICA_ENTRIES_BINDING = gauge("fleetpull_replica_entries_binding", &[], "Back-off entries that hold this node back").of("shared_binding").sharing();
    REPLICA_REPORTS = gauge("fleetpull_replica_reports", &[], "Reports in this node's replica").of("shared_reports").sharing();
    REPLICA_LAG = gauge("fleetpull_replica_lag_reports", &[], "Changes that the registrar has announced and this node's replica does not hold").of("shared_replica_lag").sharing();
    REPLICA_GAPS = counter("fleetpull_replica_gaps_total", &[], "Times that the replica missed a change").of("shared_gaps_total").sharing();
    REPLICA_SNAPSHOTS = counter("fleetpull_replica_snapshots_total", &[], "Times that the replica was read anew").of("shared_snapshots_total").sharing();
    REPORTS_SENT = counter("fleetpull_reports_sent_total", &[], "Reports that this node put on the bus").of("shared_reports_sent_total").sharing();
    REPORTS_UNSENT = counter("fleetpull_reports_unsent_total", &[], "Reports that the bus did not take, to be offered again").of("shared_reports_unsent_total").sharing();
    REPORTS_REFUSED = counter("fleetpull_reports_refused_total", &[], "Reports of others that could not be read or were not their writer's to make").of("shared_reports_refused_total").sharing();
    REPORTS_EVICTED = counter("fleetpull_reports_evicted_total", &[], "Reports forgotten for want of room").of("shared_reports_evicted_total").sharing();
    REPORTERS_DISTRUSTED = counter("fleetpull_reporters_distrusted_total", &[], "Reporters that became distrusted, because others succeeded where they failed").of("shared_distrusted_total").sharing();
    REFUSALS_OBSERVED = counter("fleetpull_refusals_observed_total", &[], "Refusals that fleet.share = observe or a pause prevented").of("shared_observed_total").sharing();
    PAUSES = gauge("fleetpull_pauses", &[], "Pauses of sharing in force").of("shared_pauses").sharing();
    ATTEMPTS_ELECTED = counter("fleetpull_attempts_elected_total", &[], "Attempts that this node made for the whole fleet, as leader or prober").of("shared_for_all_total").sharing();
    ATTEMPTS_ABANDONED = counter("fleetpull_attempts_abandoned_total", &[], "Attempts given up because others were answered meanwhile, or failed").of("shared_abandoned_total").sharing();
    LEASES_TAKEN = counter("fleetpull_leases_taken_total", &["lease"], "Leases that this node got: of a probe, a lead, a slot (one of the three attempts at a registry that has not answered lately), a budget, the registrar").sharing();
    LEASES_LOST = counter("fleetpull_leases_lost_total", &["lease"], "Leases that ended while this node still held them: of an attempt (its result was dropped), a budget, the registrar").sharing();
    BUDGET_ALONE = counter("fleetpull_budget_alone_total", &[], "Pulls begun without the fleet's permit because no leader was reached").of("budgets_alone_total").sharing();
    BUDGET_OVERRUN = counter("fleetpull_budget_overrun_total", &[], "Permits of the fleet that ran out while their pulls went on").of("budgets_overrun_total").sharing();
    REGISTRAR = gauge("fleetpull_registrar", &[], "1 if this node is the fleet's registrar, else 0").of("presence_registrar").sharing();

    NODES_ALIVE = gauge("fleetpull_nodes_alive", &[], "Nodes of the fleet that are alive").leader();
    NODES_KNOWN = gauge("fleetpull_nodes_known", &[], "Nodes that the registrar knows").leader();
    ENTRIES_OPEN = gauge("fleetpull_entries_open", &["registry", "class"], "Back-off entries of the fleet, by registry and class").leader();
    ENTRY_OLDEST = gauge("fleetpull_entry_oldest_seconds", &[], "Time since the first failure of the entry that is open longest; 0: none is").leader();
    BUDGET_RATE_CAP = gauge("fleetpull_budget_rate_cap", &["registry"], "Pulls per second that the fleet may begin, as set; a registry's budgets together").leader();
    BUDGET_RATE_IN_FORCE = gauge("fleetpull_budget_rate_in_force", &["registry"], "Pulls per second that the fleet is allowed at present; a registry's budgets together").leader();
    BUDGET_IN_FLIGHT = gauge("fleetpull_budget_in_flight", &["registry"], "Permits of the fleet that are out").leader();
    BUDGET_WAITING = gauge("fleetpull_budget_waiting", &["registry"], "Pulls of the fleet that wait for a permit").leader();
    QUOTA_LIMIT = gauge("fleetpull_quota_limit", &["registry"], "Pulls that the registry allows in its window; of several windows or budgets the one that is nearest its end").leader();
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
