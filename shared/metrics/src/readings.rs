//! Values that are asked for when the text is made.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::table::{ALL, Instrument, Kind, Scope};

/// 2^53. From here on numbers are not written as integers, because `f64` does not hold all of them.
const WHOLE_BELOW: f64 = 9_007_199_254_740_992.0;

/// Values by instrument and labels, at one time.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    /// By the name of the instrument.
    values: BTreeMap<&'static str, Vec<Reading>>,
    sharing: bool,
}

#[derive(Clone, Debug)]
struct Reading {
    labels: Vec<(&'static str, String)>,
    value: f64,
}

impl Readings {
    /// Marks that the node shares with a fleet.
    #[must_use]
    pub fn sharing(self) -> Self {
        Self { sharing: true, ..self }
    }

    /// Whether the node shares with a fleet.
    pub(crate) fn is_sharing(&self) -> bool {
        self.sharing
    }

    /// Sets the value of an instrument with these label values, in the order of its row.
    pub fn set(&mut self, instrument: &'static Instrument, labels: &[&str], value: f64) {
        debug_assert_eq!(labels.len(), instrument.labels.len(), "{}", instrument.name);
        let labels = instrument.labels.iter().copied().zip(labels.iter().map(|label| (*label).to_owned())).collect();
        self.values.entry(instrument.name).or_default().push(Reading { labels, value });
    }

    /// Sets every value that `fleetpull nodes NAME --counters` shows too.
    pub fn set_counters(&mut self, counters: &BTreeMap<String, u64>) {
        let sharing = self.sharing;
        for instrument in ALL.iter().filter(|instrument| sharing || instrument.scope == Scope::Node) {
            if let Some(value) = instrument.counter.and_then(|counter| counters.get(counter)) {
                self.set(instrument, &[], *value as f64);
            }
        }
    }
}

impl Collector for Readings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for instrument in ALL {
            let Some(readings) = self.values.get(instrument.name) else { continue };
            let unit = instrument.unit().map(|unit| Unit::Other(unit.to_owned()));
            let family = instrument.family();
            let stem = instrument.unit().map_or(family, |unit| family.trim_end_matches(unit).trim_end_matches('_'));
            let kind = if instrument.kind == Kind::Counter { MetricType::Counter } else { MetricType::Gauge };
            let help = format!("{}.", instrument.help);
            let mut metric = encoder.encode_descriptor(stem, &help, unit.as_ref(), kind)?;
            for Reading { labels, value } in readings {
                if labels.is_empty() {
                    encode(*value, instrument.kind, metric)?;
                    break;
                }
                encode(*value, instrument.kind, metric.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

fn encode(value: f64, kind: Kind, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
    let is_whole = value.fract() == 0.0 && (0.0..WHOLE_BELOW).contains(&value);
    match (kind, is_whole) {
        (Kind::Counter, true) => ConstCounter::new(value as u64).encode(encoder),
        (Kind::Counter, false) => ConstCounter::new(value).encode(encoder),
        (_, true) => ConstGauge::new(value as u64).encode(encoder),
        (_, false) => ConstGauge::new(value).encode(encoder),
    }
}
