//! The text for scrapers that do not know OpenMetrics.

use crate::table::{ALL, Kind};

/// Converts to Prometheus's own text format, version 0.0.4: the same numbers without units and exemplars, and with `_total` in the name of
/// a counter's family.
#[must_use]
pub fn plain_text(open_metrics: &str) -> String {
    let mut plain = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("UNIT" | "EOF"), ..) => continue,
            (Some("#"), Some(what), Some(family), rest) => {
                let is_counter = ALL.iter().any(|instrument| instrument.kind == Kind::Counter && instrument.family() == family);
                let total = if is_counter { "_total" } else { "" };
                plain.push_str(&format!("# {what} {family}{total} {}", rest.unwrap_or_default()));
            }
            _ => plain.push_str(line.split_once(" # {").map_or(line, |(sample, _)| sample)),
        }
        plain.push('\n');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_format_omits_open_metrics_additions() {
        let open = "# HELP fleetpull_pulls Requests.\n# TYPE fleetpull_pulls counter\nfleetpull_pulls_total{outcome=\"pulled\"} 3\n\
                    # TYPE fleetpull_pull_size_bytes histogram\n# UNIT fleetpull_pull_size_bytes bytes\n\
                    fleetpull_pull_size_bytes_bucket{le=\"1.0\"} 1 # {trace_id=\"ab\"} 0.4\n# EOF\n";
        let plain = "# HELP fleetpull_pulls_total Requests.\n# TYPE fleetpull_pulls_total counter\nfleetpull_pulls_total{outcome=\"pulled\"} 3\n\
                     # TYPE fleetpull_pull_size_bytes histogram\nfleetpull_pull_size_bytes_bucket{le=\"1.0\"} 1\n";
        assert_eq!(plain_text(open), plain);
    }
}
