//! One writer floods the bucket with 1,000,000 keys.
//!
//! The bucket holds 16 MiB, about 37,000 keys; beyond it the server removes the oldest key for each new one. Reports of honest nodes reach
//! the other nodes at once, and a node that starts later still finds them, unless the flood goes on.

use std::time::Duration;

use backoff_tracker::core::knowledge::MAX_KEYS_OF_ONE;
use contract::messages::backoff_tracker::ListBackoffs;
use e2e::{Agent, Watch, Workplace, until};
use memory_registry::MadeImage;
use serde_json::json;
use support::nats::current_program;
use support::requirement::met;

use super::fleet::{Honest, LONG, count};
use super::rogue::Rogue;

/// How many keys the rogue writes, and for how long at most: a server on two cores takes 40,000 per second.
const KEYS: usize = 1_000_000;
const WITHIN: Duration = Duration::from_secs(30);
/// The largest peak memory of an agent: an idle one has about 25 MiB, and may read the whole bucket at once.
const PEAK_AT_MOST: u64 = 200 * 1024 * 1024;
/// The most reports of one writer that a node keeps, and the most reports of the honest nodes: a handful for each image.
const OF_ONE_WRITER: u64 = MAX_KEYS_OF_ONE as u64;
const OF_THE_OTHERS: u64 = 200;

#[test]
fn a_million_keys_of_one_writer_leave_the_others_pulling_and_sharing_in_bounds() {
    if met(current_program()).is_none() {
        return;
    }
    let place = Workplace::new();
    let honest = Honest::start(&place);
    let rogue = Rogue::on(&honest.server);
    let [n1, n2] = &honest.agents[..] else { panic!("there are two") };

    let began = Watch::start();
    let (written, rounds) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| rogue.floods("rogue", KEYS, |_| began.elapsed() < WITHIN));
        let mut rounds = 0;
        while rounds == 0 || !flood.is_finished() {
            let image = format!("shop/web:during-{rounds}");
            honest.registry.add_image("shop/web", &format!("during-{rounds}"), &MadeImage::of_layers([4_000]));
            for node in [0, 1] {
                assert_eq!(honest.pull_waiting(node, &image)["outcome"], json!("pulled"), "in the middle of it");
            }
            rounds += 1;
        }
        (flood.join().unwrap(), rounds)
    });
    eprintln!("{written} reports of one writer in {:.1?}; two nodes pulled {rounds} images meanwhile", began.elapsed());
    for agent in [n1, n2] {
        let (held, forgotten) = (count(agent, "shared_reports"), count(agent, "shared_reports_evicted_total"));
        assert!(
            held <= OF_ONE_WRITER + OF_THE_OTHERS && forgotten > 0,
            "the reports of one writer are bounded in each replica: {held} are held"
        );
    }

    // The bucket is full, and new reports still reach all nodes, because the server removes the oldest reports of the flood.
    let standing_pull = n1.asked_meanwhile(&["pull", &honest.registry.image("shop/missing:v1"), "--wait", LONG]);
    until("another knows what one has found out", || honest.shared(1, "shop/missing:v1").filter(|entry| entry.reporters == ["n1"]));
    // A node that starts now reads its bounded number of reports of the flood's writer, and shares.
    let third = Agent::start(&place, "n3", &["--nats", &honest.server.url()]).ready();
    let started = Watch::start();
    until("a node that starts now knows it too", || {
        let known = third.ask(&ListBackoffs::default()).entries;
        known.into_iter().find(|entry| entry.key_parts.image.ends_with("shop/missing:v1"))
    });
    eprintln!("a node that starts then has the new report after {:.1?}", started.elapsed());
    let other = third.asked_meanwhile(&["pull", &honest.registry.image("shop/missing:v2"), "--wait", LONG]);
    until("the others know the failure that it found", || honest.shared(0, "shop/missing:v2").filter(|entry| entry.reporters == ["n3"]));
    for agent in [n1, n2, &third] {
        let peak = peak(agent);
        eprintln!("at most {} MiB of memory, {} snapshots", peak >> 20, count(agent, "shared_snapshots_total"));
        assert!(peak <= PEAK_AT_MOST, "{} MiB", peak >> 20);
    }
    drop((standing_pull, other));
}

/// The peak memory of an agent, in bytes.
fn peak(agent: &Agent<'_>) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}
