//! Progress of pulls: on a terminal a bar for each image and below it one for each layer under way; elsewhere a plain line now and then.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::NodeName;
use contract::messages::pull_coordinator::{PullState, PullStatus};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::units;

/// How many bars are drawn at a time; what does not fit on a screen helps nobody.
const MAX_BARS: usize = 30;
/// The bars of an image.
const IMAGE_BAR: &str = "{prefix} {bar:30.cyan/blue} {bytes:>10}/{total_bytes:<10} {bytes_per_sec:>12} {msg}";
/// In place of a bar while nobody knows how long it is.
const WITHOUT_BAR: &str = "{prefix} {msg}";
/// The bars of its layers.
const LAYER_BAR: &str = "  {prefix:.dim} {bar:24.dim} {bytes:>10}/{total_bytes:<10}";

/// How often a pull gets a plain line: a log of a pull of minutes stays readable.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Bars,
    Lines,
    Silence,
}

/// Shows what is in flight, on stderr.
#[derive(Debug)]
pub struct ProgressView {
    manner: Manner,
    bars: MultiProgress,
    /// With the style in which each is drawn.
    drawn: BTreeMap<String, (ProgressBar, &'static str)>,
    /// How many lines each pull, and all that wait on a node, have got.
    lines: BTreeMap<String, u64>,
}

impl ProgressView {
    /// Bars if stderr is a terminal, else lines; nothing if it is not `wanted`.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        let manner = match (wanted, super::is_terminal()) {
            (false, _) => Manner::Silence,
            (true, true) => Manner::Bars,
            (true, false) => Manner::Lines,
        };
        Self { manner, bars: MultiProgress::new(), drawn: BTreeMap::new(), lines: BTreeMap::new() }
    }

    /// Whether the story is told in lines.
    #[must_use]
    pub fn writes_lines(&self) -> bool {
        self.manner == Manner::Lines
    }

    /// Shows how far the pulls of a node are; what is not among them any more is taken off.
    pub fn show(&mut self, node: &NodeName, pulls: &[PullStatus]) {
        match self.manner {
            Manner::Bars => self.draw_all(node, pulls),
            Manner::Lines => self.write_lines(node, pulls),
            Manner::Silence => {}
        }
    }

    fn write_lines(&mut self, node: &NodeName, pulls: &[PullStatus]) {
        let whole_seconds = |ms: u64| units::milliseconds(ms / 1_000 * 1_000);
        for pull in pulls.iter().filter(|pull| pull.state == PullState::Pulling) {
            if self.is_due(format!("{node} {}", pull.image), pull.since_ms) {
                let done = match pull.total_bytes {
                    0 => "asks the registry".to_owned(),
                    total => format!("{} of {}", units::bytes(pull.done_bytes), units::bytes(total)),
                };
                super::remark(&format!("{node}: {}: {done} after {}", pull.image, whole_seconds(pull.since_ms)));
            }
        }
        // Hundreds may wait: one line tells of them all.
        let waiting = pulls.iter().filter(|pull| pull.state == PullState::Waiting);
        if let Some(longest_ms) = waiting.clone().map(|pull| pull.since_ms).max()
            && self.is_due(format!("{node} "), longest_ms)
        {
            super::remark(&format!("{node}: {} waiting for their turn, the first for {}", waiting.count(), whole_seconds(longest_ms)));
        }
    }

    /// Whether what takes so long already gets another line.
    fn is_due(&mut self, key: String, since_ms: u64) -> bool {
        let due = since_ms / u64::try_from(LINE_EVERY.as_millis()).unwrap_or(u64::MAX);
        let written = self.lines.entry(key).or_default();
        let is_due = due > *written;
        *written = due.max(*written);
        is_due
    }

    fn draw_all(&mut self, node: &NodeName, pulls: &[PullStatus]) {
        let mut live = Vec::new();
        for pull in pulls {
            let key = format!("{node} {}", pull.image);
            let (style, message) = match pull.state {
                PullState::Waiting => (WITHOUT_BAR, "waiting for its turn"),
                PullState::Pulling if pull.total_bytes == 0 => (WITHOUT_BAR, "asking the registry"),
                PullState::Pulling | PullState::Unknown(_) => (IMAGE_BAR, ""),
            };
            self.draw(Bar { key: &key, name: &key, style, bytes: (pull.done_bytes, pull.total_bytes), message }, None);
            live.push(key.clone());
            let mut above = key.clone();
            for layer in pull.layers.iter().filter(|layer| layer.done_bytes < layer.total_bytes) {
                let layer_key = format!("{key} {}", layer.digest);
                let name: String = layer.digest.chars().skip_while(|character| *character != ':').skip(1).take(12).collect();
                let bytes = (layer.done_bytes, layer.total_bytes);
                self.draw(Bar { key: &layer_key, name: &name, style: LAYER_BAR, bytes, message: "" }, Some(&above));
                live.push(layer_key.clone());
                above = layer_key;
            }
        }
        let prefix = format!("{node} ");
        let gone: Vec<String> = self.drawn.keys().filter(|key| key.starts_with(&prefix) && !live.contains(key)).cloned().collect();
        for key in gone {
            if let Some((bar, _)) = self.drawn.remove(&key) {
                bar.finish_and_clear();
            }
        }
    }

    /// Takes the bars off while `print` writes.
    pub fn pause<T>(&self, print: impl FnOnce() -> T) -> T {
        if self.manner == Manner::Bars { self.bars.suspend(print) } else { print() }
    }

    /// Takes all bars off.
    pub fn clear(&mut self) {
        for (_, (bar, _)) in std::mem::take(&mut self.drawn) {
            bar.finish_and_clear();
        }
    }

    /// Draws a bar, a new one below the one of the key `above`.
    fn draw(&mut self, wanted: Bar<'_>, above: Option<&str>) {
        let (done, total) = wanted.bytes;
        if !self.drawn.contains_key(wanted.key) {
            if self.drawn.len() == MAX_BARS {
                return;
            }
            // With its style from the beginning: whatever is set draws.
            let bar = ProgressBar::new(total).with_style(styled(wanted.style)).with_prefix(super::one_line(wanted.name));
            let bar = match above.and_then(|above| self.drawn.get(above)) {
                Some((above, _)) => self.bars.insert_after(above, bar),
                None => self.bars.add(bar),
            };
            self.drawn.insert(wanted.key.to_owned(), (bar, wanted.style));
        }
        if let Some((bar, style)) = self.drawn.get_mut(wanted.key) {
            if *style != wanted.style {
                *style = wanted.style;
                bar.set_style(styled(style));
            }
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(wanted.message);
        }
    }
}

fn styled(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// What a bar is to show.
struct Bar<'a> {
    key: &'a str,
    name: &'a str,
    style: &'static str,
    /// Done, and in all.
    bytes: (u64, u64),
    message: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_once_in_each_span() {
        let mut view = ProgressView::new(false);
        let told: Vec<bool> = [0, 4_999, 5_000, 5_100, 9_999, 10_000, 26_000, 26_100].map(|ms| view.is_due("n1 a".to_owned(), ms)).to_vec();
        assert_eq!(told, [false, false, true, false, false, true, true, false]);
        assert!(view.is_due("n1 b".to_owned(), 6_000), "each has its own");
    }
}
