//! The traces of pulls in a tracing backend: checked with a receiver in the test, and with a real Jaeger (`cargo xtask e2e jaeger`).
//!
//! Contracts: each request has one root, over command, node and registry, and no span lacks its parent; a refusal links to the attempt that
//! failed on another node; a request that waits for a probe links to it when it succeeds; callers of one flight link to its attempt; the
//! runtime's call is a span below the attempt; `TRACEPARENT` is a command's parent, and a malformed value hinders nothing.

#![allow(clippy::print_stderr, reason = "the trees are what `cargo xtask e2e jaeger` shows")]

mod scenes;
mod variables;

use e2e::spans::Spans;
#[cfg(feature = "jaeger")]
use e2e::spans::{Jaeger, named_program};
use support::nats::current_program;
use support::requirement::met;

fn in_receiver(scene: fn(&Spans)) {
    if met(current_program()).is_some() {
        scene(&Spans::receiver());
    }
}

#[cfg(feature = "jaeger")]
fn in_jaeger(name: &str, scene: fn(&Spans)) {
    let Some(program) = met(named_program()) else { return };
    eprintln!("\n=== {name}, in Jaeger");
    scene(&Spans::Jaeger(Jaeger::start(program)));
}

macro_rules! scenes {
    ($($name:ident),*) => {
        $(
            #[test]
            fn $name() {
                in_receiver(scenes::$name);
            }
        )*

        /// Runs all scenes one after the other, because Jaeger is large.
        #[cfg(feature = "jaeger")]
        #[test]
        fn everything_is_seen_in_a_real_jaeger() {
            $(in_jaeger(stringify!($name), scenes::$name);)*
        }
    };
}

scenes!(
    a_good_pull_is_one_tree,
    a_refusal_links_to_the_attempt_that_failed_on_another_node,
    what_waits_in_an_outage_links_to_the_probe_that_ended_it,
    ten_callers_of_one_flight_link_to_its_attempt,
    all_callers_of_a_flight_that_fails_are_found_by_the_entry,
    a_pull_through_containerd_has_the_call_of_the_runtime
);
