//! One figure: Fleetpull's value, the reference's, and the bar.

/// One measured value.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) ours: f64,
    pub(crate) reference: Option<Reference>,
    pub(crate) bar: Option<Bar>,
}

/// The value that it is compared with.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub(crate) what: String,
    pub(crate) value: f64,
}

/// The largest allowed value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bar {
    /// A multiple of the reference.
    Ratio(f64),
    /// A value in the figure's unit.
    Value(f64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
    PerSecond,
    /// 2^20 bytes, the unit of memory.
    Mebibytes,
    /// 10^6 bytes, the unit of files.
    Megabytes,
    PercentOfCore,
    Count,
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, unit: Unit, ours: f64) -> Self {
        Self { what: what.into(), unit, ours, reference: None, bar: None }
    }

    pub(crate) fn compared_with(self, what: impl Into<String>, value: f64) -> Self {
        Self { reference: Some(Reference { what: what.into(), value }), ..self }
    }

    pub(crate) fn with_bar(self, bar: Bar) -> Self {
        Self { bar: Some(bar), ..self }
    }

    /// Fleetpull's value divided by the reference's.
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.reference.as_ref().map(|reference| self.ours / reference.value)
    }

    /// Whether the bar is met; none if there is no bar.
    pub(crate) fn met(&self) -> Option<bool> {
        match self.bar? {
            Bar::Ratio(most) => self.ratio().map(|ratio| ratio <= most),
            Bar::Value(most) => Some(self.ours <= most),
        }
    }
}

impl Unit {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::PerSecond => "/s",
            Self::Mebibytes => "MiB",
            Self::Megabytes => "MB",
            Self::PercentOfCore => "% of a core",
            Self::Count => "",
        }
    }

    /// The value as text for people.
    pub(crate) fn shown(self, value: f64) -> String {
        let decimals = match self {
            Self::Seconds | Self::Milliseconds => 2,
            Self::PercentOfCore => 3,
            Self::PerSecond | Self::Count => 0,
            Self::Microseconds if value >= 100.0 => 0,
            Self::Microseconds | Self::Mebibytes | Self::Megabytes => 1,
        };
        let gap = if matches!(self, Self::PerSecond | Self::Count) { "" } else { " " };
        format!("{value:.decimals$}{gap}{}", self.symbol())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_met_up_to_its_value() {
        let figure = Figure::new("x", Unit::Seconds, 1.0).compared_with("y", 2.0);
        for (bar, met) in [(Bar::Ratio(0.5), true), (Bar::Ratio(0.49), false), (Bar::Value(1.0), true), (Bar::Value(0.9), false)] {
            assert_eq!(figure.clone().with_bar(bar).met(), Some(met), "{bar:?}");
        }
        assert_eq!(figure.met(), None);
        assert_eq!(Figure::new("x", Unit::Seconds, 1.0).with_bar(Bar::Ratio(1.0)).met(), None);
    }
}
