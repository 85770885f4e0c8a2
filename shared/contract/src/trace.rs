//! The W3C trace context of every message.

use std::fmt;
use std::sync::Arc;

use clock::Random;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hex::{self, hex};

/// The bytes of a `traceparent` of version 00: `00-<32 digits>-<16 digits>-<2 digits>`.
const TRACEPARENT_BYTES: usize = 55;

/// One span of one trace, as `traceparent` carries it (W3C Trace Context, version 00).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceContext {
    /// Shared by all spans of one pull; never 0.
    pub trace_id: u128,
    /// This span. 0 only in a [`TraceContext::fresh`] one, which is never written.
    pub span_id: u64,
    /// Whether the caller exports this trace.
    pub sampled: bool,
}

/// Headers in addition to `traceparent`, passed on unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The header `tracestate`; empty: there is none.
    pub tracestate: String,
    /// The header `baggage`; empty: there is none.
    pub baggage: String,
}

/// The most bytes of a `tracestate` that is passed on; the standard asks for at least 512.
const TRACESTATE_MAX_BYTES: usize = 1024;
/// The most bytes of a `baggage` that is passed on, as the standard asks.
const BAGGAGE_MAX_BYTES: usize = 8192;

impl Carried {
    /// The headers that may be passed on; none: there are none. A value that is too long, or invalid in a header, is left out.
    #[must_use]
    pub fn of(tracestate: Option<&str>, baggage: Option<&str>) -> Option<Arc<Self>> {
        let fit = |value: Option<&str>, most: usize| {
            let fits = |value: &&str| value.len() <= most && value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
            value.map(str::trim).filter(fits).unwrap_or_default().to_owned()
        };
        let carried = Self { tracestate: fit(tracestate, TRACESTATE_MAX_BYTES), baggage: fit(baggage, BAGGAGE_MAX_BYTES) };
        (carried != Self::default()).then(|| Arc::new(carried))
    }
}

impl TraceContext {
    /// A new trace.
    #[must_use]
    pub fn root(random: &mut Random) -> Self {
        Self { trace_id: random.id().max(1), span_id: random.word().max(1), sampled: true }
    }

    /// A new trace that has no span yet: its first [`TraceContext::child`] is the root.
    #[must_use]
    pub fn fresh(random: &mut Random) -> Self {
        Self { span_id: 0, ..Self::root(random) }
    }

    /// Whether there is a span that can be a parent or a link.
    #[must_use]
    pub fn has_span(&self) -> bool {
        self.span_id != 0 && self.trace_id != 0
    }

    /// A new span in the same trace.
    #[must_use]
    pub fn child(self, random: &mut Random) -> Self {
        Self { span_id: random.word().max(1), ..self }
    }

    /// Parses a `traceparent`; none if it is malformed or all zero, as the standard demands.
    #[must_use]
    pub fn parse(traceparent: &str) -> Option<Self> {
        let text = traceparent.as_bytes();
        let (known, more) = text.split_at_checked(TRACEPARENT_BYTES)?;
        let dashes = [known[2], known[35], known[52]];
        let (version, trace, span, flags) = (hex(&known[..2])?, hex(&known[3..35])?, hex(&known[36..52])?, hex(&known[53..])?);
        // A later version may have more parts.
        let ends_there = more.is_empty() || (version != 0 && more[0] == b'-');
        let (trace_id, span_id, sampled) = (trace, u64::try_from(span).ok()?, flags & 1 == 1);
        let is_one = dashes == [b'-'; 3] && version != 0xff && ends_there && trace_id != 0 && span_id != 0;
        is_one.then_some(Self { trace_id, span_id, sampled })
    }

    /// The value of the header.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let mut text = String::with_capacity(TRACEPARENT_BYTES);
        text.push_str("00-");
        hex::push_128(&mut text, self.trace_id);
        text.push('-');
        hex::push(&mut text, self.span_id);
        text.push_str(if self.sampled { "-01" } else { "-00" });
        text
    }

    /// The trace id alone, 32 hex digits, for example to search in Jaeger.
    #[must_use]
    pub fn trace_id_hex(&self) -> String {
        hex::text_of(self.trace_id)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.traceparent())
    }
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.traceparent())
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        hex::read(deserializer, "a traceparent", Self::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let context = TraceContext::root(&mut Random::seeded(1));
        assert_eq!(TraceContext::parse(&context.traceparent()), Some(context));
        assert_ne!(context.child(&mut Random::seeded(2)).span_id, context.span_id);
    }

    #[test]
    fn a_fresh_trace_has_no_span_until_its_first_child() {
        let fresh = TraceContext::fresh(&mut Random::seeded(1));
        let child = fresh.child(&mut Random::seeded(2));
        assert_eq!((fresh.has_span(), child.has_span(), child.trace_id), (false, true, fresh.trace_id));
    }

    #[test]
    fn tracestate_and_baggage_are_bounded_and_valid_in_a_header() {
        let carried = |state: &str, baggage: &str| Carried::of(Some(state), Some(baggage)).map(|carried| (*carried).clone());
        let expected = Carried { tracestate: "a=1".to_owned(), baggage: "b=2".to_owned() };
        assert_eq!(carried(" a=1", "b=2"), Some(expected.clone()));
        let long = "x".repeat(2 << 20);
        assert_eq!(carried(&long, &long), None);
        assert_eq!(carried("a=1\r\nevil: yes", "b=2"), Some(Carried { tracestate: String::new(), ..expected }));
        assert_eq!(Carried::of(None, None), None);
    }

    #[test]
    fn refuses_what_the_standard_refuses() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(TraceContext::parse(good).is_some_and(|context| context.sampled));
        // A later version may have more parts; version 00 may not.
        assert!(
            TraceContext::parse("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00-more").is_some_and(|context| !context.sampled)
        );
        let megabytes = "0".repeat(2 << 20);
        for bad in [
            "",
            &megabytes,
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0é",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }
}
