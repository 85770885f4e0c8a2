//! The demo: what it shows, and what it leaves behind.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::{Finished, Watch, Workplace, skopeo};
use serde_json::{Value, json};
use support::docker_registry;
use support::requirement::met;

/// The longest time of the demo. It takes about 17 s, 12 s of them an outage.
const DEMO_ENDS_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn the_demo_shows_the_main_job_and_keeps_its_stores_if_asked() {
    let place = Workplace::new();
    let temporary = place.text_path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let place = place.with("TMPDIR", &temporary);
    let watch = Watch::start();
    let done = place.run(&["demo", "--keep"]).expect(0);
    let took = watch.elapsed();
    assert!(took < DEMO_ENDS_WITHIN, "{took:?}");
    for text in [
        "Successfully pulled image",
        "already present on machine",
        "each of 6 blobs was served once",
        "all right",
        " waits: n",
        "all 24 images are there ",
        " times fewer, in ",
        "Try next:",
    ] {
        assert!(done.stdout.contains(text), "{text}: {done}");
    }
    let readme = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let shown = readme.split("```text").map(|block| block.split("```").next().unwrap()).find(|block| block.contains("n1 pulls")).unwrap();
    for line in shown.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())) {
        assert!(done.stdout.lines().any(|shown_line| shown_line == line), "the README shows another scene: {line}; {done}");
    }
    check_that_every_line_is_marked(&done);
    assert!(done.stdout.contains("ImagePullBackOff") && done.stdout.contains("next attempt in"), "{done}");
    assert_eq!(done.stderr, "", "{done}");
    let stores = done.stdout.split_once("stores below ").and_then(|(_, rest)| rest.split(".\n").next()).unwrap();
    assert!(done.stdout.contains(&format!("\nThe stores are kept in {stores}. To read one:\n")), "{done}");
    assert!(stores.starts_with(&temporary) && std::path::Path::new(stores).is_dir(), "{stores} is kept");
    let command = done.stdout.lines().find_map(|line| line.trim().strip_prefix("skopeo inspect ")).unwrap_or_else(|| panic!("{done}"));
    if met(docker_registry::available()).is_some() {
        skopeo(&["inspect", command.trim_matches('\'')]);
    }
}

/// Checks that each line is marked as measured, simulated or shortened, except titles, blank lines, and the advice at the end.
fn check_that_every_line_is_marked(done: &Finished) {
    let (shown, _) = done.stdout.split_once("\n\nThe stores are kept in ").unwrap();
    let mut scene = String::new();
    let mut marks: Vec<(String, &str)> = Vec::new();
    let (scenes, table) = shown.split_once("\nNODE ").unwrap();
    // The first line explains the words.
    for line in scenes.lines().skip(1).filter(|line| !line.is_empty()) {
        match line.strip_prefix("   ") {
            None => scene = line.split('.').next().unwrap().to_owned(),
            Some(line) => marks.push((scene.clone(), line.split("  ").next().unwrap())),
        }
    }
    let words = ["measured", "simulated", "shortened"];
    assert!(marks.iter().all(|(_, word)| words.contains(word)), "{marks:?} of {done}");
    assert!(table.lines().skip(1).all(|row| row.ends_with("  measured")), "{table}");
    let of = |word: &str| marks.iter().filter(|(_, mark)| *mark == word).map(|(scene, _)| scene.as_str()).collect::<BTreeSet<_>>();
    assert_eq!(of("simulated"), BTreeSet::from(["7"]), "{marks:?}");
    assert_eq!(of("shortened"), BTreeSet::from(["6"]), "{marks:?}");
    assert_eq!(of("measured"), BTreeSet::from(["", "1", "2", "3", "4", "5", "6"]), "{marks:?}");
}

#[test]
fn the_demo_in_json_is_one_object_for_each_fact_and_leaves_nothing_behind() {
    let place = Workplace::new().with("TMPDIR", "/tmp");
    let done = place.run(&["demo", "-o", "json"]).expect(0);
    let facts = done.objects();
    assert_eq!(done.stderr, "", "{done}");
    let of =
        |scene: u64, what: &str| -> Vec<&Value> { facts.iter().filter(|fact| fact["scene"] == scene && fact["what"] == what).collect() };
    let one = |scene: u64, what: &str| *of(scene, what).first().unwrap_or_else(|| panic!("{what} in scene {scene}: {done}"));
    for fact in &facts {
        let source = fact["source"].as_str().unwrap();
        let expected: &[&str] = match fact["scene"].as_u64().unwrap() {
            6 => &["measured", "shortened"],
            7 => &["simulated"],
            _ => &["measured"],
        };
        assert!(expected.contains(&source) && fact["text"].as_str().is_some_and(|text| !text.is_empty()), "{fact}");
    }
    // The lines of a scene, in order. Scene 6 is checked separately, because the number of its lines varies.
    for (scene, whats) in [
        (1, &["event", "event", "registry", "step"][..]),
        (2, &["event", "registry", "step"]),
        (3, &["event", "registry", "askers", "step"]),
        (4, &["answer", "answer", "event", "registry", "step"]),
        (5, &["blobs", "step"]),
        (7, &["storm", "storm", "spared"]),
    ] {
        let listed: Vec<&str> = facts.iter().filter(|fact| fact["scene"] == scene).map(|fact| fact["what"].as_str().unwrap()).collect();
        assert_eq!(listed, whats, "scene {scene}: {done}");
    }
    assert_eq!((&one(0, "image")["layers"], &one(0, "image")["size_bytes"]), (&json!(5), &of(1, "event")[1]["size_bytes"]));
    assert_eq!((&one(1, "registry")["requests"], &one(2, "registry")["requests"]), (&json!(7), &json!(0)));
    assert!(of(1, "event")[1]["reason"] == "Pulled" && of(1, "event")[1]["duration_ms"].is_u64(), "{done}");
    let askers = one(3, "askers");
    assert_eq!((&askers["asked"], &askers["answered"], &askers["served_at_most"]), (&json!(10), &json!(10), &json!(1)), "{askers}");
    let last = of(4, "answer")[1];
    assert_eq!((&last["number"], &last["reason"], &last["class"]), (&json!(20), &json!("ImagePullBackOff"), &json!("not_found")), "{last}");
    assert!(last["next_attempt_ms"].as_u64() > Some(0) && one(4, "registry")["failing"] == 1, "{last}");
    assert!(one(5, "blobs")["bytes"].as_u64() > Some(40_000_000), "{done}");
    let counts: Vec<&Value> = of(6, "failing");
    assert!(counts.len() >= 5 && counts.iter().all(|count| count["after_ms"].is_u64() && count["shared"].is_u64()), "{counts:?}");
    assert_eq!(one(6, "outage")["source"], "shortened");
    let all = one(6, "failing_in_all");
    assert!(all["shared"].as_u64() < all["kubelet"].as_u64(), "{all}");
    assert_eq!((&of(6, "served")[0]["rule"], &of(6, "served")[0]["there"]), (&json!("shared"), &json!(24)), "{done}");
    assert_eq!((of(6, "step").len(), &of(6, "step")[0]["failing"]), (2, &all["shared"]), "{done}");
    assert!(of(7, "storm")[0]["failing"].as_u64() > of(7, "storm")[1]["failing"].as_u64(), "{done}");
    let stores = one(0, "place")["stores"].as_str().unwrap();
    assert!(stores.starts_with("/tmp/") && !std::path::Path::new(stores).exists(), "{stores} is removed");
}
