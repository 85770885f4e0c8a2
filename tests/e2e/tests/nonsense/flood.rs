//! A million keys of one writer.
//!
//! The bucket holds 64 MiB, some 150,000 of them; what comes then is refused by the server, and so is whatever honest nodes have to
//! say of what they have not spoken of before. Leases and budgets lie in other buckets and go on.

use std::time::Duration;

use backoff_tracker::core::knowledge::MAX_TOPICS_OF_ONE;
use bus::KeyValueError;
use e2e::{Agent, Watch, Workplace, until};
use practice_registry::MadeImage;
use serde_json::json;
use support::nats::current_program;
use support::requirement::met;

use crate::fleet::{Honest, LONG, count};
use crate::rogue::{Rogue, Template};

/// What the rogue writes, and for how long at most: a server on two cores takes 40,000 a second.
const KEYS: usize = 1_000_000;
const WITHIN: Duration = Duration::from_secs(30);
/// The most memory that an agent may have had: five times what the bucket may hold, as all of it may be read at once.
const PEAK_AT_MOST: u64 = 320 * 1024 * 1024;
/// Of one writer a node remembers so many reports, and of the honest ones no more than these: a handful for each image.
const OF_ONE_WRITER: u64 = MAX_TOPICS_OF_ONE as u64;
const OF_THE_OTHERS: u64 = 200;
/// By kubelet's rule a failing image is asked for again after 10 s.
const FIRST_STEP_MS: std::ops::RangeInclusive<u64> = 8_000..=10_000;
/// The exit status of a pull that is refused for now.
const IN_BACKOFF: i32 = 4;

#[test]
fn a_million_keys_of_one_writer_leave_the_others_pulling_each_by_its_own_rule_and_in_bounds() {
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
    let (another, report) = Template::new("another").report(0);
    assert!(matches!(rogue.put(&another, report), Err(KeyValueError::Full { .. })), "the bucket has no room left");
    for agent in [n1, n2] {
        let (held, forgotten) = (count(agent, "shared_reports"), count(agent, "shared_reports_evicted_total"));
        assert!(held <= OF_ONE_WRITER + OF_THE_OTHERS && forgotten > 0, "what one writer says is bounded in each replica: {held} are held");
    }

    // Each finds out for itself, and leaves the registry alone as long as kubelet would.
    let missing = honest.registry.image("shop/missing:v1");
    let wish = n1.asked_meanwhile(&["pull", &missing, "--wait", LONG]);
    until("the first has found out", || honest.shared(0, "shop/missing:v1"));
    let row = honest.until_failed(1, "shop/missing:v1");
    assert_eq!((&row["class"], &row["learned_by"]), (&json!("not_found"), &json!("")), "{row}");
    assert!(row["next_try_ms"].as_u64().is_some_and(|next_try| FIRST_STEP_MS.contains(&next_try)), "{row}");
    let row = honest.pull(1, "shop/missing:v1", IN_BACKOFF);
    assert_eq!((&row["outcome"], &row["learned_by"]), (&json!("backoff"), &json!("n2")), "{row}");
    for agent in [n1, n2] {
        until("what is not shared is counted", || (count(agent, "shared_reports_unsent_total") > 0).then_some(()));
    }
    // Who starts now may not get through all of it; it pulls all the same.
    let third = Agent::start(&place, "n3", &["--nats", &honest.server.url()]).ready();
    let _ = third.asked(&["pull", &honest.registry.image("shop/web:v1"), "--wait", LONG]).expect(0);

    rogue.purge("rogue");
    until("another knows what one has found out meanwhile", || {
        honest.shared(1, "shop/missing:v1").filter(|entry| entry.reporters.iter().any(|reporter| reporter == "n1"))
    });
    until("who started meanwhile shares as the others do", || (count(&third, "shared_alone") == 0).then_some(()));
    let other = third.asked_meanwhile(&["pull", &honest.registry.image("shop/missing:v2"), "--wait", LONG]);
    until("what it finds out is known to the others", || honest.shared(0, "shop/missing:v2").filter(|entry| entry.reporters == ["n3"]));
    for agent in [n1, n2, &third] {
        let peak = peak(agent);
        eprintln!("at most {} MiB of memory, {} snapshots", peak >> 20, count(agent, "shared_snapshots_total"));
        assert!(peak <= PEAK_AT_MOST, "{} MiB", peak >> 20);
    }
    drop((wish, other));
}

/// The most memory that an agent has had, in bytes.
fn peak(agent: &Agent<'_>) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}
