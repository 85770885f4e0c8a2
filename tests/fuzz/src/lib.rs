//! Every parser of external input, each as one function of bytes.
//!
//! `cargo test -p fuzz` runs [`TARGETS`] over `corpus/<name>/` and mutations of it; `cargo xtask fuzz <name>` runs one with libFuzzer,
//! guided by coverage. A target must not panic, overflow or grow without bound, and must write a value as it was read.

mod messages;

use contract::TraceContext;
use image::{Platform, Reference};

/// One parser.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its corpus.
    pub name: &'static str,
    /// Parses; panics only if a contract is broken.
    pub run: fn(&[u8]),
}

/// Every parser of external input.
pub const TARGETS: [Target; 13] = [
    Target { name: "failure_text", run: |data| of_text(data, |text| _ = runtimes::failure::read_text(text, None)) },
    Target { name: "hosts_toml", run: |data| of_text(data, runtimes::fuzzing::hosts_file) },
    Target { name: "login_file", run: runtimes::fuzzing::login_file },
    Target { name: "manifest", run: runtimes::fuzzing::manifest },
    Target { name: "message", run: messages::commands_and_replies },
    Target { name: "platform", run: |data| of_text(data, platform) },
    Target { name: "rate_limit", run: |data| of_text(data, runtimes::fuzzing::rate_limits) },
    Target { name: "reference", run: |data| of_text(data, reference) },
    Target { name: "selector", run: |data| of_text(data, selector) },
    Target { name: "socket_frame", run: bus::socket::fuzzing::frames },
    Target { name: "stored", run: messages::stored },
    Target { name: "traceparent", run: |data| of_text(data, traceparent) },
    Target { name: "www_authenticate", run: |data| of_text(data, runtimes::fuzzing::challenge) },
];

/// Runs the target with this name; none if there is none.
#[must_use]
pub fn run(name: &str, data: &[u8]) -> Option<()> {
    TARGETS.iter().find(|target| target.name == name).map(|target| (target.run)(data))
}

/// Runs a parser of text if the bytes are UTF-8.
fn of_text(data: &[u8], parse: impl Fn(&str)) {
    if let Ok(text) = std::str::from_utf8(data) {
        parse(text);
    }
}

fn reference(text: &str) {
    let Ok(read) = Reference::parse(text) else { return };
    assert_eq!(read.requested(), text);
    let again = Reference::parse(read.normalised());
    assert_eq!(again.as_ref().map(Reference::normalised), Ok(read.normalised()), "normalising {text:?} is not stable");
    assert_eq!(again.as_ref().map(Reference::registry_host), Ok(read.registry_host()), "{text:?} changes its registry");
}

fn platform(text: &str) {
    let Ok(read) = text.parse::<Platform>() else { return };
    assert_eq!(read.to_string().parse::<Platform>().as_ref().ok(), Some(&read), "{text:?} is not read as it is written");
}

fn selector(text: &str) {
    let Ok(read) = text.parse::<fleetpull::cli::Selector>() else { return };
    assert_eq!(read.as_str().parse::<fleetpull::cli::Selector>().as_ref(), Ok(&read));
    let _ = read.matches(&[("zone".to_owned(), "a".to_owned())].into());
}

fn traceparent(text: &str) {
    let Some(read) = TraceContext::parse(text) else { return };
    assert_eq!(TraceContext::parse(&read.traceparent()), Some(read), "{text:?} is not read as it is written");
}
