//! Lists as kubectl's: their columns, their order, their output formats, and their ends.

use std::process::Stdio;

use e2e::{Finished, Registry, Signal, until};

use super::three_agents::Fleet;

/// The lists, each with its first column.
const LISTS: [(&[&str], &str); 4] =
    [(&["nodes"], "NAME"), (&["pulls"], "IMAGE"), (&["backoff", "list"], "REGISTRY"), (&["budget", "list"], "REGISTRY")];

fn lines(finished: &Finished) -> Vec<&str> {
    finished.stdout.lines().collect()
}

fn first_words(finished: &Finished) -> Vec<&str> {
    finished.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn nodes_are_listed_in_every_form() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let table = fleet.run(&["nodes"]).expect(0);
    let header: Vec<&str> = lines(&table)[0].split_whitespace().collect();
    assert_eq!(header, ["NAME", "STATUS", "ZONE", "RUNTIME", "VERSION", "RUNNING", "WAITING", "BLOCKED", "AGE"], "{table}");
    assert_eq!(first_words(&table), ["NAME", "n1", "n2", "n3"], "{table}");
    assert!(table.stdout.contains("  ready   default  "), "{table}");
    let described = fleet.run(&["nodes", "n3"]).expect(0);
    for line in
        ["Name:        n3", "Zone:        default", "Labels:      zone=b", "  node.labels = { zone = \"b\" }", "Standing pulls: none"]
    {
        assert!(lines(&described).contains(&line), "{line} in {described}");
    }
    assert!(described.stdout.contains("/agent.sock\n"), "{described}");
    let ghost = fleet.run(&["nodes", "ghost"]).expect(1);
    assert!(ghost.stderr.contains("no agent of that name in the fleet"), "{ghost}");
    assert_eq!(fleet.run(&["nodes", "-o", "name"]).expect(0).stdout, "n1\nn2\nn3\n");
    let yaml = fleet.run(&["nodes", "-o", "yaml"]).expect(0);
    assert!(yaml.stdout.matches("---\n").count() == 3 && lines(&yaml).contains(&"node: n3"), "{yaml}");
    let described = fleet.run(&["nodes", "n3", "-o", "yaml"]).expect(0);
    assert!(described.stdout.starts_with("---\n") && described.stdout.contains("  zone: b\n"), "{described}");
    assert_eq!(first_words(&fleet.run(&["nodes", "--no-headers"]).expect(0)), ["n1", "n2", "n3"]);
    let labelled = fleet.run(&["nodes", "--show-labels", "--sort-by", "labels", "-o", "wide"]).expect(0);
    assert!(lines(&labelled)[0].ends_with("  LABELS") && lines(&labelled)[3].ends_with("  zone=b"), "{labelled}");
    let coloured = fleet.run(&["nodes", "--color", "always"]).expect(0);
    assert!(coloured.stdout.contains("\u{1b}[32mready\u{1b}[0m") && !table.stdout.contains('\u{1b}'), "{coloured}");
    for (list, _) in LISTS {
        let wrong = fleet.run(&[list, &["--sort-by", "moon"]].concat()).expect(2);
        assert!(wrong.stdout.is_empty() && wrong.stderr.contains("no column is called \"moon\": --sort-by takes "), "{wrong}");
    }
}

#[test]
fn a_list_that_is_watched_is_read_anew_until_it_is_ended() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let watching = fleet.place.start(&["nodes", "-w", "-o", "name"]);
    until("it is read twice", || (watching.stdout().lines().count() >= 6).then_some(()));
    watching.signal(Signal::Interrupt);
    let (status, stdout, stderr) = watching.wait();
    assert!(status == 0 && stdout.starts_with("n1\nn2\nn3\nn1\n"), "{status}: {stdout}\n{stderr}");
}

#[test]
fn waiting_pulls_are_listed_with_causes_and_names_for_other_commands() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    for (list, _) in LISTS.into_iter().skip(1) {
        let nothing = fleet.run(list).expect(0);
        assert!(nothing.stdout.is_empty() && nothing.stderr.lines().count() == 1, "a sentence explains that there is nothing: {nothing}");
    }
    let _ = fleet.run(&["pull", &image, "--node", "n1", "--detach", "--wait", "10m"]).expect(0);
    let pulls = until("the standing pull waits", || {
        let pulls = fleet.run(&["pulls", "--no-headers"]).expect(0);
        pulls.stdout.contains("404").then_some(pulls)
    });
    assert!(pulls.stdout.starts_with(&format!("{image}  n1  ")) && pulls.stdout.contains("  standing  "), "{pulls}");
    let listed = fleet.run(&["backoff", "list"]).expect(0);
    assert!(listed.stdout.contains(&format!("{}  shop/web:v9  404", registry.host())), "{listed}");
    let key = fleet.run(&["backoff", "list", "-o", "name", "--sort-by", "key"]).expect(0);
    let key = first_words(&key)[0].to_owned();
    assert_eq!(key.len(), 32, "{key}");
    let wide = fleet.run(&["backoff", "list", "-o", "wide"]).expect(0);
    assert!(wide.stdout.contains(&key) && wide.stdout.contains("  not_found  "), "{wide}");
    let _ = fleet.run(&["backoff", "explain", &key]).expect(0);
    for (list, first) in LISTS {
        assert!(fleet.run(list).expect(0).stdout.starts_with(first), "{first}");
    }
    let names = fleet.run(&["pulls", "-o", "name"]).expect(0);
    let id = first_words(&names).into_iter().find(|name| name.len() == 32 && !name.contains('/')).unwrap().to_owned();
    let _ = fleet.run(&["cancel", &id]).expect(0);
}

#[test]
fn a_reader_that_goes_away_ends_a_list_quietly() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let mut command = fleet.place.command(&["nodes", "--watch"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    // The exit status of a program that SIGPIPE ends.
    assert!(ended.status.code() == Some(141) && ended.stderr.is_empty(), "{ended:?}");
}
