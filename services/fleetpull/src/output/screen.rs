//! Where the state of a job on many nodes is shown: on a terminal the same few lines again and again, elsewhere a line now and then.

use std::time::Duration;

use super::live;
use super::tally::Tally;

/// How often a line is written where nobody watches: a log of a job of minutes stays readable.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows a tally, on stderr.
#[derive(Debug)]
pub struct Screen {
    manner: Manner,
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
        Self { manner, written: Duration::ZERO }
    }

    /// Shows how it stands `since` the job began.
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

    /// Takes all lines off.
    pub fn clear(&self) {
        if self.manner == Manner::Redrawn {
            live::clear();
        }
    }
}
