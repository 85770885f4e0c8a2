//! `policy`: an operator's policy for the whole fleet, and how nodes apply it.

use e2e::{Registry, Signal, until};
use memory_registry::MadeImage;
use serde_json::{Value, json};

use super::three_agents::Fleet;

/// A registry with this many images, and a policy file that permits this many pulls per second from it.
fn registry_and_policy(fleet: &Fleet, images: u64, per_second: u64) -> Registry {
    let registry = Registry::new();
    for tag in 0..images {
        registry.add_image("shop/web", &format!("v{tag}"), &MadeImage::of_layers([4_000 + tag]));
    }
    write(fleet, "policy.toml", &format!("[registry.\"{}\"]\npulls_per_second = {per_second}\npulls_at_once = 20\n", registry.host()));
    registry
}

fn write(fleet: &Fleet, name: &str, text: &str) {
    std::fs::write(fleet.place.path(name), text).unwrap();
}

fn policy(fleet: &Fleet) -> Value {
    fleet.rows(&["policy", "get"], 0).remove(0)
}

/// Waits until the leader of the one budget applies this revision, and returns the budget.
fn budget_by(fleet: &Fleet, revision: u64) -> Value {
    until("the leader goes by the policy", || {
        let budgets = fleet.rows_any(&["budget", "list"]);
        budgets.into_iter().find(|budget| budget["leads"] == true && budget["policy_revision"] == revision)
    })
}

#[test]
fn a_policy_is_set_once_applied_by_every_node_and_outlives_a_restart() {
    let Some(mut fleet) = Fleet::start(&[]) else { return };
    let registry = registry_and_policy(&fleet, 4, 5);
    let nothing = fleet.run(&["policy", "get"]).expect(0);
    assert!(
        nothing.stdout.is_empty() && nothing.stderr.contains("no policy is set: the median of the nodes' settings applies"),
        "{nothing}"
    );
    assert_eq!(policy(&fleet)["revision"], 0);

    let line = format!("{}: pulls_per_second not set -> 5", registry.host());
    for (command, status) in [(&["policy", "set", "policy.toml", "--dry-run"][..], 0), (&["policy", "diff", "policy.toml"], 1)] {
        let done = fleet.run(command).expect(status);
        assert!(done.stdout.contains(&line), "{done}");
        assert_eq!(policy(&fleet)["revision"], 0, "nothing is written");
    }
    let done = fleet.run(&["policy", "set", "policy.toml", "--if-revision", "0"]).expect(0);
    assert!(done.stdout.contains(&line) && done.stderr.contains("nodes go by it within a second"), "{done}");
    let set = policy(&fleet);
    let revision = set["revision"].as_u64().unwrap();
    assert!(set["set_by"].as_str().unwrap().contains('@') && set["set_at"].is_string(), "{set}");

    for tag in 0..3 {
        fleet.run(&["pull", &registry.image(&format!("shop/web:v{tag}")), "--all-nodes"]).expect(0);
    }
    let budget = budget_by(&fleet, revision);
    assert_eq!((&budget["per_second"], &budget["per_second_by_policy"]), (&json!(5.0), &json!(true)), "{budget}");
    assert_eq!((&budget["at_once"], &budget["at_once_by_policy"], &budget["differences"]), (&json!(20), &json!(true), &json!([])));
    let table = fleet.run(&["budget", "list", "-o", "wide"]).expect(0);
    assert!(table.stdout.contains("  5/s  ") && table.stdout.contains("  20       policy  "), "{table}");

    // The printed policy can be set again.
    let printed = fleet.run(&["policy", "get"]).expect(0);
    assert!(printed.stdout.starts_with(&format!("# revision {revision}, set ")), "{printed}");
    write(&fleet, "again.toml", &printed.stdout);
    fleet.run(&["policy", "diff", "again.toml"]).expect(0);
    let same = fleet.run(&["policy", "set", "again.toml"]).expect(0);
    assert!(same.stderr.contains(&format!("nothing changes: revision {revision} stays")), "{same}");

    fleet.restart("n1", Signal::Terminate);
    until("n1 answers", || fleet.answering().contains("n1").then_some(()));
    fleet.run(&["pull", &registry.image("shop/web:v3"), "--node", "n1"]).expect(0);
    let of_n1 = fleet.rows(&["budget", "list", "--node", "n1"], 0).remove(0);
    assert_eq!((&of_n1["per_second"], &of_n1["policy_revision"]), (&json!(5.0), &json!(revision)), "{of_n1}");
}

#[test]
fn an_invalid_or_outdated_policy_changes_nothing_and_explains_what_to_do() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let _registry = registry_and_policy(&fleet, 0, 5);
    fleet.run(&["policy", "set", "policy.toml"]).expect(0);
    let revision = policy(&fleet)["revision"].as_u64().unwrap();
    let many = |registries: u32| (0..registries).map(|number| format!("[registry.\"r{number}.example\"]\n")).collect::<String>();
    let long = format!("[registry.\"{}.example\"]\npulls_at_once = 1\n", "a".repeat(4_000));
    for (text, advice) in [
        ("[budget]\npulls_per_second = 0\n", "set 0.01 to 100000"),
        ("[budget]\npulls_per_second = nan\n", "set 0.01 to 100000"),
        ("[budget]\npulls_per_second = -1.0\n", "set 0.01 to 100000"),
        ("[budget]\npulls_per_second = 1e9\n", "set 0.01 to 100000"),
        ("[budget]\npuls_at_once = 1\n", "unknown field `puls_at_once`"),
        (&many(1_000), "100 are the most"),
        (&many(10_000), "more than 65536 bytes"),
        (long.as_str(), "name it as images do"),
    ] {
        write(&fleet, "bad.toml", text);
        for command in ["set", "diff"] {
            let refused = fleet.run(&["policy", command, "bad.toml"]).expect(2);
            assert!(refused.stdout.is_empty() && refused.stderr.contains(advice) && refused.stderr.len() < 1_000, "{refused}");
        }
    }
    let late = fleet.run(&["policy", "set", "/dev/null", "--if-revision", "0"]).expect(1);
    assert!(late.stderr.contains(&format!("is at revision {revision}, not 0")) && late.stderr.contains("policy diff"), "{late}");
    let socket = fleet.run(&["policy", "get", "--agent", &fleet.socket("n1")]).expect(2);
    assert!(socket.stderr.contains("give --nats URL"), "{socket}");
    assert_eq!(policy(&fleet)["revision"], revision);
}

#[test]
fn nodes_with_lower_caps_in_their_settings_keep_to_them_and_are_named() {
    let Some(fleet) = Fleet::start(&[("FLEETPULL_BUDGET_PULLS_PER_SECOND", "2")]) else { return };
    let registry = registry_and_policy(&fleet, 1, 50);
    fleet.run(&["policy", "set", "policy.toml"]).expect(0);
    let revision = policy(&fleet)["revision"].as_u64().unwrap();
    fleet.run(&["pull", &registry.image("shop/web:v0"), "--all-nodes"]).expect(0);
    let budget = budget_by(&fleet, revision);
    let difference = &budget["differences"][0];
    assert_eq!(budget["per_second"], 50.0, "{budget}");
    assert_eq!((&difference["nodes"][0], difference["nodes"].as_array().unwrap().len()), (&json!("n1"), 3), "{budget}");
    let table = fleet.run(&["budget", "list"]).expect(0);
    assert!(table.stderr.contains("n1, n2, n3: own settings allow at most 2 pulls a second"), "{table}");
}
