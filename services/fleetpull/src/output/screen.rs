//! Where the state of a job on many nodes is shown: on a terminal the same few lines again and again, elsewhere a line now and then.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::tally::{LINES_MAX, Tally};

/// How often a line is written where nobody watches: a log of a job of minutes stays readable.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows a tally, on stderr.
#[derive(Debug)]
pub struct Screen {
    manner: Manner,
    bars: MultiProgress,
    lines: Vec<ProgressBar>,
    /// When the last line was written, since the job began.
    written: Duration,
}

/// How it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Redrawn,
    Lines,
    Silence,
}

impl Screen {
    /// Redrawn if stderr is a terminal, else lines; nothing if it is not `wanted`.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        let manner = match (wanted, super::is_terminal()) {
            (false, _) => Manner::Silence,
            (true, true) => Manner::Redrawn,
            (true, false) => Manner::Lines,
        };
        Self { manner, bars: MultiProgress::new(), lines: Vec::new(), written: Duration::ZERO }
    }

    /// Shows how it stands `since` the job began.
    pub fn show(&mut self, tally: &Tally, since: Duration) {
        match self.manner {
            Manner::Redrawn => self.draw(&tally.lines()),
            Manner::Lines if since.saturating_sub(self.written) >= LINE_EVERY => {
                self.written = since;
                tally.lines().iter().for_each(|line| super::remark(line));
            }
            Manner::Lines | Manner::Silence => {}
        }
    }

    /// Takes the lines off while `print` writes.
    pub fn pause<T>(&self, print: impl FnOnce() -> T) -> T {
        if self.manner == Manner::Redrawn { self.bars.suspend(print) } else { print() }
    }

    /// Takes all lines off.
    pub fn clear(&mut self) {
        self.lines.drain(..).for_each(|line| line.finish_and_clear());
    }

    fn draw(&mut self, lines: &[String]) {
        let lines = lines.get(..LINES_MAX).unwrap_or(lines);
        while self.lines.len() < lines.len() {
            let style = ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
            self.lines.push(self.bars.add(ProgressBar::new(0).with_style(style)));
        }
        for spare in self.lines.drain(lines.len()..) {
            spare.finish_and_clear();
            self.bars.remove(&spare);
        }
        for (bar, line) in self.lines.iter().zip(lines) {
            bar.set_message(super::one_line(line));
        }
    }
}
