//! `fleetpull report`

mod event_fields;
mod figures;
mod kubelet;
mod observed;
mod show;
mod spans;
mod spread;
mod worst;

use std::time::Duration;

use anyhow::{Result, bail};
use contract::NodeName;

use self::event_fields::EventFields;
use self::figures::Figures;
use self::show::Between;
use super::history::{History, Read, nodes_meant};
use crate::cli::{OutputFormat, ReportArgs};
use crate::exit::{Exit, UsageError};
use crate::fleet::{FleetClient, ask_nats};
use crate::output::{self, live, units};

/// The error if an agent's socket is given.
const ONLY_BY_BUS: &str = "a report is made from the fleet's stream, which an agent's socket does not have: give --nats URL";
/// How often the progress of reading is reported.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Reads the fleet's stream and prints its figures.
pub(super) fn carry_out(args: &ReportArgs) -> Result<Exit> {
    ask_nats(&args.asked.question, ONLY_BY_BUS, async |client, _| report(args, &client).await)
}

async fn report(args: &ReportArgs, client: &FleetClient) -> Result<Exit> {
    let now = client.clock().now().wall;
    let (since, until) = (args.since.at(now), args.until.map_or(now, |until| until.at(now)));
    if since >= until {
        let [since, until] = [since, until].map(|time| units::rfc_3339(milliseconds(time)));
        return Err(UsageError(format!("--since {since} is not before --until {until}")).into());
    }
    let nodes = nodes_meant(&args.asked, client).await?;
    let history = History { since, until: args.until.map(|_| until), limit: None, reason: None, node: None };
    let (mut figures, mut unread) = (Figures::default(), 0_u64);
    let mut progress = Progress::new(client, args.asked.question.output.quiet);
    let shown = history
        .show(
            client,
            |_| true,
            |event| match EventFields::of(event) {
                Some(seen) => figures.take(&seen, is_wanted(nodes.as_deref(), &seen)),
                None => unread += 1,
            },
            |read| progress.see(read),
        )
        .await;
    progress.end();
    if shown?.is_none() {
        let stream = client.fleet().event_stream();
        bail!("NATS has no stream {stream}: `fleetpull nats-setup` makes it, on a server with JetStream; agents fill it from then on");
    }
    show(args, figures.end(), Between { since_ms: milliseconds(since), until_ms: milliseconds(until) });
    if unread > 0 {
        output::warn(&format!("{unread} messages of the stream are no events that this version reads: they are left out"));
    }
    Ok(Exit::Success)
}

fn show(args: &ReportArgs, figures: Figures, between: Between) {
    let (output, top) = (args.asked.question.output, usize::try_from(args.top).unwrap_or(usize::MAX));
    let (losses, cut, first_ms, events) = (figures.losses, figures.spans_cut, figures.first_ms, figures.events);
    let entries_cut = figures.observed.cut;
    match output.format {
        OutputFormat::Json => return show::json(figures, between, top),
        OutputFormat::Text if events > 0 => show::text(figures, between, top),
        OutputFormat::Text => {
            if !output.quiet {
                output::remark("no events in this time");
            }
            return;
        }
    }
    if losses > 0 {
        output::warn(&format!(
            "{losses} events say that nodes lost others (`fleetpull events --reason EventsDropped`): figures are too low"
        ));
    }
    if cut > 0 {
        output::warn(&format!(
            "too many images failed at once: {cut} failures were not followed to their end, so fewer attempts count as spared"
        ));
    }
    if entries_cut > 0 {
        output::warn(&format!(
            "too many back-off entries were open at once: {entries_cut} were forgotten early, so what fleet.share = enforce refuses is not exact"
        ));
    }
    let begins_late = first_ms.is_some_and(|first_ms| first_ms > between.since_ms.saturating_add(milliseconds(A_DAY)));
    if begins_late && !output.quiet {
        let first = units::rfc_3339(first_ms.unwrap_or_default() / 1_000 * 1_000);
        output::remark(&format!("the first event is of {first}: the stream keeps events for events.stream_max_age"));
    }
}

/// If the stream begins later than requested by more than this, a remark says so.
const A_DAY: Duration = Duration::from_secs(86_400);

fn is_wanted(nodes: Option<&[NodeName]>, seen: &EventFields) -> bool {
    nodes.is_none_or(|nodes| nodes.iter().any(|node| node.as_str() == seen.node))
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Reports the progress of reading on stderr: a line that is redrawn on a terminal, else a new line at intervals.
struct Progress<'a> {
    client: &'a FleetClient,
    is_quiet: bool,
    printed_at: Duration,
}

impl<'a> Progress<'a> {
    fn new(client: &'a FleetClient, is_quiet: bool) -> Self {
        Self { client, is_quiet, printed_at: client.clock().now().monotonic }
    }

    fn see(&mut self, read: &Read) {
        let now = self.client.clock().now().monotonic;
        if self.is_quiet || now < self.printed_at + PROGRESS_EVERY {
            return;
        }
        self.printed_at = now;
        let line = format!("{} events read, until {}", read.events, units::rfc_3339(milliseconds(read.stored_at) / 1_000 * 1_000));
        if output::is_terminal() { live::show(&[line]) } else { output::remark(&line) }
    }

    fn end(&self) {
        if !self.is_quiet && output::is_terminal() {
            live::clear();
        }
    }
}
