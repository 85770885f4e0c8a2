//! Terminals of all kinds: narrow, dumb, resized during a drawing, closed; and output that is no terminal.

use std::process::Stdio;

use e2e::{Agent, Registry, Terminal, Workplace, until};
use memory_registry::{BodyFault, Fault, FaultAction};
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use super::common::small;

/// The exit status of a program that SIGPIPE ends, as a shell shows it.
const ENDED_BY_CLOSED_PIPE: i32 = 141;

/// Starts a pull of an image that takes about 2 s.
fn slow_pull(registry: &Registry, place: &Workplace, rows_and_columns: (u16, u16)) -> Terminal {
    let added = registry.add_image("shop/web", "v1", &small());
    let largest = added.manifests[0].layers.iter().map(|layer| layer.size).max().unwrap();
    registry.faults().add(Fault::new("/blobs/", FaultAction::Body(BodyFault::BytesPerSecond(largest / 2))));
    place.on_a_terminal(&["pull", "--store", "store", &registry.image("shop/web:v1")], rows_and_columns)
}

#[test]
fn a_dumb_terminal_gets_lines_and_no_movement() {
    let (registry, place) = (Registry::new(), Workplace::new().with("TERM", "dumb"));
    let mut terminal = slow_pull(&registry, &place, (24, 80));
    assert_eq!(terminal.wait(), 0);
    let written = terminal.written();
    assert!(!written.contains('\u{1b}') && written.contains("Normal   Pulling") && written.contains("pulled   "), "{written}");
}

#[test]
fn a_terminal_of_20_columns_shows_whole_lines() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let mut terminal = slow_pull(&registry, &place, (24, 20));
    until("the bars are drawn", || terminal.written().contains("A\u{1b}[J").then_some(()));
    assert_eq!(terminal.broken_rows(), Vec::<String>::new());
    assert_eq!(terminal.wait(), 0);
    assert!(terminal.rows().iter().any(|row| row.starts_with("pulled")), "{:#?}", terminal.rows());
}

/// Whether the terminal shows this text, in one row or in several.
fn shows(terminal: &Terminal, text: &str) -> bool {
    terminal.rows().iter().map(|row| row.trim_start()).collect::<Vec<_>>().join(" ").contains(text)
}

#[test]
fn live_screen_stays_intact_during_lost_contact_logs_and_resizing() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    let _agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let image = registry.image("shop/web:v1");
    let mut terminal = place.on_a_terminal(&["pull", &image, "--all-nodes", "--wait", "50s", "--nats", &server.url()], (24, 100));
    let cause = format!("1 node: {image} 404, next attempt ");
    let drawn = ["0 of 1 there, 1 held back", &cause];
    until("it is drawn why it waits", || drawn.iter().all(|text| shows(&terminal, text)).then_some(()));
    server.kill();
    until("contact is lost", || shows(&terminal, "contact with NATS lost ").then_some(()));
    assert!(shows(&terminal, "the bus is not connected"), "{:#?}", terminal.rows());
    for columns in [60, 140, 30] {
        terminal.resize((40, columns));
        until("it is drawn anew", || shows(&terminal, "contact with NATS lost ").then_some(()));
    }
    until("all of it is drawn in 30 columns", || {
        let rows = terminal.rows();
        let lost = rows.iter().rposition(|row| row.starts_with("contact with NATS lost "))?;
        // There is one drawing below the log, and nothing of an older one.
        let below = rows[lost..].join(" ");
        (below.matches("0 of 1 there").count() == 1 && below.matches("404").count() <= 1).then_some(())
    });
    terminal.resize((40, 140));
    server.restart();
    until("contact is found again", || shows(&terminal, "contact with NATS found again ").then_some(()));
    assert!(shows(&terminal, "the bus is connected again"), "{:#?}", terminal.rows());
    registry.add_image("shop/web", "v1", &small());
    assert_eq!(terminal.wait(), 0);
    let rows = terminal.rows();
    let is_there = rows.iter().any(|row| row.starts_with("pulled") || row.starts_with("present"));
    assert!(is_there && !rows.iter().any(|row| row.contains("0 of 1 there")), "the live block is removed: {rows:#?}");
}

/// A closed reader is neither a failure nor a success: a script must not take it for a sign that all images are present.
#[test]
fn a_closed_pipe_ends_the_program_as_sigpipe_ends_others() {
    let place = Workplace::new();
    let (reader, writer) = std::io::pipe().expect("a pipe can be had");
    drop(reader);
    let mut command = place.command(&["config", "print"]);
    let done = command.stdout(writer).stderr(Stdio::piped()).spawn().and_then(|child| child.wait_with_output()).expect("it runs");
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(ENDED_BY_CLOSED_PIPE), ""));
}
