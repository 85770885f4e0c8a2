//! Durations in words, as verdicts and screens have them.

use std::time::Duration;

/// `12.4 s` below a minute, else in whole seconds in Go's format: `5h59m58s`.
#[must_use]
pub fn duration_in_words(ms: u64) -> String {
    match ms {
        0..=59_949 => format!("{}.{} s", (ms + 50) / 1_000, (ms + 50) % 1_000 / 100),
        _ => image::go::duration(Duration::from_secs(ms.saturating_add(500) / 1_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_a_tenth_of_a_second_below_a_minute_and_whole_seconds_above() {
        for (ms, text) in [
            (0, "0.0 s"),
            (49, "0.0 s"),
            (50, "0.1 s"),
            (250, "0.3 s"),
            (12_400, "12.4 s"),
            (59_949, "59.9 s"),
            (59_950, "1m0s"),
            (302_400, "5m2s"),
            (21_598_200, "5h59m58s"),
        ] {
            assert_eq!(duration_in_words(ms), text, "{ms}");
        }
    }
}
