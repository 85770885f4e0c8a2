//! `fleetpull status`

mod about;
mod budgets;
mod explain;
mod gather;
mod ids;
mod json;
mod model;
mod row;
mod rows;
#[cfg(test)]
mod samples;
mod show;
mod waits;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::Result;
use console::Term;

use crate::cli::{OutputFormat, Selector, StatusArgs};
use crate::exit::Exit;
use crate::fleet::{FleetClient, ask_fleet};
use crate::output::{self, live, units};
use model::Status;

pub(super) use explain::explain;
pub(super) use ids::is_id;

/// How often the status is read while somebody watches.
const READ_EVERY: Duration = Duration::from_secs(2);
/// The narrowest that lines are laid out for. Columns.
const WIDTH_LEAST: usize = 20;
/// How wide lines are where no terminal shows them. Columns.
const WIDTH_OF_FILES: usize = 160;

/// Shows the status once, or again and again.
pub(super) fn carry_out(args: &StatusArgs) -> Result<Exit> {
    ask_fleet(&args.question, "error", async |client| {
        let selector = args.question.fleet.selector.as_ref();
        if args.watch {
            return Ok(tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => Exit::Success,
                () = watch(args, &client, selector) => Exit::Success,
            });
        }
        let (answers, exit) = gather::ask(&client, selector).await?;
        print(args.question.output.format, &Status::of(answers));
        Ok(exit)
    })
}

/// Reads and shows it until the command is ended. A fleet that does not answer is asked again.
async fn watch(args: &StatusArgs, client: &FleetClient, selector: Option<&Selector>) {
    let format = args.question.output.format;
    let is_redrawn = format == OutputFormat::Text && io::stdout().is_terminal() && output::is_terminal();
    let (mut last, mut failing_since) = (Vec::new(), None);
    let mut read = tokio::time::interval(READ_EVERY);
    read.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        read.tick().await;
        let now = client.clock().now().monotonic;
        match gather::ask(client, selector).await {
            Ok((answers, _)) if is_redrawn => {
                failing_since = None;
                last = show::lines(&Status::of(answers), width());
                live::show(&last);
            }
            Ok((answers, _)) => print(format, &Status::of(answers)),
            Err(error) if is_redrawn => {
                let lasts = now.saturating_sub(*failing_since.get_or_insert(now));
                let ago = units::age(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX));
                let failed = format!("the fleet does not answer for {ago}: {}; below is the last that it said", output::told(&error));
                live::show(&[std::slice::from_ref(&failed), &last].concat());
            }
            Err(error) => output::remark(&format!("{}; it is asked again", output::told(&error))),
        }
    }
}

fn print(format: OutputFormat, status: &Status) {
    match format {
        OutputFormat::Json => output::json(&json::object(status)),
        OutputFormat::Text => show::lines(status, width()).iter().for_each(|line| output::fact(line)),
    }
}

/// How wide the terminal is that shows the facts. It is never filled to its last column.
fn width() -> usize {
    Term::stdout().size_checked().map_or(WIDTH_OF_FILES, |(_, columns)| usize::from(columns).max(WIDTH_LEAST) - 1)
}
