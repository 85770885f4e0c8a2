//! Numbers as people read them.

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

/// A duration as Go writes it, to the millisecond: `1.5s`.
#[must_use]
pub fn milliseconds(ms: u64) -> String {
    image::go::duration(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        let table =
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_048_575, "1.0 MiB"), (4_404_019, "4.2 MiB"), (u64::MAX, "16384.0 PiB")];
        for (number, text) in table {
            assert_eq!(bytes(number), text, "{number}");
        }
    }
}
