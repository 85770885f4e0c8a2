//! Durations as people read them.

/// A time since or until something, in the format of kubectl's `HumanDuration`, rounded down: `42s`, `4m12s`, `11m`, `134m`, `7h5m`,
/// `40h`, `3d4h`.
#[must_use]
pub fn human_duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let with = |whole: u64, unit: &str, part: u64, of: &str| match part {
        0 => format!("{whole}{unit}"),
        part => format!("{whole}{unit}{part}{of}"),
    };
    match (seconds, minutes, hours) {
        (..120, ..) => format!("{seconds}s"),
        (_, ..10, _) => with(minutes, "m", seconds % 60, "s"),
        (_, ..180, _) => format!("{minutes}m"),
        (_, _, ..8) => with(hours, "h", minutes % 60, "m"),
        (_, _, ..48) => format!("{hours}h"),
        (_, _, ..192) => with(days, "d", hours % 24, "h"),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => with(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubectl_writes_them() {
        let (minute, hour, day) = (60, 3_600, 86_400);
        let table = [
            (0, "0s"),
            (119, "119s"),
            (2 * minute, "2m"),
            (4 * minute + 12, "4m12s"),
            (11 * minute + 59, "11m"),
            (2 * hour + 14 * minute, "134m"),
            (3 * hour, "3h"),
            (7 * hour + 5 * minute, "7h5m"),
            (40 * hour, "40h"),
            (3 * day + 4 * hour, "3d4h"),
            (9 * day, "9d"),
            (800 * day, "2y70d"),
            (3_000 * day, "8y"),
        ];
        for (seconds, text) in table {
            assert_eq!(human_duration(seconds * 1_000 + 999), text, "{seconds}");
        }
        assert_eq!(human_duration(u64::MAX), "584942417y");
    }
}
