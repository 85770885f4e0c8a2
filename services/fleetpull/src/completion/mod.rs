//! Completes names for a shell: nodes that answer, and images that agents are working on or that this machine's store has.
//!
//! A shell asks at every Tab and waits, so names that are not found within [`WITHIN`] are left out, and errors are not reported.

mod sources;
mod typed;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use clap_complete::CompletionCandidate;
use clap_complete::engine::ArgValueCompleter;
use clock::Clock;
use image::Reference;

use typed::Typed;

/// The variable with which a shell requests completions. Its prefix differs from that of settings.
pub(crate) const VARIABLE: &str = "_FLEETPULL_COMPLETE";

/// The longest search. A person notices a delay of about this length.
const WITHIN: Duration = Duration::from_millis(300);
/// The most names that are offered.
const CANDIDATES_MOST: usize = 100;

/// Finds names for the typed words. It may send some names while it looks for others.
type Find = fn(&Typed, &Sender<Vec<String>>);

/// The nodes that answer.
pub(crate) fn nodes() -> ArgValueCompleter {
    completer(sources::nodes)
}

/// The images that agents have back-off entries, pulls or standing pulls for.
pub(crate) fn images_of_fleet() -> ArgValueCompleter {
    completer(sources::images_of_fleet)
}

/// The images of this machine's store.
pub(crate) fn images_of_store() -> ArgValueCompleter {
    completer(sources::images_of_store)
}

/// The images of the store and of the fleet.
pub(crate) fn images() -> ArgValueCompleter {
    completer(|typed, found| {
        sources::images_of_store(typed, found);
        sources::images_of_fleet(typed, found);
    })
}

fn completer(find: Find) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let Some(current) = current.to_str() else { return Vec::new() };
        offered(names(find, Typed::of_process()), current).into_iter().map(CompletionCandidate::new).collect()
    })
}

/// All names that are found in time. A search that is still running ends with the process.
fn names(find: Find, typed: Typed) -> Vec<String> {
    let clock = Clock::host();
    let begun = clock.now().monotonic;
    let (found, names) = channel();
    std::thread::spawn(move || find(&typed, &found));
    let mut all = Vec::new();
    loop {
        let left = WITHIN.saturating_sub(clock.now().monotonic.saturating_sub(begun));
        match names.recv_timeout(left) {
            Ok(names) => all.extend(names),
            Err(_) => return all,
        }
    }
}

/// The names that start with the typed word, sorted and without duplicates. Other machines wrote them, so texts that are not node or image
/// names are left out, because a shell would act on them.
fn offered(names: Vec<String>, current: &str) -> BTreeSet<String> {
    let meant = names.into_iter().filter(|name| name.starts_with(current));
    let readable = meant.filter(|name| name.parse::<contract::NodeName>().is_ok() || Reference::parse(name).is_ok());
    readable.take(CANDIDATES_MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_match_the_prefix_are_bounded_and_safe_for_a_shell() {
        let names = ["n2", "n1", "n1", "m1", "n;reboot", "n$(reboot)", "n 3", "n\u{1b}[2J", "n.example/app:v1"].map(str::to_owned).to_vec();
        assert_eq!(offered(names, "n").into_iter().collect::<Vec<_>>(), ["n.example/app:v1", "n1", "n2"]);
        let many = (0..10_000).map(|number| format!("n{number}")).collect();
        assert_eq!(offered(many, "").len(), CANDIDATES_MOST);
    }

    #[test]
    fn hanging_source_keeps_completions_found_before() {
        let hangs: Find = |_, found| {
            let _ = found.send(vec!["n1".to_owned()]);
            std::thread::park();
        };
        assert_eq!(names(hangs, Typed::default()), ["n1"]);
    }
}
