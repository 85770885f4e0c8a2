//! Progress of pulls on a terminal: a bar for each image, and below it one for each of its layers.

use std::collections::BTreeMap;

use contract::NodeName;
use contract::messages::pull_coordinator::{PullState, PullStatus};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How many bars are drawn at a time; what does not fit on a screen helps nobody.
const MAX_BARS: usize = 30;
/// The bars of an image.
const IMAGE_BAR: &str = "{prefix} {bar:30.cyan/blue} {bytes:>10}/{total_bytes:<10} {bytes_per_sec:>12} {msg}";
/// The bars of its layers.
const LAYER_BAR: &str = "  {prefix:.dim} {bar:24.dim} {bytes:>10}/{total_bytes:<10}";

/// Draws what is in flight; nothing where nobody watches.
#[derive(Debug)]
pub struct ProgressView {
    bars: MultiProgress,
    drawn: BTreeMap<String, ProgressBar>,
    on: bool,
}

impl ProgressView {
    /// Draws on stderr if it is a terminal and `wanted`.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        Self { bars: MultiProgress::new(), drawn: BTreeMap::new(), on: wanted && super::is_terminal() }
    }

    /// Whether anything is drawn: if not, plain lines tell the story.
    #[must_use]
    pub fn is_drawing(&self) -> bool {
        self.on
    }

    /// Shows how far the pulls of a node are; what is not among them any more is taken off.
    pub fn show(&mut self, node: &NodeName, pulls: &[PullStatus]) {
        if !self.on {
            return;
        }
        let mut live = Vec::new();
        for pull in pulls {
            let key = format!("{node} {}", pull.image);
            let message = match pull.state {
                PullState::Waiting => "waiting for its turn",
                PullState::Pulling if pull.total_bytes == 0 => "asking the registry",
                PullState::Pulling => "",
            };
            self.draw(&key, &key, IMAGE_BAR, (pull.done_bytes, pull.total_bytes), message);
            live.push(key.clone());
            for layer in &pull.layers {
                let layer_key = format!("{key} {}", layer.digest);
                let name: String = layer.digest.chars().skip_while(|character| *character != ':').skip(1).take(12).collect();
                self.draw(&layer_key, &name, LAYER_BAR, (layer.done_bytes, layer.total_bytes), "");
                live.push(layer_key);
            }
        }
        let prefix = format!("{node} ");
        let gone: Vec<String> = self.drawn.keys().filter(|key| key.starts_with(&prefix) && !live.contains(key)).cloned().collect();
        for key in gone {
            if let Some(bar) = self.drawn.remove(&key) {
                bar.finish_and_clear();
            }
        }
    }

    /// Takes the bars off while `print` writes.
    pub fn pause<T>(&self, print: impl FnOnce() -> T) -> T {
        if self.on { self.bars.suspend(print) } else { print() }
    }

    /// Takes all bars off.
    pub fn clear(&mut self) {
        for (_, bar) in std::mem::take(&mut self.drawn) {
            bar.finish_and_clear();
        }
    }

    fn draw(&mut self, key: &str, name: &str, style: &str, (done, total): (u64, u64), message: &'static str) {
        if !self.drawn.contains_key(key) {
            if self.drawn.len() == MAX_BARS {
                return;
            }
            let bar = self.bars.add(ProgressBar::new(total));
            bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(name.to_owned());
            self.drawn.insert(key.to_owned(), bar);
        }
        if let Some(bar) = self.drawn.get(key) {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(message);
        }
    }
}
