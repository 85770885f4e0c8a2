//! Reads from the fleet once, or repeatedly with `--watch`.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::Result;
use clock::Clock;

use crate::cli::{Format, ListArgs, ListFormat, OutputArgs, QuestionArgs, TableArgs};
use crate::exit::{Exit, UsageError};
use crate::fleet::{FleetClient, ask_fleet};
use crate::output::listing::{Listing, Manner};
use crate::output::table::{Column, place_of, titles};
use crate::output::{self, live, units};

/// How often the fleet is read with `--watch`.
const READ_EVERY: Duration = Duration::from_secs(2);

/// A result that can be shown.
pub(super) trait Show {
    /// The result in lines that fit on a screen, without terminal control characters but those of colours.
    fn screen(&self) -> Vec<String>;
    /// Writes the result to stdout.
    fn write(&self);
}

/// A list in the requested form.
struct Shown {
    listing: Listing,
    manner: Manner,
}

impl Show for Shown {
    fn screen(&self) -> Vec<String> {
        self.listing.screen(&self.manner)
    }

    fn write(&self) {
        self.listing.write(&self.manner);
    }
}

/// The requested form of a list, and the column by which it is sorted.
pub(super) struct ListRequest<'a> {
    list: &'a ListArgs,
    manner: Manner,
    sorted_by: Option<usize>,
}

impl<'a> ListRequest<'a> {
    /// A request for a list with these columns.
    ///
    /// # Errors
    /// The list has no such column to sort by.
    pub(super) fn of(output: OutputArgs<ListFormat>, list: &'a ListArgs, columns: &[Column]) -> Result<Self> {
        Ok(Self { list, manner: Manner::of(output, &list.table), sorted_by: column_to_sort_by(&list.table, columns)? })
    }

    /// True if JSON objects are written. They need not be made otherwise.
    pub(super) fn has_objects(&self) -> bool {
        self.manner.has_objects()
    }

    /// Asks the fleet, and shows the result of `read`.
    ///
    /// # Errors
    /// Those of [`ask_fleet`], and those of `read`.
    pub(super) fn show<F: Format>(
        &self,
        question: &QuestionArgs<F>,
        read: impl AsyncFn(&FleetClient) -> Result<(Listing, Exit)>,
    ) -> Result<Exit> {
        let read = async |client: &FleetClient| {
            let (mut listing, exit) = read(client).await?;
            if let Some(column) = self.sorted_by {
                listing.table.sort_by(column);
            }
            Ok((Shown { listing, manner: self.manner }, exit))
        };
        ask_fleet(question, "error", async |client| once_or_again(&client, self.list.watch, self.manner.is_table(), read).await)
    }
}

/// The place of the column by which the rows are sorted, if one is given.
///
/// # Errors
/// The table has no such column.
pub(super) fn column_to_sort_by(table: &TableArgs, columns: &[Column]) -> Result<Option<usize>> {
    let place = |title: &String| {
        let wrong = || UsageError(format!("no column is called {title:?}: --sort-by takes {}", titles(columns)));
        place_of(columns, title).ok_or_else(wrong)
    };
    Ok(table.sort_by.as_ref().map(place).transpose()?)
}

/// Reads and shows the result once, or with `--watch` repeatedly until Ctrl-C. On a terminal, text is redrawn each time.
///
/// # Errors
/// Those of `read`. With `--watch` an error is shown, and the command reads again.
pub(super) async fn once_or_again<S: Show>(
    client: &FleetClient,
    is_watched: bool,
    is_for_people: bool,
    read: impl AsyncFn(&FleetClient) -> Result<(S, Exit)>,
) -> Result<Exit> {
    if !is_watched {
        let (shown, exit) = read(client).await?;
        shown.write();
        return Ok(exit);
    }
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Ok(Exit::Success),
        () = again(client, is_for_people, read) => Ok(Exit::Success),
    }
}

/// Reads and shows the result repeatedly until the future is dropped.
async fn again<S: Show>(client: &FleetClient, is_for_people: bool, read: impl AsyncFn(&FleetClient) -> Result<(S, Exit)>) {
    let mut watch = Watch { clock: client.clock(), is_redrawn: is_for_people && is_screen(), last: Vec::new(), failing_since: None };
    let mut ticks = tokio::time::interval(READ_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        watch.show(read(client).await);
    }
}

/// True if lines can be redrawn in place.
fn is_screen() -> bool {
    io::stdout().is_terminal() && output::is_terminal()
}

/// The state of a watch.
struct Watch<'a> {
    clock: &'a Clock,
    is_redrawn: bool,
    /// The lines of the last result.
    last: Vec<String>,
    failing_since: Option<Duration>,
}

impl Watch<'_> {
    fn show<S: Show>(&mut self, read: Result<(S, Exit)>) {
        match read {
            Ok((shown, _)) if self.is_redrawn => {
                self.failing_since = None;
                self.last = shown.screen();
                live::show_coloured(&as_many(&self.last, live::height()));
            }
            Ok((shown, _)) => shown.write(),
            Err(error) if self.is_redrawn => {
                let now = self.clock.now().monotonic;
                let lasts = now.saturating_sub(*self.failing_since.get_or_insert(now));
                let ago = units::age(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX));
                let failed = format!("the fleet does not answer for {ago}: {}; its last answer is below", output::error_text(&error));
                let failed = output::one_line(&failed);
                live::show_coloured(&as_many(&[std::slice::from_ref(&failed), &self.last].concat(), live::height()));
            }
            Err(error) => output::remark(&format!("{}; asking again", output::error_text(&error))),
        }
    }
}

/// As many lines as fit; the last one says how many more there are.
fn as_many(lines: &[String], room: usize) -> Vec<String> {
    match lines.get(..room.saturating_sub(1)) {
        Some(first) if lines.len() > room => {
            let more = format!("and {} more lines: make the terminal higher, or leave out --watch", lines.len() - first.len());
            first.iter().cloned().chain([more]).collect()
        }
        _ => lines.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 2] = [Column::new("NAME"), Column::wide("NEXT ATTEMPT")];

    #[test]
    fn excess_lines_are_counted_in_the_last_line() {
        let lines = ["a", "b", "c", "d"].map(str::to_owned);
        assert_eq!(as_many(&lines, 4), lines);
        assert_eq!(as_many(&lines, 3), ["a", "b", "and 2 more lines: make the terminal higher, or leave out --watch"]);
        assert_eq!(as_many(&lines, 0).len(), 1);
        assert!(as_many(&[], 0).is_empty());
    }

    #[test]
    fn unknown_sort_column_is_refused_with_the_known_ones() {
        let table = |column: &str| TableArgs { sort_by: Some(column.to_owned()), ..TableArgs::default() };
        let list = |column: &str| ListArgs { table: table(column), watch: false };
        let request = |column: &str| ListRequest::of(OutputArgs::default(), &list(column), &COLUMNS).map(|request| request.sorted_by);
        assert_eq!(request("next-attempt").expect("it is a column"), Some(1));
        let wrong = request("moon").expect_err("it is no column");
        assert_eq!(wrong.to_string(), "no column is called \"moon\": --sort-by takes name, next-attempt");
        assert_eq!(Exit::of_error(&wrong), Exit::Usage);
    }
}
