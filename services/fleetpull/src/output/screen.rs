//! Shows the state of a job on many nodes: on a terminal a few lines that are redrawn, elsewhere a line at intervals.

use std::time::Duration;

use super::live;
use super::tally::Tally;

/// How often a line is written without a terminal, so that the log of a long job stays readable.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows a tally on stderr.
#[derive(Debug)]
pub struct Screen {
    manner: Manner,
    /// When the last line was written, counted from the start of the job.
    written: Duration,
}

/// The form of the display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Redrawn,
    Lines,
    Silence,
}

impl Screen {
    /// Redrawn lines if stderr is a terminal, else new lines. Nothing if not `wanted`.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        let manner = match (wanted, super::is_terminal()) {
            (false, _) => Manner::Silence,
            (true, true) => Manner::Redrawn,
            (true, false) => Manner::Lines,
        };
        Self { manner, written: Duration::ZERO }
    }

    /// Shows the tally. `since` is the time since the start of the job.
    pub fn show(&mut self, tally: &Tally, since: Duration) {
        match self.manner {
            Manner::Redrawn => live::show(&tally.lines(live::width())),
            Manner::Lines if since.saturating_sub(self.written) >= LINE_EVERY => {
                self.written = since;
                tally.lines(usize::MAX).iter().for_each(|line| super::remark(line));
            }
            Manner::Lines | Manner::Silence => {}
        }
    }

    /// Erases all lines.
    pub fn clear(&self) {
        if self.manner == Manner::Redrawn {
            live::clear();
        }
    }
}
