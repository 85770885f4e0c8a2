//! An agent that has counted everything exports no more series than it may.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::{FailureClass, TraceContext};
use metrics::table::{self, ALL};
use metrics::{Cause, Instruments, Learned, Lease, Readings, SERIES_MAX, Scope, Status, samples};

/// Far more than get labels of their own.
const REGISTRIES: usize = 1_000;

/// The classes of shared entries: failures of the others stay on their node.
fn shared_classes() -> impl Iterator<Item = FailureClass> {
    FailureClass::ALL.into_iter().filter(|class| !matches!(class, FailureClass::NodeLocal | FailureClass::Unknown))
}

/// The readings of an agent that leads everything, in the worst case.
fn readings(instruments: &Instruments, registries: &[String]) -> Readings {
    let mut readings = Readings::default().sharing();
    readings.set_counters(&ALL.iter().filter_map(|instrument| Some((instrument.counter?.to_owned(), 1))).collect::<BTreeMap<_, _>>());
    let labels: BTreeSet<String> = registries.iter().map(|registry| instruments.registry_label(registry)).collect();
    let open = ALL.iter().filter(|instrument| instrument.counter.is_none() && instrument.bounds().is_empty());
    for instrument in open {
        match instrument.labels {
            [] => readings.set(instrument, &[], 1.0),
            ["registry"] => labels.iter().for_each(|registry| readings.set(instrument, &[registry], 1.0)),
            ["registry", "class"] => labels
                .iter()
                .for_each(|registry| shared_classes().for_each(|class| readings.set(instrument, &[registry, class.as_str()], 1.0))),
            // An agent exports one cause for each registry.
            ["registry", "cause"] => labels.iter().for_each(|registry| readings.set(instrument, &[registry, "overload"], 1.0)),
            ["outcome", "class"] => {
                ["pulled", "present", "backoff", "timed_out", "abandoned"]
                    .iter()
                    .for_each(|outcome| readings.set(instrument, &[outcome, "none"], 1.0));
                FailureClass::ALL.iter().for_each(|class| readings.set(instrument, &["failed", class.as_str()], 1.0));
            }
            ["state"] => ["connected", "degraded", "disconnected"].iter().for_each(|state| readings.set(instrument, &[state], 1.0)),
            ["version"] => readings.set(instrument, &["1.2.3"], 1.0),
            // The instruments set these themselves.
            ["class", "learned"] | ["registry", "status"] => {}
            ["lease"] if instrument.name == table::LEASES_LOST.name => readings.set(instrument, &["attempt"], 1.0),
            ["lease"] => {}
            labels => panic!("{}: how many values can {labels:?} have?", instrument.name),
        }
    }
    readings
}

#[test]
fn series_are_bounded_for_any_number_of_registries() {
    let instruments = Instruments::default();
    let trace = TraceContext { trace_id: 1, span_id: 1, sampled: true };
    let registries: Vec<String> = (0..REGISTRIES).map(|number| format!("r{number}.example")).collect();
    for registry in &registries {
        (100..700).for_each(|code| instruments.registry_asked(registry, Status::of(code)));
        instruments.registry_asked(registry, Status::NONE);
    }
    Cause::ALL.iter().for_each(|cause| instruments.waited(*cause, Duration::from_secs(1), trace));
    FailureClass::ALL.iter().for_each(|class| instruments.refused(*class, Learned::Other));
    Lease::ALL.iter().for_each(|lease| instruments.lease_taken(*lease));
    let text = instruments.text(readings(&instruments, &registries));
    let series = samples(&text).count();
    assert!(series <= SERIES_MAX, "{series} series:\n{text}");
    let exported: BTreeSet<&str> = samples(&text).filter_map(|sample| Some(table::of_sample(sample.name)?.name)).collect();
    let declared: BTreeSet<&str> = ALL.iter().map(|instrument| instrument.name).collect();
    assert_eq!(exported, declared, "every instrument is part of the worst case, and none is exported that is not declared");
}

#[test]
fn node_without_a_fleet_exports_no_fleet_metric() {
    let mut readings = Readings::default();
    readings.set_counters(&ALL.iter().filter_map(|instrument| Some((instrument.counter?.to_owned(), 1))).collect::<BTreeMap<_, _>>());
    let text = Instruments::default().text(readings);
    let scopes = samples(&text).filter_map(|sample| Some(table::of_sample(sample.name)?.scope));
    assert!(scopes.into_iter().all(|scope| scope == Scope::Node), "{text}");
}
