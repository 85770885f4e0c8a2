//! Numbers in a readable form.

use std::time::Duration;

/// Bytes in binary units: `4.2 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A duration in Go's format, to the millisecond: `1.5s`.
#[must_use]
pub fn milliseconds(ms: u64) -> String {
    image::go::duration(Duration::from_millis(ms))
}

/// A time since or until something, in kubectl's format: `42s`, `4m12s`, `11m`, `134m`, `7h5m`, `40h`, `3d4h`.
#[must_use]
pub fn age(ms: u64) -> String {
    contract::human_duration(ms)
}

/// Times below this count as due, in milliseconds.
pub const SOON_MS: u64 = 1_000;

/// When something is due: `in 41s` or `due`; `-` if unknown.
#[must_use]
pub fn due(left_ms: Option<u64>) -> String {
    match left_ms {
        None => "-".to_owned(),
        Some(..SOON_MS) => "due".to_owned(),
        Some(left_ms) => format!("in {}", age(left_ms)),
    }
}

/// The time of day in UTC of a time since 1970-01-01: `12:00:03Z`.
#[must_use]
pub fn time_of_day(wall_ms: u64) -> String {
    let seconds = wall_ms / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A time since 1970-01-01 in RFC 3339 format.
#[must_use]
pub fn rfc_3339(wall_ms: u64) -> String {
    contract::cloud_event::rfc3339(wall_ms)
}

/// How many of `whole` parts `done` of `total` fills.
#[must_use]
pub fn share(done: u64, total: u64, whole: usize) -> usize {
    let filled = u128::from(done.min(total)) * whole as u128 / u128::from(total.max(1));
    usize::try_from(filled).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_read_well() {
        for (ms, text) in [(0, "00:00:00Z"), (43_203_999, "12:00:03Z"), (86_399_000, "23:59:59Z"), (86_400_000, "00:00:00Z")] {
            assert_eq!(time_of_day(ms), text, "{ms}");
        }
    }

    #[test]
    fn future_times_read_as_due_or_in_a_duration() {
        for (left_ms, text) in [(None, "-"), (Some(0), "due"), (Some(999), "due"), (Some(1_000), "in 1s"), (Some(660_000), "in 11m")] {
            assert_eq!(due(left_ms), text, "{left_ms:?}");
        }
    }

    #[test]
    fn byte_count_has_a_binary_unit() {
        let table =
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_048_575, "1.0 MiB"), (4_404_019, "4.2 MiB"), (u64::MAX, "16384.0 PiB")];
        for (number, text) in table {
            assert_eq!(bytes(number), text, "{number}");
        }
    }
}
