//! Malformed reports.

use e2e::{Watch, Workplace, until};
use serde_json::json;
use support::nats::current_program;
use support::requirement::met;

use super::fleet::{Honest, count};
use super::rogue::{Rogue, Template};

/// The agent's log message about them.
const WARNING: &str = "values under the reports of this writer are not valid reports";

#[test]
fn an_agent_logs_malformed_reports_once_for_each_writer_and_pulls_go_on() {
    if met(current_program()).is_none() {
        return;
    }
    let place = Workplace::new();
    let honest = Honest::start(&place);
    let rogue = Rogue::on(&honest.server);
    let began = Watch::start();
    // Rubbish under the key of a node that is alive and of one that is not; a report under another node's key; an unknown kind.
    let (of_victim, good) = Template::new("n2").report(1);
    let (of_another, _) = Template::new("n2").report(2);
    let (of_stranger, _) = Template::new("rack-7.n9").report(1);
    let of_another_class = of_victim.replace(".not_found.", ".denied.");
    let nonsense: [(&str, Vec<u8>); 6] = [
        (&of_victim, b"rubbish".to_vec()),
        (&of_another, good.clone()),
        (&of_another_class, good.clone()),
        ("n2.not_found", good.clone()),
        (&of_stranger, vec![0x91; 6_000]),
        (&of_stranger, vec![0; 100_000]),
    ];
    for (key, value) in &nonsense {
        rogue.put(key, value.clone()).unwrap();
    }
    let first = &honest.agents[0];
    until("all of it is counted", || (count(first, "shared_reports_refused_total") == nonsense.len() as u64).then_some(()));
    for writer in ["writer=\"n2\"", "writer=\"rack-7.n9\""] {
        let log = first.log_with(writer);
        let warnings: Vec<_> = log.lines().filter(|line| line.contains(WARNING) && line.contains(writer)).collect();
        assert!(warnings.len() == 1 || began.elapsed().as_secs() >= 60, "once a minute: {warnings:?}");
        assert!(warnings[0].contains("WARN"), "{warnings:?}");
    }
    // None of these reports refuses a node, and a valid report still has its effect.
    for node in [0, 1] {
        assert_eq!(honest.pull(node, "shop/web:v1", 0)["outcome"], json!("pulled"));
    }
    assert_eq!(honest.pull(1, "shop/missing:v1", 1)["class"], json!("not_found"));
    until("the other knows what one has learned", || honest.shared(0, "shop/missing:v1").filter(|entry| entry.reporters == ["n2"]));
}
