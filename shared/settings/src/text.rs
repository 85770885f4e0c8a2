//! The text form of durations, sizes and optional values.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

/// A duration as `1m 30s`.
pub(crate) mod duration {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(*span))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map_err(de::Error::custom)
    }
}

/// An optional duration; `0s` means none.
pub(crate) mod zero_as_none {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration::serialize(&span.unwrap_or_default(), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let span = duration::deserialize(deserializer)?;
        Ok(Some(span).filter(|span| !span.is_zero()))
    }
}

/// An optional text or path; the empty text means none.
pub(crate) mod empty_as_none {
    use std::ffi::OsStr;

    use super::*;

    pub(crate) fn serialize<S: Serializer, T: AsRef<OsStr>>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        let text = value.as_ref().map(|value| value.as_ref().to_string_lossy());
        serializer.serialize_str(text.as_deref().unwrap_or_default())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: From<String>>(deserializer: D) -> Result<Option<T>, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(if text.is_empty() { None } else { Some(T::from(text)) })
    }
}

/// A size as `2GiB`, in the largest unit that gives a whole number.
pub(crate) mod bytes {
    use super::*;

    /// The units, largest first, each with its power of two.
    const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

    pub(crate) fn format(size: u64) -> String {
        let whole = UNITS.iter().find(|(_, power)| size != 0 && size.trailing_zeros() >= *power);
        whole.map_or_else(|| "0B".to_owned(), |(unit, power)| format!("{}{unit}", size >> power))
    }

    /// None if the text is not a size, has no unit, or is larger than [`u64::MAX`] bytes.
    pub(crate) fn parse(text: &str) -> Option<u64> {
        let unit_at = text.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, unit) = text.split_at(unit_at);
        let (_, power) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
        number.parse::<u64>().ok()?.checked_mul(1 << power)
    }

    pub(crate) fn serialize<S: Serializer>(size: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format(*size))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::custom("not a size"))
    }
}
