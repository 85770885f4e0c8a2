//! `fleetpull status`

mod budgets;
mod explain;
mod gather;
mod ids;
mod json;
mod model;
mod row;
mod rows;
#[cfg(test)]
pub(super) mod samples;
mod show;
mod waits;
mod what_and_scope;

use anyhow::Result;

use super::watch::{Show, once_or_again};
use crate::cli::{OutputFormat, StatusArgs};
use crate::exit::Exit;
use crate::fleet::{FleetClient, ask_fleet};
use crate::output;
use crate::output::listing::{has_colour, terminal_width};
use model::Status;

pub(super) use explain::{ToClear, explain, may_name_rows, to_clear};
pub(super) use ids::is_id;
pub(super) use show::{silent, without_a_bus};
pub(super) use what_and_scope::{name, state_in_words};

/// The width of lines without a terminal, in columns: nothing is wrapped or shortened.
pub(super) const WIDTH_OF_FILES: usize = usize::MAX;

/// The status, and its format.
struct Shown {
    status: Status,
    format: OutputFormat,
    has_colour: bool,
}

impl Shown {
    fn lines(&self, has_colour: bool) -> Vec<String> {
        show::lines(&self.status, terminal_width().unwrap_or(WIDTH_OF_FILES), has_colour)
    }
}

impl Show for Shown {
    fn screen(&self) -> Vec<String> {
        self.lines(self.has_colour)
    }

    fn write(&self) {
        match self.format {
            OutputFormat::Json => output::json(&json::object(&self.status)),
            OutputFormat::Text => self.lines(self.has_colour).iter().for_each(|line| output::document(line)),
        }
    }
}

/// Shows the status once, or repeatedly.
pub(super) fn carry_out(args: &StatusArgs) -> Result<Exit> {
    let (format, has_colour) = (args.question.output.format, has_colour(args.color));
    let selector = args.question.fleet.selector.as_ref();
    ask_fleet(&args.question, "error", async |client| {
        once_or_again(&client, args.watch, format == OutputFormat::Text, async |client: &FleetClient| {
            let (answers, exit) = gather::ask(client, selector).await?;
            Ok((Shown { status: Status::of(answers), format, has_colour }, exit))
        })
        .await
    })
}

#[cfg(test)]
mod tests {
    use contract::messages::backoff_tracker::BackoffEntry;

    use super::samples::{Sample, missing, unavailable};
    use super::*;

    #[test]
    fn sample_in_the_readme_is_the_screen_of_such_a_fleet() {
        let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).expect("the README");
        let mut blocks = readme.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next());
        let sample = blocks.find(|block| block.contains("\nFLEET ")).expect("a sample of the status");
        let down = BackoffEntry { reporter_count: 3, ..unavailable() };
        let [job, app, web] = ["job:v3", "app:v9", "web:v1"].map(|name| format!("registry.example/team/{name}"));
        let fleet = Sample::of(5).knowing(&down).knowing(&missing("0be1", &job)).waiting(5, &app, 240_000).waiting(3, &web, 60_000);
        let fleet = fleet.with(|answers| answers.nodes.iter_mut().for_each(|node| node.standing = node.waiting));
        assert_eq!(show::lines(&Status::of(fleet.answers()), WIDTH_OF_FILES, false).join("\n"), sample.trim_end());
    }
}
