//! Prints durations as Go does.

use std::time::Duration;

/// Go's longest duration, in milliseconds (2^63 - 1 ns, 292 years).
const GO_MAX_MS: u64 = (i64::MAX / 1_000_000) as u64;

/// Go's `%v` of a duration cut (not rounded) to whole milliseconds: `0s`, `350ms`, `1.5s`, `1m30.25s`, `1h2m3.004s`.
///
/// A longer duration prints as Go's longest.
#[must_use]
pub fn duration(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_millis()).map_or(GO_MAX_MS, |ms| ms.min(GO_MAX_MS));
    if milliseconds == 0 {
        return "0s".to_owned();
    }
    if milliseconds < 1_000 {
        return format!("{milliseconds}ms");
    }
    let total_seconds = milliseconds / 1_000;
    let (hours, minutes) = (total_seconds / 3_600, total_seconds / 60 % 60);
    let seconds = seconds_text(total_seconds % 60, milliseconds % 1_000);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// Seconds with as many digits after the point as are needed, none if all are zero.
fn seconds_text(seconds: u64, milliseconds: u64) -> String {
    let text = format!("{seconds}.{milliseconds:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_as_in_kubelets_events() {
        let cases = [
            (0, "0s"),
            (1, "1ms"),
            (350, "350ms"),
            (1_500, "1.5s"),
            (10_000, "10s"),
            (60_000, "1m0s"),
            (90_250, "1m30.25s"),
            (3_600_000, "1h0m0s"),
            (3_723_004, "1h2m3.004s"),
        ];
        for (milliseconds, expected) in cases {
            assert_eq!(duration(Duration::from_millis(milliseconds)), expected);
        }
    }

    #[test]
    fn fractions_of_a_millisecond_are_cut() {
        assert_eq!(duration(Duration::from_nanos(999_999)), "0s");
        assert_eq!(duration(Duration::from_nanos(1_999_999_999)), "1.999s");
    }

    #[test]
    fn duration_beyond_gos_longest_prints_as_gos_longest() {
        assert_eq!(duration(Duration::MAX), "2562047h47m16.854s");
    }
}
