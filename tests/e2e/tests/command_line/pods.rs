//! The output about a pod: `explain pod`, `events --for`.

use std::collections::BTreeMap;

use e2e::{Registry, until};
use serde_json::{Value, json};

use super::three_agents::Fleet;

/// The image, node and states of each row.
fn known(rows: &[Value]) -> Vec<(&str, &str, Vec<&str>)> {
    rows.iter()
        .map(|row| {
            let states = row["known_as"].as_array().unwrap().iter().map(|state| state.as_str().unwrap()).collect();
            (row["image"].as_str().unwrap(), row["node"].as_str().unwrap(), states)
        })
        .collect()
}

#[test]
fn a_pod_is_explained_by_all_images_that_it_waits_for() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let (web, job) = (registry.image("shop/web:v9"), registry.image("shop/job:v9"));
    let _ = fleet.rows(&["pull", &web, "--node", "n1", "--pod", "shop/web-0"], 1);
    let _ = fleet.run(&["pull", &job, "--node", "n1", "--pod", "shop/web-0", "--wait", "1h", "--detach"]).expect(0);
    // A pull for another pod, and one without a pod.
    let _ = fleet.rows(&["pull", &registry.image("shop/other:v9"), "--node", "n2", "--pod", "shop/web-1"], 1);
    let _ = fleet.rows(&["pull", &registry.image("shop/none:v9"), "--node", "n1"], 1);
    let rows = until("the standing pull has failed once", || {
        let rows = fleet.rows_any(&["explain", "pod", "shop/web-0"]);
        (rows.len() == 2 && rows.iter().all(|row| row["pull"]["class"] == "not_found")).then_some(rows)
    });
    let by_image: BTreeMap<&str, (&str, Vec<&str>)> =
        known(&rows).into_iter().map(|(image, node, states)| (image, (node, states))).collect();
    let (node, states) = &by_image[web.as_str()];
    assert!(*node == "n1" && (*states == ["backoff"] || *states == ["failed"]), "{rows:?}");
    assert_eq!(by_image[job.as_str()].0, "n1");
    assert!(by_image[job.as_str()].1.contains(&"standing"), "{rows:?}");
    for row in &rows {
        assert_eq!((&row["pod"], &row["registry"]), (&json!("shop/web-0"), &json!(registry.host())), "{row}");
        assert!(row["pull"]["next_attempt_ms"].is_u64() && row["pull"]["cause"].as_str().unwrap().contains("404"), "{row}");
        let alone = fleet.rows(&["explain", row["image"].as_str().unwrap(), "--node", "n1"], 0).remove(0);
        assert_eq!((&alone["pull"]["class"], &alone["pod"]), (&row["pull"]["class"], &Value::Null), "the image alone has the same answer");
    }
    for spelled in [&["explain", "pod/web-0", "-n", "shop"][..], &["explain", "pod", "web-0", "-n", "shop"]] {
        let text = fleet.run(spelled).expect(0);
        for part in ["pod:                shop/web-0", "known as:           ", " on n1\n", ": not found for ", "404 (n1)", "error: "] {
            assert!(text.stdout.contains(part), "{part}: {text}");
        }
        assert!(!text.stdout.contains("shop/other") && !text.stdout.contains("shop/none"), "{text}");
    }
    let unknown = fleet.run(&["explain", "pod", "shop/web-7"]).expect(1);
    assert!(
        unknown.stderr.contains("has a pull or a back-off entry for the pod shop/web-7")
            && unknown.stderr.contains("--for pod/web-7 -n shop"),
        "{unknown}"
    );
    assert_eq!(unknown.stdout, "");
}

#[test]
fn events_are_chosen_by_pod_and_type() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let image = registry.image("shop/web:v9");
    let _ = fleet.rows(&["pull", &image, "--node", "n1", "--pod", "shop/web-0"], 1);
    let _ = fleet.rows(&["pull", &registry.image("shop/other:v9"), "--node", "n1"], 1);
    let events = |more: &[&str]| fleet.rows(&[&["events", "--for", "pod/web-0", "-n", "shop"], more].concat(), 0);
    let all = events(&[]);
    let reasons: Vec<&str> = all.iter().map(|event| event["data"]["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["Pulling", "Failed"], "{all:?}");
    assert!(all.iter().all(|event| event["data"]["pod"] == "shop/web-0" && event["data"]["image"] == image), "{all:?}");
    let stored = until("the stream has them", || Some(events(&["--since", "1h"])).filter(|stored| stored.len() == 2));
    let ids = |events: &[Value]| events.iter().map(|event| event["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&stored), ids(&all), "the stream and the agents tell the same");
    for warnings in [events(&["--type", "Warning"]), events(&["--type", "warning", "--since", "1h"])] {
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!((&warnings[0]["data"]["reason"], &warnings[0]["data"]["type"]), (&json!("Failed"), &json!("Warning")));
    }
    let normal = fleet.rows(&["events", "--type", "Normal"], 0);
    assert!(!normal.is_empty() && normal.iter().all(|event| event["data"]["type"] == "Normal"), "{normal:?}");
    assert!(fleet.rows(&["events", "--for", "pod/shop/web-7"], 0).is_empty());
}
