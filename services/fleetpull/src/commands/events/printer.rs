//! Prints events: as JSON, or as a table with one header.

use std::collections::VecDeque;

use clock::Clock;
use contract::{PullEvent, cloud_event};
use serde_json::Value;

use crate::cli::{EventsArgs, OutputFormat};
use crate::output::event::Rows;
use crate::output::listing::{has_colour, terminal_width};
use crate::output::{self, event};

/// The newest events of the past whose ids are remembered. Only they can come again when the command begins to follow.
const IDS_MOST: usize = 1_000;

/// Prints events, and skips those that come again when the command begins to follow.
pub(super) struct Printer {
    format: OutputFormat,
    rows: Rows,
    clock: Clock,
    /// The ids of the printed events, if new ones are followed afterwards: an event may be read and then come.
    printed: Option<VecDeque<String>>,
}

impl Printer {
    pub(super) fn of(args: &EventsArgs) -> Self {
        Self {
            format: args.asked.question.output.format,
            rows: Rows::begin(!args.no_headers, terminal_width(), has_colour(args.color)),
            clock: Clock::host(),
            printed: args.follow.then(VecDeque::new),
        }
    }

    /// Prints an event of the past.
    pub(super) fn print(&mut self, event: &Value) {
        if let (Some(printed), Some(id)) = (&mut self.printed, event["id"].as_str()) {
            if printed.len() >= IDS_MOST {
                printed.pop_front();
            }
            printed.push_back(id.to_owned());
        }
        self.write(event);
    }

    /// Prints a new event, unless it was printed as one of the past.
    pub(super) fn print_new(&mut self, event: &Value) {
        let is_printed = self.printed.iter().flatten().any(|id| event["id"] == id.as_str());
        if !is_printed {
            self.write(event);
        }
    }

    fn write(&mut self, event: &Value) {
        match self.format {
            OutputFormat::Json => output::json(&event::json(event)),
            OutputFormat::Text => self.rows.lines(event, self.clock.now().wall_ms()).iter().for_each(|line| output::document(line)),
        }
    }
}

/// An agent's event in the form in which it is published. None if it cannot be encoded.
pub(super) fn published(event: &PullEvent) -> Option<Value> {
    serde_json::from_slice(&cloud_event::to_json(event).ok()?).ok()
}
