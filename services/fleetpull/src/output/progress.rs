//! Progress of pulls: on a terminal a bar for each image and below it one for each layer in progress, elsewhere a line at intervals.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;
use contract::messages::pull_coordinator::{PullState, PullStatus};

use super::{layout, live, units};

/// The most bars, so that they fit on a screen.
const MAX_BARS: usize = 30;
/// How often a pull gets a line, so that the log of a long pull stays readable.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The form of the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Bars,
    Lines,
    Silence,
}

/// Shows the pulls in flight on stderr.
#[derive(Debug)]
pub struct ProgressView {
    manner: Manner,
    /// The number of lines written for each pull, and for the waiting pulls of each node.
    lines: BTreeMap<String, u64>,
}

impl ProgressView {
    /// Bars if stderr is a terminal, else lines. Nothing if not `wanted`.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        let manner = match (wanted, super::is_terminal()) {
            (false, _) => Manner::Silence,
            (true, true) => Manner::Bars,
            (true, false) => Manner::Lines,
        };
        Self { manner, lines: BTreeMap::new() }
    }

    /// True if progress is written as lines.
    #[must_use]
    pub fn writes_lines(&self) -> bool {
        self.manner == Manner::Lines
    }

    /// Shows the progress of a node's pulls. Pulls that are no longer listed disappear.
    pub fn show(&mut self, node: &NodeName, pulls: &[PullStatus]) {
        match self.manner {
            Manner::Bars => live::show(&bars(node, pulls, live::width())),
            Manner::Lines => self.write_lines(node, pulls),
            Manner::Silence => {}
        }
    }

    fn write_lines(&mut self, node: &NodeName, pulls: &[PullStatus]) {
        for pull in pulls.iter().filter(|pull| pull.state == PullState::Pulling) {
            if self.is_due(format!("{node} {}", pull.image), pull.since_ms) {
                let done = match pull.total_bytes {
                    0 => "asks the registry".to_owned(),
                    total => format!("{} of {}", units::bytes(pull.done_bytes), units::bytes(total)),
                };
                super::remark(&format!("{node}: {}: {done} after {}", pull.image, units::age(pull.since_ms)));
            }
        }
        // All waiting pulls share one line, because there may be hundreds.
        let waiting = pulls.iter().filter(|pull| pull.state == PullState::Waiting);
        if let Some(longest_ms) = waiting.clone().map(|pull| pull.since_ms).max()
            && self.is_due(format!("{node} "), longest_ms)
        {
            super::remark(&format!("{node}: {} waiting for their turn, the first for {}", waiting.count(), units::age(longest_ms)));
        }
    }

    /// True if another line is due for a pull that has lasted `since_ms`.
    fn is_due(&mut self, key: String, since_ms: u64) -> bool {
        let due = since_ms / u64::try_from(LINE_EVERY.as_millis()).unwrap_or(u64::MAX);
        let written = self.lines.entry(key).or_default();
        let is_due = due > *written;
        *written = due.max(*written);
        is_due
    }

    /// Erases all bars.
    pub fn clear(&self) {
        if self.manner == Manner::Bars {
            live::clear();
        }
    }
}

/// A line for each pull, and below it one for each of its layers in progress.
fn bars(node: &NodeName, pulls: &[PullStatus], width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for pull in pulls {
        let names = [node.as_str(), pull.image.as_str()];
        let rate = pull.done_bytes.saturating_mul(1_000).checked_div(pull.since_ms).unwrap_or_default();
        let (done, total, figures) = match &pull.state {
            PullState::Waiting | PullState::Unknown(_) => (0, 0, "waiting for its turn".to_owned()),
            PullState::Pulling if pull.total_bytes == 0 => (0, 0, "asking the registry".to_owned()),
            PullState::Pulling => {
                (pull.done_bytes, pull.total_bytes, format!("{}, {}/s", of_bytes(pull.done_bytes, pull.total_bytes), units::bytes(rate)))
            }
        };
        lines.push(layout::with_figures(&names, done, total, &figures, width));
        for layer in pull.layers.iter().filter(|layer| layer.done_bytes < layer.total_bytes) {
            let name: String = layer.digest.chars().skip_while(|character| *character != ':').skip(1).take(12).collect();
            let figures = of_bytes(layer.done_bytes, layer.total_bytes);
            lines.push(format!(
                "  {}",
                layout::with_figures(&[&name], layer.done_bytes, layer.total_bytes, &figures, width.saturating_sub(2))
            ));
        }
    }
    lines.truncate(MAX_BARS);
    lines
}

fn of_bytes(done: u64, total: u64) -> String {
    format!("{} of {}", units::bytes(done), units::bytes(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fit_the_terminal_with_their_figures() {
        let pull: PullStatus = serde_json::from_str(
            r#"{"image": "registry.example/team/platform/application:v2", "state": "pulling", "since_ms": 2000, "callers": 1,
                "done_bytes": 2097152, "total_bytes": 4194304, "layers": [
                {"digest": "sha256:0123456789abcdef", "done_bytes": 1024, "total_bytes": 2048},
                {"digest": "sha256:1123456789abcdef", "done_bytes": 2048, "total_bytes": 2048}]}"#,
        )
        .expect("a status");
        for width in [59, 79] {
            let lines = bars(&"node-7".parse().expect("a name"), std::slice::from_ref(&pull), width);
            assert_eq!(lines.len(), 2, "what is done has no bar: {lines:#?}");
            assert!(lines[0].ends_with("2.0 MiB of 4.0 MiB, 1.0 MiB/s") && lines[0].chars().count() <= width, "{lines:#?}");
            assert!(lines[1].starts_with("    0123456789ab  ") && lines[1].ends_with("1.0 KiB of 2.0 KiB"), "{lines:#?}");
            assert_eq!(lines[1].contains("[##########----------]"), width == 79, "{lines:#?}");
        }
    }

    #[test]
    fn a_line_is_due_once_in_each_span() {
        let mut view = ProgressView::new(false);
        let due: Vec<bool> = [0, 4_999, 5_000, 5_100, 9_999, 10_000, 26_000, 26_100].map(|ms| view.is_due("n1 a".to_owned(), ms)).to_vec();
        assert_eq!(due, [false, false, true, false, false, true, true, false]);
        assert!(view.is_due("n1 b".to_owned(), 6_000), "each has its own");
    }
}
