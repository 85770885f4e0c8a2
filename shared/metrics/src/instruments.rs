//! The instruments that the shells of services count.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::{FailureClass, TraceContext};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::readings::Readings;
use crate::registries::Registries;
use crate::table::{self, Instrument};

/// What a pull waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The fleet's clearance to ask a registry.
    Clearance,
    /// A permit of the registry's budget.
    Permit,
    /// A slot of the node.
    Slot,
    /// The node's own back-off.
    LocalBackoff,
}

/// Which node learned of the failure because of which a pull is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// This node.
    Itself,
    /// Another node.
    Other,
}

/// The purpose of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The next attempt after a failure, for all.
    Probe,
    /// The lead of an image's resolution: the first attempt for all.
    Lead,
    /// A slot: one of the attempts at a registry that has answered nobody lately.
    Slot,
    /// The lease of a budget leader.
    Budget,
    /// The fleet's registrar.
    Registrar,
}

/// The status of a registry's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Status(&'static str);

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 4] = [Self::Clearance, Self::Permit, Self::Slot, Self::LocalBackoff];

    fn as_str(self) -> &'static str {
        match self {
            Self::Clearance => "clearance",
            Self::Permit => "permit",
            Self::Slot => "slot",
            Self::LocalBackoff => "local_backoff",
        }
    }
}

impl Learned {
    const ALL: [Self; 2] = [Self::Itself, Self::Other];

    fn as_str(self) -> &'static str {
        match self {
            Self::Itself => "self",
            Self::Other => "other",
        }
    }
}

impl Lease {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Probe, Self::Lead, Self::Slot, Self::Budget, Self::Registrar];

    /// The value of the label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Lead => "lead",
            Self::Slot => "slot",
            Self::Budget => "budget",
            Self::Registrar => "registrar",
        }
    }
}

impl Status {
    /// No answer.
    pub const NONE: Self = Self("none");

    /// The status of an answer. Statuses that decide the outcome of a pull have their own value, the others share one for their first
    /// digit.
    #[must_use]
    pub fn of(code: u16) -> Self {
        Self(match code {
            401 => "401",
            404 => "404",
            429 => "429",
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            500..=599 => "5xx",
            _ => "other",
        })
    }
}

/// The trace of one observation. It is formatted only when the text is made.
#[derive(Clone, Copy, Debug)]
struct TraceId(u128);

impl EncodeLabelSet for TraceId {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        ("trace_id", format!("{:032x}", self.0)).encode(encoder.encode_label())
    }
}

type Traced = HistogramWithExemplars<TraceId>;
type Labels = Vec<(&'static str, &'static str)>;

/// The counters of one agent's shells. Clones share them; counting costs the same whether or not anybody reads them.
#[derive(Clone, Debug, Default)]
pub struct Instruments(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pull_duration: Traced,
    pull_size: Histogram,
    attempt_duration: Traced,
    waits: [Traced; Cause::ALL.len()],
    wait_family: Family<Labels, Traced, fn() -> Traced>,
    refusals: [[Counter; Learned::ALL.len()]; FailureClass::ALL.len()],
    leases_taken: [Counter; Lease::ALL.len()],
    leases_lost: [Counter; Lease::ALL.len()],
    requests: Mutex<BTreeMap<(String, Status), u64>>,
    registries: Registries,
}

impl Default for Inner {
    fn default() -> Self {
        let wait_family: Family<Labels, Traced, fn() -> Traced> = Family::new_with_constructor(|| traced(&table::WAIT_DURATION));
        let waits = Cause::ALL.map(|cause| wait_family.get_or_create_owned(&vec![("cause", cause.as_str())]));
        Self {
            pull_duration: traced(&table::PULL_DURATION),
            pull_size: Histogram::new(table::PULL_SIZE.bounds().iter().copied()),
            attempt_duration: traced(&table::ATTEMPT_DURATION),
            waits,
            wait_family,
            refusals: Default::default(),
            leases_taken: Default::default(),
            leases_lost: Default::default(),
            requests: Mutex::default(),
            registries: Registries::default(),
        }
    }
}

fn traced(instrument: &Instrument) -> Traced {
    Traced::new(instrument.bounds().iter().copied())
}

impl Instruments {
    /// An image was pulled for a caller: the duration with all waits, and the size of the image.
    pub fn pulled(&self, took: Duration, size_bytes: u64, trace_id: u128) {
        self.0.pull_duration.observe(took.as_secs_f64(), Some(TraceId(trace_id)), None);
        self.0.pull_size.observe(size_bytes as f64);
    }

    /// A call of the runtime ended.
    pub fn attempted(&self, took: Duration, trace: TraceContext) {
        self.0.attempt_duration.observe(took.as_secs_f64(), Some(TraceId(trace.trace_id)), None);
    }

    /// A pull waited.
    pub fn waited(&self, cause: Cause, time: Duration, trace: TraceContext) {
        self.0.waits[cause as usize].observe(time.as_secs_f64(), Some(TraceId(trace.trace_id)), None);
    }

    /// A pull was refused before a registry was asked.
    pub fn refused(&self, class: FailureClass, learned: Learned) {
        let row = FailureClass::ALL.iter().position(|known| *known == class).unwrap_or(FailureClass::ALL.len() - 1);
        self.0.refusals[row][learned as usize].inc();
    }

    /// This node got a lease.
    pub fn lease_taken(&self, lease: Lease) {
        self.0.leases_taken[lease as usize].inc();
    }

    /// A lease ended while this node held it.
    pub fn lease_lost(&self, lease: Lease) {
        self.0.leases_lost[lease as usize].inc();
    }

    /// A registry answered a request, or did not.
    pub fn registry_asked(&self, registry: &str, status: Status) {
        let label = self.registry_label(registry);
        let mut requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((label, status)).or_default() += 1;
    }

    /// The label of a registry: its name, or `other` if too many have been named already.
    #[must_use]
    pub fn registry_label(&self, registry: &str) -> String {
        self.0.registries.label(registry)
    }

    /// The whole text, as OpenMetrics.
    #[must_use]
    pub fn text(&self, mut readings: Readings) -> String {
        self.read(&mut readings);
        let mut registry = Registry::default();
        let Inner { pull_duration, pull_size, attempt_duration, wait_family, .. } = &*self.0;
        register(&mut registry, &table::PULL_DURATION, pull_duration.clone());
        register(&mut registry, &table::PULL_SIZE, pull_size.clone());
        register(&mut registry, &table::ATTEMPT_DURATION, attempt_duration.clone());
        register(&mut registry, &table::WAIT_DURATION, wait_family.clone());
        registry.register_collector(Box::new(readings));
        let mut text = String::new();
        // Writing to a string does not fail, and an instrument that cannot be encoded would cut the text short.
        if encode(&mut text, &registry).is_err() {
            text.clear();
        }
        text
    }

    fn read(&self, readings: &mut Readings) {
        for (class, row) in FailureClass::ALL.iter().zip(&self.0.refusals) {
            for (learned, counter) in Learned::ALL.iter().zip(row) {
                readings.set(&table::REFUSALS, &[class.as_str(), learned.as_str()], counter.get() as f64);
            }
        }
        if readings.is_sharing() {
            for (lease, counter) in Lease::ALL.iter().zip(&self.0.leases_taken) {
                readings.set(&table::LEASES_TAKEN, &[lease.as_str()], counter.get() as f64);
            }
            for lease in [Lease::Budget, Lease::Registrar] {
                readings.set(&table::LEASES_LOST, &[lease.as_str()], self.0.leases_lost[lease as usize].get() as f64);
            }
        }
        for ((registry, status), count) in &*self.0.requests.lock().unwrap_or_else(PoisonError::into_inner) {
            readings.set(&table::REGISTRY_REQUESTS, &[registry, status.0], *count as f64);
        }
    }
}

fn register(registry: &mut Registry, instrument: &Instrument, metric: impl prometheus_client::registry::Metric) {
    let family = instrument.family();
    match instrument.unit() {
        Some(unit) => {
            let stem = family.trim_end_matches(unit).trim_end_matches('_');
            registry.register_with_unit(stem, instrument.help, Unit::Other(unit.to_owned()), metric);
        }
        None => registry.register(family, instrument.help, metric),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(trace_id: u128) -> TraceContext {
        TraceContext { trace_id, span_id: 1, sampled: true }
    }

    #[test]
    fn durations_and_waits_name_their_trace() {
        let instruments = Instruments::default();
        instruments.pulled(Duration::from_secs(3), 50 << 20, 0xabc);
        instruments.attempted(Duration::from_millis(700), trace(0xdef));
        instruments.waited(Cause::Permit, Duration::from_millis(40), trace(0x123));
        let text = instruments.text(Readings::default());
        for line in [
            "fleetpull_pull_duration_seconds_bucket{le=\"5.0\"} 1 # {trace_id=\"00000000000000000000000000000abc\"} 3.0\n",
            "fleetpull_pull_size_bytes_bucket{le=\"104857600.0\"} 1\n",
            "fleetpull_attempt_duration_seconds_bucket{le=\"1.220703125\"} 1 # {trace_id=\"00000000000000000000000000000def\"} 0.7\n",
            "fleetpull_wait_duration_seconds_bucket{le=\"0.1\",cause=\"permit\"} 1 # {trace_id=\"00000000000000000000000000000123\"} 0.04\n",
            "fleetpull_wait_duration_seconds_count{cause=\"slot\"} 0\n",
            "# TYPE fleetpull_wait_duration_seconds histogram\n",
            "# UNIT fleetpull_pull_size_bytes bytes\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn closed_labels_stand_from_the_start_so_that_a_first_refusal_is_seen_as_one() {
        let instruments = Instruments::default();
        instruments.refused(FailureClass::NotFound, Learned::Other);
        instruments.lease_taken(Lease::Probe);
        let text = instruments.text(Readings::default().sharing());
        for line in [
            "fleetpull_refusals_total{class=\"not_found\",learned=\"other\"} 1\n",
            "fleetpull_refusals_total{class=\"not_found\",learned=\"self\"} 0\n",
            "fleetpull_leases_taken_total{lease=\"probe\"} 1\n",
            "fleetpull_leases_lost_total{lease=\"budget\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!instruments.text(Readings::default()).contains("leases"), "nothing is leased where nothing is shared");
    }

    #[test]
    fn answers_of_registries_are_counted_by_what_decides() {
        let instruments = Instruments::default();
        for code in [200, 206, 307, 401, 403, 404, 429, 500, 503, 999] {
            instruments.registry_asked("r.example", Status::of(code));
        }
        instruments.registry_asked("r.example", Status::NONE);
        let text = instruments.text(Readings::default());
        for (status, count) in
            [("2xx", 2), ("3xx", 1), ("401", 1), ("4xx", 1), ("404", 1), ("429", 1), ("5xx", 2), ("none", 1), ("other", 1)]
        {
            let line = format!("fleetpull_registry_requests_total{{registry=\"r.example\",status=\"{status}\"}} {count}\n");
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }
}
