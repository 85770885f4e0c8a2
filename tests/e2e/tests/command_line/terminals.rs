//! Terminals of all kinds: narrow, dumb, resized during a drawing, closed; and output that is no terminal.

use std::process::{Command, Stdio};

use e2e::{Agent, Finished, Registry, Started, Terminal, Workplace, until};
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
fn a_dumb_terminal_gets_each_reading_of_a_watch_below_the_last() {
    if met(current_program()).is_none() {
        return;
    }
    let (server, place) = (NatsServer::start(NatsConfig::default()), Workplace::new().with("TERM", "dumb"));
    let _agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    for (command, beginning) in [("nodes", "NAME  "), ("status", "FLEET  ")] {
        let terminal = place.on_a_terminal(&[command, "--watch", "--nats", &server.url()], (40, 100));
        until("two readings are shown", || (terminal.written().matches(beginning).count() >= 2).then_some(()));
        assert!(!terminal.written().contains('\u{1b}'), "{:?}", terminal.written());
    }
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

/// Runs a command line on a terminal of its own, which `script` makes.
fn on_a_terminal(place: &Workplace, line: &str) -> Finished {
    Finished::of(&[line], begin_on_a_terminal(place, line))
}

fn begin_on_a_terminal(place: &Workplace, line: &str) -> Started {
    begin_by(place, line, |program| vec!["script".into(), "-qec".into(), program, "/dev/null".into()])
}

/// Runs a command line with pipes and redirections.
fn in_a_shell(place: &Workplace, line: &str) -> Finished {
    Finished::of(&[line], begin_by(place, line, |program| vec!["sh".into(), "-c".into(), program]))
}

/// Starts the program followed by `line` through another program, whose arguments `words` returns.
fn begin_by(place: &Workplace, line: &str, words: impl FnOnce(String) -> Vec<String>) -> Started {
    let program = place.command(&[]);
    let words = words(format!("{} {line}", program.get_program().display()));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("TERM", "xterm").current_dir(place.path("."));
    Started::of(command)
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    const ESCAPE: char = '\u{1b}';
    let colours = |done: &Finished| done.stdout.split(ESCAPE).skip(1).filter(|rest| rest.split('m').next().is_some_and(is_colour)).count();
    fn is_colour(code: &str) -> bool {
        code.strip_prefix('[')
            .is_some_and(|code| !code.is_empty() && code != "0" && code.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'))
    }
    for line in ["--help", "pull --help", "pull a:1 --node n1 --nats nats://127.0.0.1:1 --log-level debug"] {
        let wanted = on_a_terminal(&Workplace::new(), line);
        assert!(colours(&wanted) > 0, "{wanted}");
        let plain = on_a_terminal(&Workplace::new().with("NO_COLOR", "1"), line);
        assert_eq!(colours(&plain), 0, "{plain}");
    }
    let piped = Workplace::new().run(&["--help"]).expect(0);
    assert!(!piped.output().contains(ESCAPE), "{piped}");
}

#[test]
fn bars_are_drawn_on_a_terminal_and_lines_elsewhere() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &small());
    let layers = &added.manifests[0].layers;
    let largest = layers.iter().max_by_key(|layer| layer.size).unwrap();
    let name = &largest.digest.split_once(':').unwrap().1[..12];
    // The pull takes about 2 s, during which bars are drawn ten times per second.
    registry.faults().add(Fault::new("/blobs/", FaultAction::Body(BodyFault::BytesPerSecond(largest.size / 2))));
    let image = registry.image("shop/web:v1");
    let done = on_a_terminal(&place, &format!("pull --store store {image}")).expect(0);
    assert!(done.stdout.contains("pulled   ") && !done.stdout.contains("Normal   Pulling"), "{done}");
    let bars = done.stdout.lines().filter(|line| line.contains(name) && line.contains("  [") && line.contains(" of ")).count();
    // Before each drawing the cursor goes up, and everything below it is cleared.
    assert!(bars > 1 && done.stdout.contains("A\u{1b}[J"), "a bar of layer {name}, drawn again and again: {done}");
    assert!(!done.stdout.contains(" 0/0"), "a bar without figures: {done}");
    let piped = place.run(&["pull", "--store", "other", &image]).expect(0);
    assert!(piped.stderr.contains("Normal   Pulling") && !piped.output().contains('\u{1b}'), "{piped}");
    assert!(!piped.stderr.contains(name), "{piped}");
}

#[test]
fn a_pull_in_this_process_prints_its_failure_once() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let image = registry.image("shop/web:v9");
    let line = format!("pull --store store {image}");
    for done in [place.run(&["pull", "--store", "store", &image]).expect(1), on_a_terminal(&place, &line).expect(1)] {
        assert_eq!(done.output().matches("404 Not Found").count(), 1, "{done}");
    }
}

#[test]
fn a_bus_that_comes_back_is_shown_while_a_live_screen_is_drawn() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let line = format!("pull {} --all-nodes --wait 50s --nats {}", registry.image("shop/web:v1"), server.url());
    let waiting = begin_on_a_terminal(&place, &line);
    until("the standing pull is there", || agent.asked(&["pulls", "-o", "json"]).stdout.contains("standing_pull").then_some(()));
    server.kill();
    let notices = ["the bus is not connected", "the bus is connected again"];
    until("it shows that the bus is lost", || waiting.stdout().contains(notices[0]).then_some(()));
    server.restart();
    until("it shows that the bus is connected again", || waiting.stdout().contains(notices[1]).then_some(()));
    registry.add_image("shop/web", "v1", &small());
    let done = Finished::of(&[&line], waiting).expect(0);
    // The agent goes on with the standing pull by itself, so the image may be present before the command asks again.
    let is_there = done.stdout.contains("pulled   n1") || done.stdout.contains("present  n1");
    assert!(done.stdout.find(notices[0]) < done.stdout.find(notices[1]) && is_there, "{done}");
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let place = Workplace::new();
    for line in ["config print | head -1", "--help | head -1", "completions bash | head -1", "explain busybox | head -1"] {
        let done = in_a_shell(&place, line).expect(0);
        assert_eq!((done.stdout.lines().count(), done.stderr.as_str()), (1, ""), "{done}");
    }
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    let place = Workplace::new();
    let done = in_a_shell(&place, "config print >/dev/full").expect(1);
    assert!(done.stderr.contains("cannot be written to stdout: No space left on device"), "{done}");
}
